"""A handler for Python's ``logging``: records become events, sent by a thread of its own.

An event is one JSON object, as the seed's "Event logging" has them: ``type``, ``uuid``, ``host``, ``timestamp``
(milliseconds since the epoch) and ``data``.
"""

from __future__ import annotations

import json
import logging
import math
import os
import socket
import threading
import time
import traceback
import uuid
from collections import deque
from typing import Literal

from penstock.client.sender import TcpSender, UdpSender
from penstock.client.sent_report import LedgerReport
from penstock.counts import Counts

GROUP = 500
"""Events sent at once at most."""
FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0
"""Seconds until a connection is tried again: doubled from time to time."""
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class PenstockHandler(logging.Handler):
    """Sends each record as an event to a listener. It never blocks the program that logs.

    Records wait in a queue of ``capacity``; while it is full, further ones are dropped. ``counts`` says how many
    were ``queued``, ``sent``, ``dropped`` (no room) and ``failed`` (could not be sent). ``event_type`` is the
    events' type; what a record was given as ``extra`` goes into ``data``. ``flush`` and ``close``, which
    ``logging`` calls at the end of the program, wait ``patience`` seconds for the queue to empty.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 23456,
        *,
        protocol: Literal["udp", "tcp"] = "udp",
        event_type: str = "log",
        capacity: int = 10_000,
        patience: float = 5.0,
        report: LedgerReport | None = None,
        level: int = logging.NOTSET,
    ) -> None:
        super().__init__(level)
        self._address, self._protocol, self._report = (host, port), protocol, report
        self._type, self._capacity, self._patience = event_type, capacity, patience
        self._host = socket.gethostname()
        self._begin()

    def _begin(self) -> None:
        """A queue and a thread of this process's own: a child has neither its parent's thread nor its records."""
        self.counts = Counts()
        self._process = os.getpid()
        self._queue: deque[dict[str, object]] = deque()
        self._changed = threading.Condition()
        self._under_way = 0
        self._closing = self._aborted = False
        self._delay = FIRST_DELAY
        self._sender: UdpSender | TcpSender | None = None
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the record's event, or drop it."""
        try:
            event = self._event(record)
        except Exception:  # noqa: BLE001 - as logging handlers do: handleError has it
            self.handleError(record)
            return
        if os.getpid() != self._process:
            self._begin()
        with self._changed:
            if self._closing or len(self._queue) >= self._capacity:
                self.counts["dropped"] += 1
                return
            self._queue.append(event)
            self.counts["queued"] += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="penstock-logging", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until all that is queued was sent, for ``patience`` seconds at most."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queue and not self._under_way, self._patience)

    def close(self) -> None:
        """Flush, give up what could not be sent, end the thread."""
        self.flush()
        with self._changed:
            self._closing = self._aborted = True
            self.counts["failed"] += len(self._queue)
            self._queue.clear()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(self._patience)
        super().close()

    def _event(self, record: logging.LogRecord) -> dict[str, object]:
        """The record's event; what belongs to the moment is read now, the JSON is made by the thread."""
        data: dict[str, object] = {
            "message": record.getMessage(),
            "level": record.levelname,
            "logger": record.name,
            "file": record.pathname,
            "line": record.lineno,
            "function": record.funcName,
            "process": record.process,
            "thread": record.threadName,
        }
        if record.exc_info and record.exc_info[0] is not None:
            kind, error, trace = record.exc_info
            text = "".join(traceback.format_exception(kind, error, trace))
            data["exception"] = {"type": kind.__qualname__, "message": str(error), "traceback": text}
        if record.stack_info:
            data["stack"] = record.stack_info
        data |= {name: _plain(value) for name, value in vars(record).items() if name not in _OWN}
        return {
            "type": self._type,
            "uuid": str(uuid.uuid4()),
            "host": self._host,
            "timestamp": int(record.created * 1000),
            "data": data,
        }

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closing)
                group = [self._queue.popleft() for _ in range(min(len(self._queue), GROUP))]
                self._under_way = len(group)
                if not group:
                    break
            self._send([json.dumps(event, separators=(",", ":"), default=str).encode() for event in group])
            with self._changed:
                self._under_way = 0
                self._changed.notify_all()
        self._disconnect()

    def _send(self, lines: list[bytes]) -> None:
        """Send a group, with a new connection where the old one is gone; it fails when the program ends first."""
        while not self._aborted:
            try:
                sender = self._sender = self._sender or self._connect()
                sender.send_many(lines)
                self.counts["sent"] += len(lines)
                self._delay = FIRST_DELAY
                return
            except ValueError:  # larger than a message can be
                break
            except OSError:
                self._disconnect()
                self._wait()
        self.counts["failed"] += len(lines)

    def _wait(self) -> None:
        until = time.monotonic() + self._delay
        self._delay = min(2 * self._delay, LONGEST_DELAY)
        with self._changed:
            self._changed.wait_for(lambda: self._aborted, max(until - time.monotonic(), 0))

    def _connect(self) -> UdpSender | TcpSender:
        if self._protocol == "tcp":
            return TcpSender(*self._address, report=self._report)
        return UdpSender(*self._address, report=self._report)

    def _disconnect(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            try:
                sender.close()
            except OSError:
                return  # the ledger was not told: the balance says that it does not know what was sent


def _plain(value: object) -> object:
    is_json = isinstance(value, str | int | bool | None) or (isinstance(value, float) and math.isfinite(value))
    return value if is_json else repr(value)
