from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from penstock.client import Log
from penstock.counts import Origin
from penstock.records import body
from penstock.server.grpc.service import MAX_MESSAGE_BYTES
from penstock.slogd import slogd_pb2 as pb
from penstock.testing import wait_until
from tests.server.running import Running
from tests.server.stub import StructuredLogStub

CALLERS, CALLS, BATCH = 64, 5, 3


@pytest.fixture
def stub(running: Running) -> Iterator[StructuredLogStub]:
    sizes = [(f"grpc.max_{way}_message_length", MAX_MESSAGE_BYTES) for way in ("receive", "send")]
    with grpc.insecure_channel(running.bound.grpc, sizes) as channel:
        yield StructuredLogStub(channel)


def request(topic: str, *payloads: bytes) -> pb.AppendRequest:
    return pb.AppendRequest(topic=topic, logs=[pb.LogEntry(raw_bytes=payload) for payload in payloads])


def code_of(call: object) -> str:
    with pytest.raises(grpc.RpcError) as raised:
        call()  # type: ignore[operator]
    return str(raised.value.code().name)


def test_concurrent_callers_of_one_topic_leave_no_hole(stub: StructuredLogStub) -> None:
    start = threading.Barrier(CALLERS)

    def call(caller: int) -> list[list[int]]:
        start.wait()
        payloads = [f"{caller}".encode()] * BATCH
        return [list(stub.AppendLogs(request("busy", *payloads), timeout=60).offsets) for _ in range(CALLS)]

    with ThreadPoolExecutor(CALLERS) as pool:
        answers = list(pool.map(call, range(CALLERS)))
    total = CALLERS * CALLS * BATCH
    assert sorted(offset for caller in answers for offsets in caller for offset in offsets) == list(range(total))
    assert all(offsets == list(range(offsets[0], offsets[0] + BATCH)) for caller in answers for offsets in caller)

    logs = stub.GetLogs(pb.GetLogsRequest(topic="busy", max_messages=total + 1), timeout=60).logs
    assert [entry.offset for entry in logs] == list(range(total))
    stamps = [entry.timestamp.ToMicroseconds() for entry in logs]
    assert all(earlier < later for earlier, later in pairwise(stamps))
    owners = {offset: caller for caller, calls in enumerate(answers) for offsets in calls for offset in offsets}
    assert all(int(entry.raw_bytes) == owners[entry.offset] for entry in logs)


def test_entry_that_is_larger_than_a_request_is_read(running: Running) -> None:
    """confluentinc/kafka-rest#608: a reader never got past a message above the limit of an answer."""
    topic = running.log.topic("large", create=True)
    running.log.configure("large", {"message_size_limit": 2 * MAX_MESSAGE_BYTES})
    sizes = [1, MAX_MESSAGE_BYTES + 1, 2]
    for size in sizes:
        topic.append(body([bytes(size)]), Origin("otlp", 0, 0, 0)).result(60)
    with Log(running.bound.grpc) as log:
        assert [len(payload) for payload in log.table("large")["payload"].to_pylist()] == sizes
        assert [len(entry.payload or b"") for _, entry in zip(sizes, log.follow("large", 0), strict=False)] == sizes


def test_stream_catches_up_and_follows(running: Running, stub: StructuredLogStub) -> None:
    total, seen = 200, []
    stub.AppendLogs(request("t", b"first"), timeout=20)
    call = stub.StreamLogs(pb.GetLogsRequest(topic="t", max_messages=7), timeout=60)

    def append() -> None:
        for number in range(1, total):
            stub.AppendLogs(request("t", b"%d" % number), timeout=20)

    writer = threading.Thread(target=append)
    writer.start()
    for page in call:
        assert len(page.logs) <= 7
        seen += [entry.offset for entry in page.logs]
        if len(seen) >= total:
            break
    writer.join()
    assert seen == list(range(total))
    call.cancel()
    wait_until(lambda: running.api.open_streams == 0)


def test_concurrent_streams_miss_no_wake_up(running: Running, stub: StructuredLogStub) -> None:
    stub.AppendLogs(request("t"), timeout=20)
    calls = [stub.StreamLogs(pb.GetLogsRequest(topic="t", position=2), timeout=60) for _ in range(8)]
    for call in calls:
        call.initial_metadata()
    wait_until(lambda: running.api.open_streams == len(calls))
    for number in range(30):
        stub.AppendLogs(request("t", b"x"), timeout=20)
        # Nothing else is appended until each stream has it: a lost wake-up would hang here.
        assert [[entry.offset for entry in next(call).logs] for call in calls] == [[number]] * len(calls)


def test_stream_at_latest_starts_max_messages_before_the_end(stub: StructuredLogStub) -> None:
    stub.AppendLogs(request("t", *[b"x"] * 10), timeout=20)
    call = stub.StreamLogs(pb.GetLogsRequest(topic="t", position=2, max_messages=3), timeout=20)
    assert [entry.offset for entry in next(call).logs] == [7, 8, 9]


def test_stream_from_a_future_offset_or_time_waits(stub: StructuredLogStub) -> None:
    stub.AppendLogs(request("t", b"0"), timeout=20)
    ahead = stub.StreamLogs(pb.GetLogsRequest(topic="t", offset=2), timeout=20)
    later = pb.GetLogsRequest(topic="t")
    later.timestamp.FromJsonString("2100-01-01T00:00:00Z")
    never = stub.StreamLogs(later, timeout=0.5)
    stub.AppendLogs(request("t", b"1", b"2"), timeout=20)
    assert [entry.offset for entry in next(ahead).logs] == [2]
    assert code_of(lambda: next(never)) == "DEADLINE_EXCEEDED"


def test_errors_have_their_grpc_codes(stub: StructuredLogStub) -> None:
    negative = pb.GetLogsRequest(topic="t", max_messages=-1)
    stub.AppendLogs(request("t"), timeout=20)
    assert code_of(lambda: stub.AppendLogs(request("_receipts", b"x"))) == "PERMISSION_DENIED"
    assert code_of(lambda: stub.AppendLogs(request("NO", b"x"))) == "INVALID_ARGUMENT"
    assert code_of(lambda: stub.GetLogs(negative)) == "INVALID_ARGUMENT"
    assert code_of(lambda: next(stub.StreamLogs(negative))) == "INVALID_ARGUMENT"
    assert code_of(lambda: stub.GetLogs(pb.GetLogsRequest(topic="nope"))) == "NOT_FOUND"
    assert code_of(lambda: next(stub.StreamLogs(pb.GetLogsRequest(topic="nope")))) == "NOT_FOUND"
    (answer,) = stub.AppendStream(iter([request("t", b"x" * (17 << 20))]), timeout=60)
    assert grpc.StatusCode.INVALID_ARGUMENT.value[0] == answer.error.code


def test_request_over_4_mib_gets_slogds_error(stub: StructuredLogStub) -> None:
    large = request("t", b"x" * (4 << 20))
    with pytest.raises(grpc.RpcError) as raised:
        stub.AppendLogs(large, timeout=60)
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert raised.value.details() == f"grpc: received message larger than max ({large.ByteSize()} vs. 4194304)"


def test_large_message_passes_through_a_stream(stub: StructuredLogStub) -> None:
    payload = bytes(range(256)) * (8 << 12)
    list(stub.AppendStream(iter([request("t", payload, b"small")]), timeout=60))
    first, second = stub.GetLogs(pb.GetLogsRequest(topic="t", max_messages=2), timeout=60).logs
    assert (first.raw_bytes, second.raw_bytes) == (payload, b"small")


def test_page_without_max_messages_fits_the_default_client_limit(running: Running, stub: StructuredLogStub) -> None:
    for _ in range(6):
        stub.AppendLogs(request("t", *[b"x" * 1000] * 1000), timeout=60)
    list(stub.AppendStream(iter([request("t", *[b"x" * 100_000] * 100)]), timeout=60))
    with grpc.insecure_channel(running.bound.grpc) as channel:
        plain, offset = StructuredLogStub(channel), 0
        while logs := plain.GetLogs(pb.GetLogsRequest(topic="t", offset=offset), timeout=20).logs:
            assert [entry.offset for entry in logs] == list(range(offset, offset + len(logs)))
            offset += len(logs)
    assert offset == 6100
    assert len(stub.GetLogs(pb.GetLogsRequest(topic="t", max_messages=6100), timeout=20).logs) == 6100


def test_append_stream_is_answered_in_order(stub: StructuredLogStub) -> None:
    requests = [request("t", *[b"%d" % number] * (1 + number % 3)) for number in range(300)]
    requests[7] = request("NO", b"x")
    answers = list(stub.AppendStream(iter(requests), timeout=60))
    assert (answers[7].error.code, list(answers[7].offsets)) == (3, [])
    sizes = [len(answer.offsets) for answer in answers]
    assert sizes == [0 if number == 7 else 1 + number % 3 for number in range(300)]
    assert [offset for answer in answers for offset in answer.offsets] == list(range(sum(sizes)))


def test_abandoned_append_stream_does_no_harm(stub: StructuredLogStub) -> None:
    more = threading.Event()

    def requests() -> Iterator[pb.AppendRequest]:
        yield request("t", b"0")
        more.wait(20)

    call = stub.AppendStream(requests(), timeout=20)
    assert list(next(call).offsets) == [0]
    call.cancel()
    more.set()
    assert list(stub.AppendLogs(request("t", b"1"), timeout=20).offsets) == [1]


def test_answer_names_its_durability(running: Running, stub: StructuredLogStub) -> None:
    assert stub.AppendLogs(request("t", b"x"), timeout=20).durability == pb.SYNCED
    assert running.request("POST", "/topic/t/logs", {"logs": [{}]})[1]["penstock-durability"] == "synced"


def test_invalid_bytes_are_refused(running: Running) -> None:
    with grpc.insecure_channel(running.bound.grpc) as channel:
        for method in ("AppendLogs", "GetLogs"):
            call = channel.unary_unary(f"/slogd.StructuredLog/{method}")
            assert code_of(lambda call=call: call(b"\x0a\xff", timeout=20)) == "INVALID_ARGUMENT"


def test_health_and_reflection_are_served(running: Running) -> None:
    with grpc.insecure_channel(running.bound.grpc) as channel:
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=20)
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        requests = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol="slogd.StructuredLog"),
        ]
        reflected = reflection_pb2_grpc.ServerReflectionStub(channel)
        services, file = reflected.ServerReflectionInfo(iter(requests), timeout=20)
    assert "slogd.StructuredLog" in [service.name for service in services.list_services_response.service]
    assert b"AppendRequest" in file.file_descriptor_response.file_descriptor_proto[0]


def test_entries_are_counted_as_accepted_by_source(running: Running, stub: StructuredLogStub) -> None:
    stub.AppendLogs(request("t", b"x", b"y"), timeout=20)
    running.request("POST", "/topic/t/logs", {"logs": [{}]})
    stored = list(running.log.topic("t").reader().read(0))
    assert [(s.origin.source, dict(s.origin.counts)) for s in stored] == [
        ("grpc", {"accepted": 2}),
        ("http", {"accepted": 1}),
    ]
    assert all(s.origin.bucket % 60 == 0 and s.origin.bucket <= s.origin.first // 10**6 for s in stored)
