"""Requests about a cluster (its topics, their ends and ids) whose errors say why no broker answers.

librdkafka ends such a request with "Broker transport failure" for a wrong port, an unknown name, refused TLS and a
wrong password alike. The cause is in the errors of its connections, which it gives to ``error_cb`` only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from penstock.kafka.errors import KafkaAway

_UNANSWERED = (
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._WAIT_COORD,
)
"""Errors of a request that no broker answered."""
_CLOSED = re.compile(r"^\S+: Disconnected\b")
_STATE = re.compile(r" \(after \d+ms in state \w+.*$")


class Administration:
    """An administrative client of one cluster. ``kafka``: properties of librdkafka. Any thread."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        # The client refers to an object apart from this one: in a cycle, its sockets outlive its last use.
        self._errors = ConnectionErrors()
        self._kafka: dict[str, Any] = {**kafka, "log_level": "0", "error_cb": self._errors.note}
        self._client: AdminClient | None = None

    @contextmanager
    def requests(self, missing: str) -> Iterator[AdminClient]:
        """Yield the client. Raises KafkaAway for its errors, as "Kafka at ADDRESS ``missing``: why"."""
        # A client without messages that wait is false: it has a length.
        client = AdminClient(self._kafka) if self._client is None else self._client
        # Order: errors of connections that were lost before these requests are not their cause.
        client.poll(0)
        self._errors.text = ""
        try:
            yield client
            self._client = client
        except (KafkaException, TimeoutError) as error:
            # The frames of its traceback hold the client, and a failed future, which holds the error: a cycle.
            error.__traceback__ = None
            # Workaround: after a broker was stopped for long, a client fails for 10 s and more once it answers again
            # (librdkafka 2.x); a new one connects at once.
            self._client = None if _is_unanswered(error) else client
            client.poll(0)
            address = self._kafka.get("bootstrap.servers")
            raise KafkaAway(f"Kafka at {address} {missing}: {self._cause(error)}") from None

    def _cause(self, error: Exception) -> str:
        if _is_unanswered(error) and self._errors.text:
            return self._errors.text
        return str(error.args[0].str() if isinstance(error, KafkaException) else error) or "no answer in time"


def _is_unanswered(error: Exception) -> bool:
    return not isinstance(error, KafkaException) or error.args[0].code() in _UNANSWERED


class ConnectionErrors:
    """The newest error of a client's connections that explains a failure; ``note`` is the client's ``error_cb``."""

    def __init__(self) -> None:
        self.text = ""

    def note(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            return
        # After a refused handshake librdkafka also reports the connection that was closed by it, which explains less.
        if not (self.text and _CLOSED.search(error.str())):
            self.text = _STATE.sub("", error.str())


class FetchedOffsets(dict[tuple[str, int], int]):
    """The offset that a client fetches next, by topic and partition; ``note`` is the client's ``stats_cb``.

    Records of an aborted transaction move this offset, and no position.
    """

    def note(self, statistics: str) -> None:
        """Take the offsets from librdkafka's statistics."""
        for topic, entry in json.loads(statistics)["topics"].items():
            self.update({(topic, int(number)): part["next_offset"] for number, part in entry["partitions"].items()})
