"""Topics read over Arrow Flight from the log daemon, wherever it is. It may be away for a while.

A call that fails because the daemon is away is made again, with growing pauses, for ``retry_for`` seconds; a stream of
rows then goes on behind the last row that was given. After that Unavailable is raised.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from penstock.client import ClientError, NoSuchTopic, NotAllowed, Unavailable
from penstock.client.log.connection import RetryBackoff
from penstock.client.log.flight_reads import call_options, flight_client, flight_ticket
from penstock.files.json_values import parse_object
from penstock.landing.daemon_connection import DaemonConnection
from penstock.landing.topics.topic_store import DataLoss, Range, TopicView, refuse_gaps, shaped
from penstock.log.store.gaps import Gap

T = TypeVar("T")
CALL_SECONDS = 10.0
"""How long a question may take. A daemon that is there but stands still is found out by that."""
STREAM_SECONDS = 30.0
"""How long one stream may take; it is asked for again where it had got to, without end as long as rows come."""
FILTERED_ROWS = 100_000
"""Rows that one stream goes through where a filter may let none of them pass."""
NOT_FOUND = "NOT_FOUND: "
"""What the server's error begins with for a topic that is not there."""
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RemoteTopic:
    """A topic as it was when the daemon was asked."""

    store: FlightStore
    topic: str
    start: int
    end: int
    size: int

    def at_timestamp(self, micros: int) -> int:
        (found,) = self.store.ask("seek", {"topic": self.topic, "micros": micros})
        return int(found["offset"])


class FlightStore:
    """The topics of a log daemon. Not for several threads at once. All calls raise Unavailable, NotAllowed."""

    def __init__(self, connection: DaemonConnection) -> None:
        self._connection = connection
        self._client: Any = None
        self._row_bytes: dict[str, float] = {}

    def views(self, patterns: Sequence[str]) -> dict[str, TopicView]:
        """See TopicStore; one question for all of them."""
        found = {
            str(one["topic"]): RemoteTopic(self, one["topic"], one["start"], one["end"], one["bytes"])
            for one in self.ask("topics", {"topics": list(patterns)})
        }
        self._row_bytes = {name: view.size / max(view.end - view.start, 1) for name, view in found.items()}
        return dict(found)

    def waiting_since(self, topic: str, offset: int) -> int | None:
        with contextlib.suppress(ClientError):
            (found,) = self.ask("first", {"topic": topic, "offset": offset})
            return None if found["micros"] is None else int(found["micros"])
        return None

    def row_bytes(self, topic: str) -> float:
        return self._row_bytes.get(topic, 0.0)

    def gaps(self, topic: str) -> list[Gap]:
        """All gaps of a topic, sorted. Raises NoSuchTopic."""
        return [Gap.from_document(found) for found in self.ask("gaps", {"topic": topic})]

    def read(self, part: Range, schema: pa.Schema, *, wanted: str = "", fail: bool = False) -> Iterator[pa.RecordBatch]:
        """See TopicStore. What the daemon finds corrupt it makes a gap at once."""
        columns = [field.name for field in schema if field.name not in ("topic", "offset")]
        try:
            if fail:
                refuse_gaps(self.gaps(part.topic), part)
            for batch in self._rows(part, ["offset", *columns], wanted):
                yield shaped(batch, part.topic, schema)
            if fail:
                refuse_gaps(self.gaps(part.topic), part)
        except NoSuchTopic:  # it was deleted
            if fail:
                raise DataLoss(f"topic {part.topic} was deleted") from None

    def _rows(self, part: Range, columns: Sequence[str], wanted: str) -> Iterator[pa.RecordBatch]:
        """Each row once, whatever becomes of the streams."""
        patience, at = self._patience(), part.begin
        while at < part.end:
            stop = min(part.end, at + FILTERED_ROWS) if wanted else part.end
            try:
                for batch in self._stream(flight_ticket(part.topic, at, stop, wanted or None, columns)):
                    at = batch.column("offset")[-1].as_py() + 1
                    patience.reset()
                    yield batch
                at = stop
                patience.reset()
            except ClientError as error:
                self._pause(patience, error)

    def _stream(self, ticket: Any) -> Iterator[pa.RecordBatch]:
        with self._typed() as client:
            for chunk in client.do_get(ticket, call_options(self._connection.endpoint, STREAM_SECONDS)):
                if chunk.data.num_rows:
                    yield chunk.data

    def ask(self, kind: str, document: dict[str, Any]) -> list[dict[str, Any]]:
        """The answers to an action of the server. Raises NoSuchTopic, ClientError."""
        from pyarrow import flight

        action = flight.Action(kind, json.dumps(document).encode())

        def once() -> list[dict[str, Any]]:
            with self._typed() as client:
                answers = client.do_action(action, call_options(self._connection.endpoint, CALL_SECONDS))
                return [answered(answer.body.to_pybytes()) for answer in answers]

        return self._patiently(once)

    def _patiently(self, call: Callable[[], T]) -> T:
        patience = self._patience()
        while True:
            try:
                return call()
            except ClientError as error:
                self._pause(patience, error)

    def _patience(self) -> RetryBackoff:
        return RetryBackoff(self._connection.retry_for, lambda error: _LOGGER.warning("%s; it is tried again", error))

    def _pause(self, patience: RetryBackoff, error: ClientError) -> None:
        pause = patience.pause(error)
        if pause is None and isinstance(error, Unavailable):
            raise Unavailable(f"{error}; it was tried for {self._connection.retry_for:g} s") from None
        if pause is None:
            raise error from None
        self.close()  # a connection that broke may go on failing
        time.sleep(pause)

    @contextlib.contextmanager
    def _typed(self) -> Iterator[Any]:
        """The client, and the errors of Flight as those of the log's clients."""
        from pyarrow import flight

        where = self._connection.address
        try:
            if self._client is None:
                self._client = flight_client(self._connection.endpoint)
            yield self._client
        except (flight.FlightUnavailableError, flight.FlightTimedOutError) as error:
            text = f"the log daemon's Flight server {where} does not answer ({_short(error)}); is log.flight set there?"
            raise Unavailable(text) from None
        except pa.ArrowNotImplementedError:
            raise ClientError(f"{where} is no Flight server: its address is log.flight of the log daemon") from None
        except (flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError) as error:
            raise NotAllowed(f"{where}: {_short(error)}") from None
        except (pa.ArrowException, OSError) as error:
            if _short(error).startswith(NOT_FOUND):
                raise NoSuchTopic(f"{where}: {_short(error)}") from None
            raise ClientError(f"{where}: {_short(error)}") from None

    def close(self) -> None:
        """Close the connection; the next call opens another one."""
        client, self._client = self._client, None
        if client is not None:
            client.close()


def answered(body: bytes) -> dict[str, Any]:
    """The document in an answer. Raises ClientError."""
    try:
        return parse_object(body)
    except ValueError as error:
        raise ClientError(f"this is no log daemon, or a later one: it answers with {error}") from None


def _short(error: Exception) -> str:
    """What Flight says, without what gRPC adds for its authors."""
    text = str(error.args[0] if error.args else error)
    text = text.split(" gRPC client debug context")[0]
    return (text.partition("with message: ")[2] or text).partition(". Detail: ")[0]
