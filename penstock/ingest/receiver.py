"""Receiver process of one listener: forked, or ``python -m penstock.ingest.receiver`` with its task on standard
input.

It reads, decodes and writes each batch with its counts once into its log buffer. Crash: socket and slot memory belong
to the supervisor, so killing a receiver loses nothing that the kernel or the receiver held.
"""

from __future__ import annotations

from penstock.process.tuning import freeze_loaded_objects, tune

tune("receiver")  # first, see penstock.process.tuning

import contextlib
import json
import logging
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from penstock.config import BufferConfig, ListenerConfig
from penstock.errors import PenstockError
from penstock.files.disk_space import is_disk_full
from penstock.handover.buffer import HandlerPosition, open_buffer, parameters_of
from penstock.handover.heartbeat import Heartbeat
from penstock.handover.paths import buffer_file, senders_file, slots_file, state_file
from penstock.handover.state_page import CAPACITY, STATISTICS, TEXTS, StatePage
from penstock.handover.writer import FrameWriter, GaveUp
from penstock.ingest.handler_statistics import statistics_reader
from penstock.ingest.local_sockets import request_credentials
from penstock.ingest.loss_reports import LossReports, oversize_text
from penstock.ingest.plog_commands import Commands
from penstock.ingest.slots import Slots
from penstock.ingest.sockets import granted_buffer
from penstock.ingest.tcp import TcpReceiver
from penstock.ingest.udp import Decoder, UdpReceiver
from penstock.process.kernel import die_with_parent
from penstock.process.reporting import configure, starting
from penstock.wire.codecs import codec_of

TICK_INTERVAL_S = 0.5
"""Interval of statistics, counts by sender and timeouts."""
STOP_PATIENCE_S = 4.0
"""Limit: time that a stopping receiver waits for room in its log buffer."""
_LOGGER = logging.getLogger(__name__)


class NoRoom(PenstockError):
    """The disk has no room for the files of a listener."""


def make_decoder(listener: ListenerConfig) -> Any:
    """Return the decoder of a listener's codec; ``raw`` for requests, whose protocol decodes them."""
    return codec_of("raw" if listener.has_responses else listener.codec).decoder(listener)


class Io(Protocol):
    """Interface of the part that takes messages from a listener's socket."""

    def take_over(self) -> None: ...

    def receive(self, timeout: float) -> None: ...

    def tick(self) -> None: ...

    def finish(self) -> None: ...


class Receiver:
    """Loop, statistics and shutdown of one listener's receiver. One thread, except for servers of requests."""

    def __init__(self, task: dict[str, Any]) -> None:
        listener = ListenerConfig.model_validate(task["listener"])
        buffer = BufferConfig.model_validate(task["buffer"])
        folder = Path(task["folder"])
        self._wakes: list[int] = task["wakes"]
        self._decoder = make_decoder(listener)
        self._sock = socket.socket(fileno=int(task["socket"]))
        self._sock.setblocking(False)
        self._commands = Commands(listener, self._statistics, statistics_reader(folder, listener))
        publication, readers = open_buffer(folder, listener, buffer.term_length)
        self._page = StatePage(state_file(folder, listener.name), claim=True)
        # The claim makes the heartbeat of the former process look like that of one that is stopped.
        self._page.write(STATISTICS, {**(self._page.read(STATISTICS) or {}), **Heartbeat().beat()})
        limits = {"max_line": listener.max_line, "defrag.max_size": listener.defrag.max_size}
        self._losses = LossReports(limits=limits, oversize=oversize_text(listener))
        self._readers = readers
        self._publisher = FrameWriter(listener.name, listener.codec, publication, readers, self._page, self._losses.add)
        if listener.senders != "off":
            self._publisher.count_senders(senders_file(folder, listener.name))
        self._heartbeat, self._last_beat_s = Heartbeat(), 0.0
        self._last_statistics: dict[str, Any] = {}
        self._publisher.on_wait = self._beat_while_waiting
        # Order: last. Senders may connect once it exists, and nothing that comes after it may fail.
        self._io: Io = self._make_request_receiver(listener, readers) or self._make_message_receiver(
            listener, folder, buffer
        )
        self._running = True

    def _make_request_receiver(self, listener: ListenerConfig, readers: Sequence[HandlerPosition]) -> Io | None:
        # Imported here: receivers without a server stay smaller by its libraries.
        if listener.protocol == "http":
            from penstock.ingest.requests.http import HttpReceiver

            return HttpReceiver(listener, self._sock, self._publisher, readers, self._wake)
        if listener.protocol == "otlp_grpc":
            tune("receiver of calls")  # before anything imports grpc
            from penstock.ingest.requests.otlp_grpc import OtlpGrpcReceiver

            return OtlpGrpcReceiver(listener, self._sock, self._publisher, readers, self._wake)
        return None

    def _make_message_receiver(
        self, listener: ListenerConfig, folder: Path, buffer: BufferConfig
    ) -> UdpReceiver | TcpReceiver:
        if listener.takes_lines:
            common = (listener, self._sock, self._publisher, self._decoder, self._commands, self._wake)
            return TcpReceiver(*common, readers=self._readers)
        if listener.is_local:
            request_credentials(self._sock)  # systemd or a predecessor may have opened it
        slots_path, published_round = slots_file(folder, listener.name), self._publisher.published[0]
        slots = Slots(slots_path, buffer.slots, published_round, is_local=listener.is_local)
        decoder: Decoder = self._decoder
        return UdpReceiver(listener, self._sock, slots, self._publisher, decoder, self._commands, self._wake)

    def run(self) -> None:
        """Run until SIGTERM."""
        signal.signal(signal.SIGTERM, self.stop)
        for _ in self.rounds():
            pass

    def rounds(self) -> Iterator[None]:
        """Take over from a predecessor, receive until ``stop``, and finish: one round in each step."""
        next_tick = time.monotonic()
        try:
            # Order: a predecessor's slots are published before new datagrams overwrite them.
            self._io.take_over()
            while self._running:
                now = time.monotonic()
                if now >= next_tick:
                    next_tick = now + TICK_INTERVAL_S
                    self._tick()
                self._io.receive(max(next_tick - now, 0))
                yield
            self._io.finish()
            self._io.tick()
        except GaveUp as error:
            _LOGGER.error("receiver: %s; stopped with unpublished messages (datagrams stay in the slots)", error)
        self._publish_statistics()
        self._losses.report()
        if self._publisher.senders:
            self._publisher.senders.tick()

    def _tick(self) -> None:
        self._io.tick()
        self._publish_statistics()
        self._losses.report()
        if self._publisher.senders:
            self._publisher.senders.tick()
        self._publisher.release()
        pa.default_memory_pool().release_unused()  # otherwise freed batches stay allocated to this process

    def stop(self, *_: object) -> None:
        """End the rounds; the last one takes what has arrived."""
        self._running = False
        self._publisher.give_up_at = time.monotonic() + STOP_PATIENCE_S

    def _wake(self) -> None:
        for eventfd in self._wakes:
            with contextlib.suppress(BlockingIOError):  # a full counter wakes the reader as well
                os.eventfd_write(eventfd, 1)

    def _statistics(self) -> dict[str, Any]:
        """Return plog's statistics and the kernel's figures for the socket."""
        socket_statistics = {"receive_buffer": granted_buffer(self._sock), "kernel_dropped": self._publisher.drops[1]}
        return {**self._decoder.statistics.as_dict(), **socket_statistics}

    def _publish_statistics(self) -> None:
        self._last_statistics = {
            "pid": os.getpid(),
            "incarnation": self._publisher.incarnation,
            "total": self._publisher.total,
            **self._commands.stat(),
        }
        self._beat()

    def _beat(self) -> None:
        self._page.write(STATISTICS, {**self._last_statistics, **self._heartbeat.beat()})
        self._last_beat_s = time.monotonic()

    def _beat_while_waiting(self) -> None:
        # The statistics stay as they were: the total already has the messages whose frame waits for room.
        if self._last_statistics and time.monotonic() - self._last_beat_s >= TICK_INTERVAL_S:
            self._beat()


def describe_shortage(task: dict[str, Any]) -> NoRoom:
    """Return the error of a receiver whose files do not fit on the disk, with the bytes that they need."""
    listener, folder = ListenerConfig.model_validate(task["listener"]), Path(task["folder"])
    buffer, name = BufferConfig.model_validate(task["buffer"]), listener.name
    lengths = {
        buffer_file(folder, name): parameters_of(listener, buffer.term_length).file_length,
        state_file(folder, name): TEXTS * 2 * CAPACITY,
    }
    keys = "buffer.term_length"
    if listener.takes_datagrams:
        keys += " or buffer.slots"
        lengths[slots_file(folder, name)] = Slots.file_length(buffer.slots)
    missing = sum(length - (path.stat().st_blocks * 512 if path.exists() else 0) for path, length in lengths.items())
    return NoRoom(
        f"no space left on device: its log buffer needs {max(missing, 0):,} bytes more, "
        f"{shutil.disk_usage(folder).free:,} are free: free space (penstock cleanup), lower {keys}, or move data_dir "
        "to a larger disk"
    )


def main() -> None:
    """Run the task that is given on standard input."""
    die_with_parent()
    task = json.load(sys.stdin)
    configure(f"receiver {task['listener']['name']}")
    with starting(f"cannot start in {task['folder']}"):
        try:
            receiver = Receiver(task)
        except OSError as error:
            raise (describe_shortage(task) if is_disk_full(error) else error) from None
    freeze_loaded_objects()
    receiver.run()


if __name__ == "__main__":
    main()
