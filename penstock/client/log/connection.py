"""Shared state of the log's clients: the connection, the retry schedule, and the producers that number appends."""

from __future__ import annotations

import contextlib
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import grpc

from penstock.client.log.types import ClientError, Exhausted, NoSuchTopic, Refused, Tls, Unavailable

SERVICE = "/slogd.StructuredLog/"
MAX_MESSAGE = 64 << 20
"""Limit in bytes of a request, the same as the server's."""
TIMEOUT = 30.0
"""Default time-out of a call in seconds."""
RETRY_FOR = 30.0
"""Default for how many seconds a call is retried while the server is away."""
SLOWEST_UPLOAD = 8 << 10
"""Bytes a second that the time-out of a call leaves for its request on a watched connection: 64 kbit/s."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
TELL_AFTER = 1.0
OPTIONS: list[tuple[str, Any]] = [
    # A page is bounded by the server, but for a single entry, which may be larger than any limit of messages.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    # A restarted server is reached within a second; gRPC's default backoff grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # gRPC sends even calls to loopback to the proxy that http_proxy of the environment names, with their token.
    ("grpc.enable_http_proxy", 0),
]
WATCHED: list[tuple[str, Any]] = [
    # After a partition TCP's own retransmissions may be minutes apart, so a new connection is faster. Limit: two pings
    # during a call of the default time-out, because servers with gRPC's default limit end a connection at the third.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
]
"""Options of a connection that is given up when the other side does not acknowledge anything for 5 to 15 seconds."""
Metadata = tuple[tuple[str, str], ...]
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The server's address and the credentials for it."""

    address: str
    token: str | None
    tls: Tls | None
    flight: str | None = None
    is_watched: bool = False
    """Whether a connection that carries nothing during a call is given up (``WATCHED``)."""

    def upload_time(self, size: int) -> float:
        """Return the seconds that a request of ``size`` bytes may take besides the time-out of its call.

        Without it, a large request over a slow link would end at its time-out and be repeated forever. A connection
        that is not watched has none: there the time-out is what notices a partition.
        """
        return size / SLOWEST_UPLOAD if self.is_watched else 0.0

    @property
    def metadata(self) -> Metadata:
        """The metadata of each call."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()

    @property
    def pem(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Trusted authorities, own certificate and own key as PEM. Raises OSError for an unreadable file."""
        tls = self.tls or Tls()
        return _pem(tls.ca), _pem(tls.cert), _pem(tls.key)

    def open(self, secure: Callable[..., C], insecure: Callable[..., C]) -> C:
        """Return a channel, created by one of gRPC's functions. Raises OSError for an unreadable file."""
        options = [*OPTIONS, *(WATCHED if self.is_watched else ())]
        if self.tls is None:
            return insecure(self.address, options)
        ca, cert, key = self.pem
        # For a server that is reached by an address that its certificate does not name.
        named = [("grpc.ssl_target_name_override", self.tls.name)] if self.tls.name else []
        return secure(self.address, grpc.ssl_channel_credentials(ca, key, cert), [*options, *named])


def _pem(source: bytes | Path | None) -> bytes | None:
    return source.read_bytes() if isinstance(source, Path) else source


class RetryBackoff:
    """The retry schedule of one call: until ``seconds`` after the first failure in a row.

    ``tell`` is called once for a failure that lasts a second.
    """

    def __init__(self, seconds: float, tell: Callable[[ClientError], None] | None = None) -> None:
        self._seconds, self._tell = seconds, tell
        self.reset()

    def reset(self) -> None:
        """Start over after a successful call."""
        self._since: float | None = None
        self._reported = False
        self._pause = FIRST_PAUSE

    def pause(self, error: ClientError) -> float | None:
        """Return the seconds to wait before the next attempt, or None to give up."""
        now = time.monotonic()
        # The time counts from the first failure in a row and not from the call: a long stream survives many restarts.
        self._since = now if self._since is None else self._since
        remaining_s = self._since + self._seconds - now
        if not isinstance(error, Unavailable) or remaining_s <= 0:
            return None
        if self._tell is not None and not self._reported and now - self._since >= TELL_AFTER:
            self._reported = True
            self._tell(error)
        # The jitter spreads the reconnects of many clients after a restart of the server.
        pause = self._pause * random.uniform(0.5, 1.0)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return min(pause, remaining_s)


@dataclass(slots=True)
class ProducerId:
    """A producer's id, and the sequence number of its next request."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    sequence: int = 1


class ProducerPool:
    """Idle producers by topic; a producer's numbers make a repeated request harmless. Thread-safe.

    Invariant: the server expects the numbers of a producer in order, so each request in flight has a producer of its
    own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: dict[str, list[ProducerId]] = {}

    def acquire(self, topic: str) -> ProducerId:
        """Return a producer for one caller, who gives it back once the outcome of its requests is certain."""
        with self._lock:
            free = self._free.get(topic)
            return free.pop() if free else ProducerId()

    def release(self, topic: str, lane: ProducerId) -> None:
        """Put back a producer whose next number is the one that the server expects."""
        with self._lock:
            self._free.setdefault(topic, []).append(lane)

    def forget(self, topic: str) -> None:
        """Drop the producers of a topic, because the server no longer knows them."""
        with self._lock:
            self._free.pop(topic, None)

    @contextlib.contextmanager
    def producer(self, topic: str) -> Iterator[tuple[str, int]]:
        """Yield the id and the number for one request.

        A producer whose request ended in doubt (Unavailable) is not reused: its next number is not certain.
        """
        lane = self.acquire(topic)
        try:
            yield lane.id, lane.sequence
        except (Refused, Exhausted, NoSuchTopic):
            # Nothing was stored, so the server still expects this number.
            self.release(topic, lane)
            raise
        lane.sequence += 1
        self.release(topic, lane)
