"""A handler for Python's ``logging``: records become events, sent by a thread of its own.

An event is one JSON object in the format of plog's README, "Event logging": ``type``, ``uuid``, ``host``,
``timestamp`` (milliseconds since the epoch) and ``data``.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import socket
import threading
import time
import traceback
import uuid
from collections import deque
from typing import Literal

from penstock.client.sender import LedgerReport, TcpSender, UdpSender
from penstock.counts import Counts

GROUP = 500
"""Limit of events per group, which one ``send_many`` sends."""
FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0
"""Seconds before a reconnect: doubled after each failure, up to the longest."""
MAX_BITS = 2048
"""Limit of a number, whose 617 digits Python writes at any ``sys.set_int_max_str_digits``."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class PenstockHandler(logging.Handler):
    """Sends each record as an event to a listener. It never blocks the program that logs.

    Records wait in a queue of ``capacity``; when it is full, new records are dropped. ``counts`` reports how many were
    ``queued``, ``sent``, ``dropped`` (queue full) and ``failed`` (could not be formatted, or sent). ``event_type`` is
    the events' type; the ``extra`` fields of a record go into ``data``, as ``extra_level`` if the record has a
    ``level`` of its own there. ``flush`` and ``close``, which ``logging`` calls at the end of the program, wait up to
    ``patience`` seconds for the queue to empty.
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
        """Create the queue and the thread state of this process."""
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
        # A forked child has neither its parent's thread nor its records: it starts with a queue of its own.
        if os.getpid() != self._process:
            self._begin()
        try:
            event = self._event(record)
        except Exception:  # noqa: BLE001 - as logging handlers do: handleError has it
            self._count_failed(1)
            self.handleError(record)
            return
        with self._changed:
            if self._closing or len(self._queue) >= self._capacity:
                self.counts["dropped"] += 1
                return
            self._queue.append(event)
            self.counts["queued"] += 1
            if self._thread is None:
                # Threads: started by the first record, because a thread does not survive the fork of a server that
                # configures logging early. A daemon thread does not keep the program alive; `close` waits for it.
                self._thread = threading.Thread(target=self._run, name="penstock-logging", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until every queued event is sent, for ``patience`` seconds at most."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queue and not self._under_way, self._patience)

    def close(self) -> None:
        """Flush, count the unsent events as failed, end the thread."""
        self.flush()
        with self._changed:
            self._closing = self._aborted = True
            # Records that `flush` did not wait for are counted here; the group under way is counted by the thread.
            self.counts["failed"] += len(self._queue)
            self._queue.clear()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(self._patience)
        super().close()

    def _event(self, record: logging.LogRecord) -> dict[str, object]:
        """Return the record's event. Encoding it as JSON is left to the sending thread."""
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
        extra = {name: value for name, value in vars(record).items() if name not in _OWN}
        for name, value in extra.items():
            # A field of the program never replaces one of the record, such as its level.
            data[f"extra_{name}" if name in data else str(name)] = _plain(value)
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
                # Order: set before the lock is released, so that `flush` does not see an empty queue while a group is
                # being sent.
                self._under_way = len(group)
                if not group:
                    break
            # Encoded here: the program that logs pays only for the event's dictionary.
            self._send([line for event in group if (line := self._encode(event)) is not None])
            with self._changed:
                self._under_way = 0
                self._changed.notify_all()
        self._disconnect()

    def _send(self, lines: list[bytes]) -> None:
        """Send a group, reconnecting as needed; the group fails when the handler is closed first."""
        while not self._aborted:
            try:
                sender = self._sender = self._sender or self._connect()
                sender.send_many(lines)
                self.counts["sent"] += len(lines)
                self._delay = FIRST_DELAY
                return
            except ValueError:
                # An event is larger than a message can be, so a retry cannot help.
                break
            except OSError:
                self._disconnect()
                self._wait()
        self._count_failed(len(lines))

    def _count_failed(self, count: int) -> None:
        with self._changed:
            self.counts["failed"] += count

    def _encode(self, event: dict[str, object]) -> bytes | None:
        """Return an event as JSON; count it as failed if an object of the program raises an error."""
        try:
            return _encode(event)
        except Exception:  # noqa: BLE001 - the thread must not end: it sends the events of all other records
            self._count_failed(1)
            return None

    def _wait(self) -> None:
        until = time.monotonic() + self._delay
        self._delay = min(2 * self._delay, LONGEST_DELAY)
        with self._changed:
            # Waits on the condition and not with sleep, so that `close` ends the wait.
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
                # The report did not reach the ledger. The balance then shows the sent total as unknown.
                return


def _encode(event: dict[str, object]) -> bytes:
    text = json.dumps(event, separators=(",", ":"), default=str, ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Names of files that are not UTF-8 have half a surrogate pair for a byte, with which no JSON is valid: it
        # becomes the text \\udcff, as Python itself shows it.
        return _SURROGATE.sub(lambda half: f"\\\\u{ord(half[0]):x}", text).encode()


def _plain(field: object) -> object:
    is_json = isinstance(field, str | bool | None) or (isinstance(field, float) and math.isfinite(field))
    is_json |= isinstance(field, int) and field.bit_length() <= MAX_BITS
    return field if is_json else repr(field)
