"""Read topics from the log daemon over Arrow Flight. The daemon may be unavailable for a while.

A call that fails because the daemon is unavailable is retried with growing pauses for ``retry_for`` seconds; a stream
continues after the last row it returned. Then Unavailable is raised.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from penstock.client import ClientError, NoSuchTopic, NotAllowed, Unavailable
from penstock.client.log.connection import RetryBackoff
from penstock.client.log.flight_reads import call_options, flight_client, flight_ticket
from penstock.files.json_values import parse_object
from penstock.landing.daemon_connection import DaemonConnection
from penstock.landing.topics.topic_store import DataLoss, Range, TopicView, refuse_gaps, to_schema
from penstock.log.store.gaps import Gap

T = TypeVar("T")
CALL_TIMEOUT_S = 10.0
"""Limit for one call: a daemon that accepts connections but does not answer is noticed after it."""
STREAM_TIMEOUT_S = 30.0
"""Limit for one stream; it is opened again after its last row, without end as long as rows arrive."""
FILTERED_ROWS_PER_STREAM = 100_000
"""Limit: rows one filtered stream scans. A filter may match none, and a silent stream would time out."""
NOT_FOUND_PREFIX = "NOT_FOUND: "
"""Prefix of the server's error for a missing topic."""
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RemoteTopic:
    """A topic at the moment when the daemon was asked."""

    store: FlightStore
    topic: str
    start: int
    end: int
    size: int

    def at_timestamp(self, micros: int) -> int:
        (document,) = self.store.call_action("seek", {"topic": self.topic, "micros": micros})
        return int(document["offset"])

    def gaps(self) -> list[Gap]:
        return self.store.gaps(self.topic)


class FlightStore:
    """The topics of a log daemon. Not thread-safe. All calls raise Unavailable, NotAllowed."""

    def __init__(self, connection: DaemonConnection) -> None:
        self._connection = connection
        self._client: Any = None
        self._row_bytes: dict[str, float] = {}

    def views(self, patterns: Sequence[str]) -> dict[str, TopicView]:
        """Return views by topic with one call; see TopicStore."""
        topics = {
            str(document["topic"]): RemoteTopic(
                self, document["topic"], document["start"], document["end"], document["bytes"]
            )
            for document in self.call_action("topics", {"topics": list(patterns)})
        }
        self._row_bytes = {name: view.size / max(view.end - view.start, 1) for name, view in topics.items()}
        return dict(topics)

    def waiting_since(self, topic: str, offset: int) -> int | None:
        with contextlib.suppress(ClientError):
            (document,) = self.call_action("first", {"topic": topic, "offset": offset})
            return None if document["micros"] is None else int(document["micros"])
        return None

    def row_times(self, rows: Mapping[str, Sequence[int]]) -> dict[str, list[int | None]]:
        """Return times with one call; see TopicStore."""
        try:
            (document,) = self.call_action("times", {"rows": {topic: list(offsets) for topic, offsets in rows.items()}})
            times = document["micros"]
        except ClientError:
            # Of an earlier version, or away: no time is compared.
            times = {}
        return {topic: times.get(topic, [None] * len(offsets)) for topic, offsets in rows.items()}

    def row_bytes(self, topic: str) -> float:
        return self._row_bytes.get(topic, 0.0)

    def gaps(self, topic: str) -> list[Gap]:
        """Return all gaps of a topic, sorted. Raises NoSuchTopic."""
        return [Gap.from_document(document) for document in self.call_action("gaps", {"topic": topic})]

    def read(
        self, part: Range, schema: pa.Schema, *, filter_text: str = "", fail: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows; see TopicStore. The daemon turns offsets that it finds corrupt into a gap."""
        columns = [field.name for field in schema if field.name not in ("topic", "offset")]
        try:
            # Before the read, so that a known gap fails at once; after it, for one that appeared during it.
            if fail:
                refuse_gaps(self.gaps(part.topic), part)
            for batch in self._rows(part, ["offset", *columns], filter_text):
                yield to_schema(batch, part.topic, schema)
            if fail:
                refuse_gaps(self.gaps(part.topic), part)
        # The topic was deleted during the read.
        except NoSuchTopic:
            if fail:
                raise DataLoss(f"topic {part.topic} was deleted") from None

    def _rows(self, part: Range, columns: Sequence[str], filter_text: str) -> Iterator[pa.RecordBatch]:
        """Yield each row once, over any number of broken streams."""
        backoff, offset = self._new_backoff(), part.begin
        while offset < part.end:
            stop = min(part.end, offset + FILTERED_ROWS_PER_STREAM) if filter_text else part.end
            try:
                for batch in self._stream(flight_ticket(part.topic, offset, stop, filter_text or None, columns)):
                    offset = batch.column("offset")[-1].as_py() + 1
                    backoff.reset()
                    yield batch
                offset = stop
                backoff.reset()
            except ClientError as error:
                self._pause(backoff, error)

    def _stream(self, ticket: Any) -> Iterator[pa.RecordBatch]:
        with self._typed_errors() as client:
            for chunk in client.do_get(ticket, call_options(self._connection.endpoint, STREAM_TIMEOUT_S)):
                if chunk.data.num_rows:
                    yield chunk.data

    def call_action(self, kind: str, document: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the answers to an action of the server. Raises NoSuchTopic, ClientError."""
        from pyarrow import flight

        action = flight.Action(kind, json.dumps(document).encode())

        def call() -> list[dict[str, Any]]:
            with self._typed_errors() as client:
                answers = client.do_action(action, call_options(self._connection.endpoint, CALL_TIMEOUT_S))
                return [parse_answer(answer.body.to_pybytes()) for answer in answers]

        return self._retry(call)

    def _retry(self, call: Callable[[], T]) -> T:
        backoff = self._new_backoff()
        while True:
            try:
                return call()
            except ClientError as error:
                self._pause(backoff, error)

    def _new_backoff(self) -> RetryBackoff:
        return RetryBackoff(self._connection.retry_for, lambda error: _LOGGER.warning("%s; it is retried", error))

    def _pause(self, backoff: RetryBackoff, error: ClientError) -> None:
        pause = backoff.pause(error)
        if pause is None and isinstance(error, Unavailable):
            raise Unavailable(f"{error}; retried for {self._connection.retry_for:g} s") from None
        if pause is None:
            raise error from None
        self.close()  # a connection that broke may go on failing
        time.sleep(pause)

    @contextlib.contextmanager
    def _typed_errors(self) -> Iterator[Any]:
        """Yield the client; raise errors of Flight as errors of the log's clients."""
        from pyarrow import flight

        address = self._connection.address
        try:
            if self._client is None:
                self._client = flight_client(self._connection.endpoint)
            yield self._client
        except (flight.FlightUnavailableError, flight.FlightTimedOutError) as error:
            text = f"Flight server {address} does not answer ({_short(error)}): check log.flight of the log daemon"
            raise Unavailable(text) from None
        except pa.ArrowNotImplementedError:
            raise ClientError(
                f"{address} is not a Flight server: use the address in log.flight of the log daemon"
            ) from None
        except (flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError) as error:
            raise NotAllowed(f"{address}: {_short(error)}") from None
        except (pa.ArrowException, OSError) as error:
            if _short(error).startswith(NOT_FOUND_PREFIX):
                raise NoSuchTopic(f"{address}: {_short(error)}") from None
            raise ClientError(f"{address}: {_short(error)}") from None

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        client, self._client = self._client, None
        if client is not None:
            client.close()


def parse_answer(body: bytes) -> dict[str, Any]:
    """Parse the document in an answer. Raises ClientError."""
    try:
        return parse_object(body)
    except ValueError as error:
        raise ClientError(f"the server is not a log daemon, or a newer one: it answers with {error}") from None


def _short(error: Exception) -> str:
    """Return Flight's message without the details that gRPC appends for its developers."""
    text = str(error.args[0] if error.args else error)
    text = text.split(" gRPC client debug context")[0]
    return (text.partition("with message: ")[2] or text).partition(". Detail: ")[0]
