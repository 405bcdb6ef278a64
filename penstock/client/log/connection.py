"""What the log's clients share: how a connection is made, when a call is made again, who appends."""

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
"""Bytes of a request or an answer, as the server has it."""
TIMEOUT = 30.0
"""Seconds that a call may take."""
RETRY_FOR = 30.0
"""Seconds for which a call is tried again while the server is away."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
TELL_AFTER = 1.0
OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    # A server that comes back is found within a second; gRPC's own pauses grow to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
]
Metadata = tuple[tuple[str, str], ...]
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the server is and what is shown to it."""

    address: str
    token: str | None
    tls: Tls | None
    flight: str | None = None

    @property
    def metadata(self) -> Metadata:
        """Of each call."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()

    @property
    def pem(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Whom to trust, certificate and key to show. Raises OSError for a file that cannot be read."""
        tls = self.tls or Tls()
        return _pem(tls.ca), _pem(tls.cert), _pem(tls.key)

    def open(self, secure: Callable[..., C], insecure: Callable[..., C]) -> C:
        """Returns a channel made by one of gRPC's functions. Raises OSError for a file that cannot be read."""
        if self.tls is None:
            return insecure(self.address, OPTIONS)
        ca, cert, key = self.pem
        named = [("grpc.ssl_target_name_override", self.tls.name)] if self.tls.name else []
        return secure(self.address, grpc.ssl_channel_credentials(ca, key, cert), [*OPTIONS, *named])


def _pem(given: bytes | Path | None) -> bytes | None:
    return given.read_bytes() if isinstance(given, Path) else given


class RetryBackoff:
    """Whether to try again, and after which pause: for ``seconds`` from the first failure in a row on.

    ``tell`` hears of a failure that lasts for a second, once.
    """

    def __init__(self, seconds: float, tell: Callable[[ClientError], None] | None = None) -> None:
        self._seconds, self._tell = seconds, tell
        self.reset()

    def reset(self) -> None:
        """Begin anew: a call succeeded."""
        self._since: float | None = None
        self._told = False
        self._pause = FIRST_PAUSE

    def pause(self, error: ClientError) -> float | None:
        """Returns the seconds to wait before the next try, or None when there is none."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        left = self._since + self._seconds - now
        if not isinstance(error, Unavailable) or left <= 0:
            return None
        if self._tell is not None and not self._told and now - self._since >= TELL_AFTER:
            self._told = True
            self._tell(error)
        pause = self._pause * random.uniform(0.5, 1.0)  # clients must not come back all at the same time
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return min(pause, left)


@dataclass(slots=True)
class ProducerId:
    """A producer's id, and the number of its next request."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    sequence: int = 1


class ProducerPool:
    """Producers of each topic, so that a request that is sent again is not stored again.

    Numbers of one producer must arrive in their order: so each request that is under way has a producer of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: dict[str, list[ProducerId]] = {}

    def take(self, topic: str) -> ProducerId:
        """Returns a producer for one caller, who gives it back once it is known what became of its requests."""
        with self._lock:
            free = self._free.get(topic)
            return free.pop() if free else ProducerId()

    def give(self, topic: str, lane: ProducerId) -> None:
        """Put back a producer whose next number is also the next one that the server expects."""
        with self._lock:
            self._free.setdefault(topic, []).append(lane)

    def forget(self, topic: str) -> None:
        """Drop the producers of a topic: the server does not know them any more."""
        with self._lock:
            self._free.pop(topic, None)

    @contextlib.contextmanager
    def producer(self, topic: str) -> Iterator[tuple[str, int]]:
        """Yields the id and the number for one request."""
        lane = self.take(topic)
        try:
            yield lane.id, lane.sequence
        except (Refused, Exhausted, NoSuchTopic):
            self.give(topic, lane)  # nothing was stored
            raise
        lane.sequence += 1
        self.give(topic, lane)
