"""A receiver of requests on a thread of this process, and a log that can be stopped."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.config import ListenerConfig
from penstock.counts import Counts
from penstock.handover.frames.frame import decode_frame
from penstock.handover.paths import buffer_file
from penstock.ingest.requests.http import HttpReceiver
from penstock.ingest.requests.otlp_grpc import OtlpGrpcReceiver
from penstock.ingest.sockets import open_socket
from penstock.logbuffer import Subscription
from tests.ingest.ingest_life import live

TERM = 8 << 20


class Requests:
    """``log_goes_on``: whether what is written is stored; ``rows`` is what was."""

    def __init__(self, folder: Path, sock: socket.socket, listener: ListenerConfig, term_length: int = TERM) -> None:
        self.life = live(folder, listener, term_length)
        made = HttpReceiver if listener.protocol == "http" else OtlpGrpcReceiver
        self.receiver = made(listener, sock, self.life.publisher, self.life.readers, lambda: None)
        self.log_goes_on = True
        self.rows: list[dict[str, Any]] = []
        self.counts = Counts()
        self._ends = False
        self._frames = Subscription(buffer_file(folder, listener.name), self.life.position.position)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        self.receiver.take_over()
        while not self._ends:
            self.receiver.receive(0.01)
            self._store()
            self.receiver.tick()
        self.receiver.finish()
        self._store()

    def _store(self) -> None:
        while self.log_goes_on:
            frames = self._frames.poll()
            for frame in frames:
                batch, receipt = decode_frame(frame.data)
                found = batch.to_pylist()
                self.rows += [row | {"annotations": dict(row["annotations"] or [])} for row in found]
                self.rows = [row | {"codec": row.get("codec", receipt.origin.codec)} for row in self.rows]
                self.counts.absorb(receipt.origin.counts)
            self.life.position.position = self._frames.position
            if not frames:
                return

    def end(self) -> None:
        self._ends = True
        self.thread.join(30)
        self._frames.close()
        self.life.end()


@contextlib.contextmanager
def requests_to(
    folder: Path, protocol: str, term_length: int = TERM, **settings: Any
) -> Iterator[tuple[Requests, int]]:
    """A running receiver, and its port."""
    folder.mkdir(exist_ok=True)
    handlers = [{"type": "log", "topic": "in"}]
    listener_settings = {"name": "web", "protocol": protocol, "port": 0, "handlers": handlers, **settings}
    listener = ListenerConfig.model_validate(listener_settings)
    with open_socket(listener) as sock:
        running = Requests(folder, sock, listener, term_length)
        try:
            yield running, sock.getsockname()[1]
        finally:
            running.end()
