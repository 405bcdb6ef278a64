"""The call server with callers that disconnect, call missing methods or send too much."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from penstock.log.commit.committer_threads import Committers
from penstock.server import servers
from penstock.server.api.entries import READ_THREADS
from penstock.server.grpc import call_threads
from penstock.server.grpc.call_server import STREAM_GRACE_S
from penstock.server.grpc.service import MAX_MESSAGE_BYTES
from penstock.server.reading.query import Query
from penstock.slogd import slogd_pb2 as pb
from penstock.testing import wait_until
from tests.server.running import Running

SERVICE = "/slogd.StructuredLog/"


@pytest.fixture
def channel(running: Running) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(running.bound.grpc, [("grpc.max_send_message_length", -1)]) as channel:
        yield channel


def append(payload: bytes = b"x", topic: str = "t") -> bytes:
    return pb.AppendRequest(topic=topic, logs=[pb.LogEntry(raw_bytes=payload)]).SerializeToString()


def code_of(call: grpc.Future) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as raised:
        call.result()
    return raised.value.code()


def test_missing_method_is_unimplemented(channel: grpc.Channel) -> None:
    for method in (SERVICE + "Nothing", "/nobody.Service/AppendLogs", "/"):
        assert code_of(channel.unary_unary(method).future(b"", timeout=20)) is grpc.StatusCode.UNIMPLEMENTED


def test_oversized_request_is_refused_and_the_server_continues(channel: grpc.Channel) -> None:
    call = channel.unary_unary(SERVICE + "AppendLogs")
    assert code_of(call.future(b"x" * (MAX_MESSAGE_BYTES + 1), timeout=60)) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert pb.AppendResponse.FromString(call(append(), timeout=20)).offsets == [0]


def test_append_of_disconnected_caller_is_stored(running: Running, channel: grpc.Channel) -> None:
    channel.unary_unary(SERVICE + "AppendLogs")(append(), timeout=20)
    topic = running.log.topic("t")
    with topic.writer.lock:  # as long as nothing can be committed
        call = channel.unary_unary(SERVICE + "AppendLogs").future(append(b"left"), timeout=20)
        wait_until(lambda: topic._scheduled)
        call.cancel()
    wait_until(lambda: topic.end == 2)
    assert pb.AppendResponse.FromString(channel.unary_unary(SERVICE + "AppendLogs")(append(), timeout=20)).offsets == [
        2
    ]


def test_stalled_request_does_not_block_others(channel: grpc.Channel) -> None:
    gate = threading.Event()

    def half() -> Iterator[bytes]:
        gate.wait(20)
        yield append()

    waiting = channel.stream_unary(SERVICE + "AppendLogs").future(half(), timeout=20)
    assert pb.AppendResponse.FromString(channel.unary_unary(SERVICE + "AppendLogs")(append(), timeout=20)).offsets
    waiting.cancel()
    gate.set()
    assert pb.AppendResponse.FromString(channel.unary_unary(SERVICE + "AppendLogs")(append(), timeout=20)).offsets == [
        1
    ]


def test_waiting_appends_become_one_batch(running: Running, channel: grpc.Channel) -> None:
    call = channel.unary_unary(SERVICE + "AppendLogs")
    call(append(), timeout=20)
    topic = running.log.topic("t")
    with topic.writer.lock:
        calls = [call.future(append(b"%d" % number), timeout=60) for number in range(10)]
        wait_until(lambda: len(topic._queue) == 10)
    offsets = sorted(
        itertools.chain.from_iterable(pb.AppendResponse.FromString(each.result()).offsets for each in calls)
    )
    assert offsets == list(range(1, 11))
    assert [stored.batch.num_rows for stored in topic.reader().read(0)] == [1, 10]


@pytest.mark.survives("log", "failing disk")
def test_slow_disk_delays_neither_other_calls_nor_topics(running: Running, channel: grpc.Channel) -> None:
    call = channel.unary_unary(SERVICE + "AppendLogs")
    for name in ("slow", "slower", "quick"):
        call(append(topic=name), timeout=20)
    slow, slower = running.log.topic("slow"), running.log.topic("slower")
    with slow.writer.lock, slower.writer.lock:
        waiting = [call.future(append(topic=name), timeout=60) for name in ("slow", "slower")]
        wait_until(lambda: slow._scheduled and slower._scheduled)
        assert pb.AppendResponse.FromString(call(append(topic="quick"), timeout=20)).offsets == [1]
        request = pb.GetLogsRequest(topic="quick").SerializeToString()
        assert (
            len(pb.GetLogsResponse.FromString(channel.unary_unary(SERVICE + "GetLogs")(request, timeout=20)).logs) == 2
        )
        assert not any(future.done() for future in waiting)
    assert [list(pb.AppendResponse.FromString(future.result()).offsets) for future in waiting] == [[1], [1]]


def test_receiving_thread_commits_and_answers(
    running: Running, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_threads, "MAX_COMMIT_S", 60.0)
    call, names = channel.unary_unary(SERVICE + "AppendLogs"), set[str]()
    call(append(), timeout=20)
    topic = running.log.topic("t")
    topic.wait_until_idle()
    topic.subscribe(lambda _: names.add(threading.current_thread().name))
    for _ in range(20):
        call(append(), timeout=20)
    assert names == {"grpc-0"}


def test_committers_take_over_after_a_slow_commit(
    running: Running, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_threads, "COMMITTERS_ONLY_S", 600.0)
    call, names = channel.unary_unary(SERVICE + "AppendLogs"), list[str]()
    call(append(), timeout=20)
    topic = running.log.topic("t")
    topic.wait_until_idle()
    topic.subscribe(lambda _: names.append(threading.current_thread().name))
    with topic.writer.lock:
        slow = call.future(append(), timeout=60)
        wait_until(lambda: bool(topic._queue))
        for _ in range(3):  # the last of these is answered by the thread that took over
            channel.unary_unary(SERVICE + "ListTopics")(b"", timeout=20)
            time.sleep(0.1)
    slow.result()
    # The thread that answered may still be in its commit, and would take the next append with it.
    topic.wait_until_idle()
    for _ in range(5):
        call(append(), timeout=20)
    assert all(name.startswith("committer-") for name in names[1:])


class Flood:
    """A queue that is never empty; its first call is an append."""

    def __init__(self, committers: Committers, finished: threading.Event) -> None:
        self._todo = [lambda: committers.schedule(lambda: bool(finished.set()))]

    def poll(self, _: float | None) -> SimpleNamespace:
        return SimpleNamespace(completion_type=None, tag=lambda _: self._todo.pop()() if self._todo else None)


def test_commit_runs_although_calls_keep_arriving() -> None:
    committers, finished = Committers(1), threading.Event()
    threads = call_threads.CallThreads(committers)
    threads.queue = Flood(committers, finished)
    threads._leader = threading.Thread(target=threads._run)
    threads._leader.start()
    assert finished.wait(20)
    threads._is_over = True
    threads._leader.join(20)
    committers.close()


def test_pages_of_disconnected_callers_are_not_read(
    running: Running, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel.unary_unary(SERVICE + "AppendLogs")(append(), timeout=20)
    gate, read = threading.Event(), list[str]()

    def get(query: Query, *_: object) -> bytes:
        read.append(query.topic)
        gate.wait(20)
        return b""

    monkeypatch.setattr(running.api.pages, "get", get)
    call, request = channel.unary_unary(SERVICE + "GetLogs"), pb.GetLogsRequest(topic="t").SerializeToString()
    busy = [call.future(request, timeout=60) for _ in range(READ_THREADS)]
    wait_until(lambda: len(read) == READ_THREADS)
    cancelled = [call.future(request, timeout=60) for _ in range(20)]
    wait_until(lambda: running.api.threads._work_queue.qsize() == 20)
    for future in cancelled:
        future.cancel()
    broken = call.future(b"\xff", timeout=20)
    assert broken.code() is grpc.StatusCode.INVALID_ARGUMENT  # by then the server knows that they left
    gate.set()
    assert [future.result() for future in busy] == [b""] * READ_THREADS
    wait_until(lambda: running.api.threads._work_queue.qsize() == 0)
    assert len(read) < READ_THREADS + 20
    answering = running.limits.rpc_connections["grpc"].answering
    wait_until(lambda: not any(list(names()) for names in answering))


def test_health_is_watched_until_the_server_stops(running: Running, channel: grpc.Channel) -> None:
    watching = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service="slogd.StructuredLog"))
    assert next(watching).status == health_pb2.HealthCheckResponse.SERVING
    stopping = threading.Thread(target=running.stop)
    stopping.start()
    assert next(watching).status == health_pb2.HealthCheckResponse.NOT_SERVING
    with pytest.raises(grpc.RpcError):
        next(watching)
    stopping.join(30)
    assert not stopping.is_alive()


@pytest.mark.timeout(120)
def test_server_stops_once_a_client_that_sent_during_the_stop_is_silent(
    running: Running, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "GRACE_S", 600)
    sends, answered = threading.Semaphore(1), threading.Semaphore(0)

    def requests() -> Iterator[bytes]:
        while sends.acquire(timeout=60):
            yield append(b"x")

    answers = channel.stream_stream(SERVICE + "AppendStream")(requests())

    def read_answers() -> None:
        with contextlib.suppress(grpc.RpcError):
            for _ in answers:
                answered.release()

    reading, stopping = threading.Thread(target=read_answers, daemon=True), threading.Thread(target=running.stop)
    reading.start()
    assert answered.acquire(timeout=20)
    stopping.start()
    # Requests arrive until after the first time that the server looks for silent streams.
    until = time.monotonic() + 2 * STREAM_GRACE_S
    while time.monotonic() < until and reading.is_alive():
        sends.release()
        answered.acquire(timeout=STREAM_GRACE_S / 2)
        time.sleep(STREAM_GRACE_S / 10)
    stopping.join(40)
    assert running.has_stopped


@pytest.mark.timeout(120)
def test_server_stops_without_waiting_for_a_client_that_does_not_read(
    running: Running, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "GRACE_S", 600)
    for _ in range(8):  # more than the windows of flow control hold
        channel.unary_unary(SERVICE + "AppendLogs")(append(b"x" * (1 << 20)), timeout=20)
    streaming = channel.unary_stream(SERVICE + "StreamLogs")
    reading = streaming(pb.GetLogsRequest(topic="t").SerializeToString())
    next(reading)
    idle = channel.stream_stream(SERVICE + "AppendStream")(iter(threading.Event().wait, None))
    running.stop()
    assert running.has_stopped
    for call in (reading, idle):
        with pytest.raises(grpc.RpcError) as raised:
            list(call)
        assert raised.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
