"""Administration by gRPC and by HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest
from google.protobuf.duration_pb2 import Duration

from penstock.counts import Origin
from penstock.log import Log
from penstock.records import body
from penstock.server.api import entries
from penstock.server.api.administration import AdminApi
from penstock.server.auth.permitted_topics import PermittedTopics
from penstock.server.auth.rights import ANONYMOUS
from penstock.slogd import slogd_pb2 as pb
from tests.server.running import Running
from tests.server.stub import StructuredLogStub


@pytest.fixture
def stub(running: Running) -> Iterator[StructuredLogStub]:
    with grpc.insecure_channel(running.bound.grpc) as channel:
        yield StructuredLogStub(channel)


def append(stub: StructuredLogStub, topic: str, *payloads: bytes, **fields: object) -> pb.AppendResponse:
    logs = [pb.LogEntry(raw_bytes=payload) for payload in payloads]
    return stub.AppendLogs(pb.AppendRequest(topic=topic, logs=logs, **fields), timeout=20)


def payloads(stub: StructuredLogStub, topic: str) -> list[bytes]:
    return [entry.raw_bytes for entry in stub.GetLogs(pb.GetLogsRequest(topic=topic), timeout=20).logs]


def code_of(call: object) -> str:
    with pytest.raises(grpc.RpcError) as raised:
        call()  # type: ignore[operator]
    return str(raised.value.code().name)


def test_topic_is_created_configured_and_deleted(stub: StructuredLogStub) -> None:
    settings = pb.TopicSettings(message_size_limit=10, durability="written", readers=["*"], rotate_after=60)
    created = stub.CreateTopic(pb.CreateTopicRequest(topic="t", settings=settings), timeout=20)
    assert (created.settings.message_size_limit, created.settings.segment_size_limit) == (10, 16 << 20)
    assert append(stub, "t", b"0123456789").durability == pb.WRITTEN
    assert code_of(lambda: append(stub, "t", b"x" * 11)) == "INVALID_ARGUMENT"
    wider = pb.TopicSettings(message_size_limit=11)
    changed = stub.ConfigureTopic(pb.ConfigureTopicRequest(topic="t", settings=wider), timeout=20)
    assert (changed.settings.message_size_limit, changed.settings.durability) == (11, "written")
    assert list(append(stub, "t", b"x" * 11).offsets) == [1]
    stub.DeleteTopic(pb.DeleteTopicRequest(topic="t"), timeout=20)
    assert code_of(lambda: payloads(stub, "t")) == "NOT_FOUND"
    assert list(append(stub, "t", b"again").offsets) == [2]


def test_changes_of_topics_are_recorded_with_caller_and_origin(running: Running, stub: StructuredLogStub) -> None:
    stub.CreateTopic(pb.CreateTopicRequest(topic="t"), timeout=20)
    stub.ConfigureTopic(pb.ConfigureTopicRequest(topic="t"), timeout=20)
    stub.DeleteTopic(pb.DeleteTopicRequest(topic="t"), timeout=20)
    assert code_of(lambda: stub.DeleteTopic(pb.DeleteTopicRequest(topic="t"), timeout=20)) == "NOT_FOUND"
    for method, status in (("PUT", 201), ("PATCH", 200), ("DELETE", 200), ("DELETE", 404)):
        assert httpx.request(method, f"http://{running.bound.http}/topics/u", json={}).status_code == status
    changes = [*reversed(running.changes.newest())]
    verbs = ("create", "configure", "delete")
    assert [change["what"] for change in changes] == [f"{verb} topic {name}" for name in "tu" for verb in verbs]
    assert {change["who"] for change in changes} == {"somebody"}
    assert {change["from"] for change in changes} == {"127.0.0.1"}


def test_removed_cursors_compaction_and_cleanup_are_recorded(running: Running, stub: StructuredLogStub) -> None:
    append(stub, "t", b"x")
    stub.CommitCursor(pb.CommitCursorRequest(topic="t", name="c", offset=1), timeout=20)
    stub.RemoveCursor(pb.RemoveCursorRequest(topic="t", name="c"), timeout=20)
    stub.CompactTopic(pb.CompactTopicRequest(topic="t"), timeout=20)
    stub.Cleanup(pb.CleanupRequest(), timeout=20)
    for method, path in (("DELETE", "topic/t/cursors/c"), ("POST", "topic/t/compact"), ("POST", "cleanup")):
        assert httpx.request(method, f"http://{running.bound.http}/{path}").is_success
    words = ["forget cursor c of topic t", "compact topic t", "drop what retention allows"]
    assert [change["what"] for change in reversed(running.changes.newest())] == words * 2


def test_invalid_administration_has_its_code(stub: StructuredLogStub) -> None:
    append(stub, "t", b"x")
    bad = pb.TopicSettings(durability="sometimes")
    calls = {
        "ALREADY_EXISTS": lambda: stub.CreateTopic(pb.CreateTopicRequest(topic="t"), timeout=20),
        "INVALID_ARGUMENT": lambda: stub.CreateTopic(pb.CreateTopicRequest(topic="u", settings=bad), timeout=20),
        "NOT_FOUND": lambda: stub.ConfigureTopic(pb.ConfigureTopicRequest(topic="nope"), timeout=20),
        "PERMISSION_DENIED": lambda: append(stub, "_ledger", b"x"),
    }
    assert {expected: code_of(call) for expected, call in calls.items()} == {code: code for code in calls}
    assert code_of(lambda: stub.DeleteTopic(pb.DeleteTopicRequest(topic="nope"), timeout=20)) == "NOT_FOUND"
    assert code_of(lambda: stub.DeleteTopic(pb.DeleteTopicRequest(topic="NO"), timeout=20)) == "INVALID_ARGUMENT"
    assert code_of(lambda: stub.VerifyTopic(pb.VerifyTopicRequest(topic="nope"), timeout=20)) == "NOT_FOUND"


def test_description_lists_offsets_gaps_and_settings(stub: StructuredLogStub) -> None:
    for topic in ("a", "b"):
        append(stub, topic, b"0", b"1")
    stub.CommitCursor(pb.CommitCursorRequest(topic="a", name="reader", offset=1), timeout=20)
    descriptions = {topic.name: topic for topic in stub.DescribeTopics(pb.DescribeTopicsRequest(), timeout=20).topic}
    assert sorted(descriptions) == ["a", "b"]
    a = descriptions["a"]
    assert (a.start, a.end, a.segments, a.bytes > 100) == (0, 2, 1, True)
    assert time.time() - 60 < a.oldest.seconds <= a.newest.seconds <= time.time() + 1
    assert [(c.name, c.offset, c.lag_entries) for c in a.cursors] == [("reader", 1, 1)]
    (only,) = stub.DescribeTopics(pb.DescribeTopicsRequest(topic=["b"]), timeout=20).topic
    assert only.name == "b"
    assert code_of(lambda: stub.DescribeTopics(pb.DescribeTopicsRequest(topic=["nope"]), timeout=20)) == "NOT_FOUND"


def test_stream_of_deleted_topic_ends(stub: StructuredLogStub) -> None:
    append(stub, "t", b"x")
    call = stub.StreamLogs(pb.GetLogsRequest(topic="t"), timeout=20)
    next(call)
    stub.DeleteTopic(pb.DeleteTopicRequest(topic="t"), timeout=20)
    assert code_of(lambda: next(call)) == "NOT_FOUND"


def test_committed_transaction_is_visible_and_returns_offsets(stub: StructuredLogStub) -> None:
    append(stub, "a", b"before")
    transaction = stub.Begin(pb.BeginRequest(), timeout=20).transaction_id
    for topic, data in (("a", b"1"), ("b", b"2"), ("a", b"3")):
        staged = append(stub, topic, data, transaction_id=transaction)
        assert (list(staged.offsets), staged.durability) == ([], pb.STAGED)
    append(stub, "a", b"between")
    assert payloads(stub, "a") == [b"before", b"between"]
    committed = stub.Commit(pb.CommitRequest(transaction_id=transaction), timeout=20)
    assert {topic.topic: list(topic.offsets) for topic in committed.topic} == {"a": [2, 3], "b": [0]}
    assert (payloads(stub, "a"), payloads(stub, "b")) == ([b"before", b"between", b"1", b"3"], [b"2"])
    assert stub.Commit(pb.CommitRequest(transaction_id=transaction), timeout=20) == committed


def test_aborted_unknown_or_late_transaction_stores_nothing(stub: StructuredLogStub) -> None:
    transaction = stub.Begin(pb.BeginRequest(), timeout=20).transaction_id
    append(stub, "t", b"x", transaction_id=transaction)
    stub.Abort(pb.AbortRequest(transaction_id=transaction), timeout=20)
    assert code_of(lambda: stub.Commit(pb.CommitRequest(transaction_id=transaction), timeout=20)) == "NOT_FOUND"
    assert code_of(lambda: append(stub, "t", b"x", transaction_id="nobody's")) == "NOT_FOUND"
    late = stub.Begin(pb.BeginRequest(timeout=Duration(nanos=50_000_000)), timeout=20).transaction_id
    time.sleep(0.1)
    assert code_of(lambda: append(stub, "t", b"x", transaction_id=late)) == "ABORTED"
    negative = pb.BeginRequest(timeout=Duration(seconds=-1))
    assert code_of(lambda: stub.Begin(negative, timeout=20)) == "INVALID_ARGUMENT"
    assert [topic.name for topic in stub.ListTopics(pb.ListTopicsRequest(), timeout=20).topic] == []


def test_repeated_append_is_stored_once(stub: StructuredLogStub) -> None:
    first = append(stub, "t", b"a", b"b", producer_id="p", sequence=1)
    assert append(stub, "t", b"a", b"b", producer_id="p", sequence=1) == first
    assert list(append(stub, "t", b"c", producer_id="p", sequence=2).offsets) == [2]
    assert code_of(lambda: append(stub, "t", b"e", producer_id="p", sequence=4)) == "FAILED_PRECONDITION"
    assert code_of(lambda: append(stub, "t", b"x", producer_id="p", sequence=2)) == "ALREADY_EXISTS"
    assert code_of(lambda: append(stub, "t", b"x", producer_id="p" * 1000, sequence=1)) == "INVALID_ARGUMENT"
    assert payloads(stub, "t") == [b"a", b"b", b"c"]


def test_cursors_are_stored_and_report_lag_without_readers(stub: StructuredLogStub) -> None:
    append(stub, "t", b"0", b"1", b"2")
    stub.CommitCursor(pb.CommitCursorRequest(topic="t", name="c", offset=1), timeout=20)
    (cursor,) = stub.ListCursors(pb.ListCursorsRequest(), timeout=20).cursor
    assert (cursor.topic, cursor.name, cursor.offset, cursor.lag_entries) == ("t", "c", 1, 2)
    assert cursor.lag_bytes > 0
    assert 0 < cursor.lag_seconds < 60
    append(stub, "t", b"3")
    assert stub.ListCursors(pb.ListCursorsRequest(topic="t"), timeout=20).cursor[0].lag_entries == 3
    page = stub.GetLogs(pb.GetLogsRequest(topic="t", cursor="c", max_messages=2), timeout=20)
    assert [entry.offset for entry in page.logs] == [1, 2]
    stub.RemoveCursor(pb.RemoveCursorRequest(topic="t", name="c"), timeout=20)
    assert not stub.ListCursors(pb.ListCursorsRequest(topic="t"), timeout=20).cursor
    first = stub.GetLogs(pb.GetLogsRequest(topic="t", cursor="c", max_messages=1), timeout=20)
    assert first.logs[0].offset == 0
    bad = pb.CommitCursorRequest(topic="t", name="NO NAME", offset=1)
    assert code_of(lambda: stub.CommitCursor(bad, timeout=20)) == "INVALID_ARGUMENT"


def test_filtered_page_has_the_offset_to_continue_at(stub: StructuredLogStub) -> None:
    logs = [pb.LogEntry(raw_bytes=b"%d" % n, annotations={"userid": str(n % 10)}) for n in range(300)]
    stub.AppendLogs(pb.AppendRequest(topic="t", logs=logs), timeout=20)
    offsets, offset = [], 0
    while offset < 300:
        request = pb.GetLogsRequest(topic="t", offset=offset, max_messages=7, filter="k:userid v:5")
        page = stub.GetLogs(request, timeout=20)
        assert len(page.logs) <= 7
        assert page.next_offset > offset
        offsets += [entry.offset for entry in page.logs]
        offset = page.next_offset
    assert offsets == list(range(5, 300, 10))
    stream = stub.StreamLogs(pb.GetLogsRequest(topic="t", offset=290, filter="NOT k:userid v:[0-8]"), timeout=20)
    assert [entry.offset for entry in next(stream).logs] == [299]
    stub.AppendLogs(pb.AppendRequest(topic="t", logs=logs[:10]), timeout=20)
    assert [entry.offset for entry in next(stream).logs] == [309]
    bad = pb.GetLogsRequest(topic="t", filter="k:userid AND")
    for call in (stub.GetLogs, lambda r, timeout: next(stub.StreamLogs(r, timeout=timeout))):
        with pytest.raises(grpc.RpcError) as raised:
            call(bad, timeout=20)
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "^" in raised.value.details()


def test_filtered_stream_reports_progress_without_matches(
    running: Running, stub: StructuredLogStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "PROGRESS_INTERVAL_S", 0.05)
    logs = [pb.LogEntry(raw_bytes=b"x", annotations={"n": str(n)}) for n in range(5)]
    stub.AppendLogs(pb.AppendRequest(topic="t", logs=logs), timeout=20)
    stream = stub.StreamLogs(pb.GetLogsRequest(topic="t", filter="k:n v:3"), timeout=20)
    page = next(stream)
    assert ([entry.offset for entry in page.logs], page.next_offset) == ([3], 5)
    for end in (8, 11):
        stub.AppendLogs(pb.AppendRequest(topic="t", logs=logs[:3]), timeout=20)
        page = next(stream)
        assert (len(page.logs), page.next_offset) == (0, end)
    stub.AppendLogs(pb.AppendRequest(topic="t", logs=logs[3:]), timeout=20)
    assert [entry.offset for entry in next(stream).logs] == [11]
    with running.connection(timeout=20) as connection:
        connection.request("GET", "/topic/t/logstream?filter=k:none")
        assert json.loads(connection.getresponse().readline()) == {"result": {"next_offset": "13"}}


def test_topics_are_verified_compacted_and_cleaned_up(running: Running, stub: StructuredLogStub) -> None:
    small = pb.TopicSettings(segment_size_limit=1, compression="zstd", stale_after=0.001)
    stub.CreateTopic(pb.CreateTopicRequest(topic="t", settings=small), timeout=20)
    for _ in range(3):
        append(stub, "t", *[b"much the same"] * 200)
    assert not stub.VerifyTopic(pb.VerifyTopicRequest(topic="t"), timeout=20).gaps
    compacted = stub.CompactTopic(pb.CompactTopicRequest(topic="t"), timeout=20)
    assert compacted.bytes_after < compacted.bytes_before
    stub.CommitCursor(pb.CommitCursorRequest(topic="t", name="slow", offset=0), timeout=20)
    swept = stub.Cleanup(pb.CleanupRequest(), timeout=20).swept
    assert {(drop.topic, drop.reason) for drop in swept} == {("t", "expired_unread")}
    gaps = stub.DescribeTopics(pb.DescribeTopicsRequest(topic=["t"]), timeout=20).topic[0].gaps
    assert (gaps[0].begin, gaps[0].end, gaps[0].reason) == (0, 200, "expired_unread")


def test_post_is_entered_in_the_ledger(stub: StructuredLogStub) -> None:
    assert stub.PostLedger(pb.PostLedgerRequest(document='{"x":1}'), timeout=20).new
    assert code_of(lambda: stub.PostLedger(pb.PostLedgerRequest(document="{"), timeout=20)) == "INVALID_ARGUMENT"


def test_administration_works_by_http(running: Running) -> None:
    ask = running.request_json
    status, created = ask("PUT", "/topics/t", {"segment_size_limit": "1MiB", "rotate_after": "2h"})
    settings = created["settings"]
    assert (status, settings["segment_size_limit"], settings["rotate_after"]) == (201, str(1 << 20), 7200)
    assert ask("PUT", "/topics/t", {})[0] == 409
    assert ask("PATCH", "/topics/t", {"retention_policy": "keep"})[1]["settings"]["retention_policy"] == "keep"
    assert ask("PATCH", "/topics/t", {"retention": "keep"})[0] == 400
    assert "rotate_after" in ask("PATCH", "/topics/t", {"rotate_after": "soon"})[1]["error"]
    transaction = ask("POST", "/transactions", {"timeout": "30s"})[1]["transaction_id"]
    assert ask("POST", "/topic/t/logs", {"logs": [{"raw_bytes": "YQ=="}], "transaction_id": transaction}) == (
        200,
        {"durability": "STAGED"},
    )
    assert ask("POST", f"/transactions/{transaction}/commit", None)[1] == {"topic": [{"topic": "t", "offsets": ["0"]}]}
    assert ask("POST", f"/transactions/{transaction}/abort", None)[0] == 404
    assert ask("PUT", "/topic/t/cursors/c", {"offset": "0"})[0] == 200
    (cursor,) = ask("GET", "/topic/t/cursors", None)[1]["cursor"]
    assert (cursor["name"], cursor["offset"], cursor["lag_entries"]) == ("c", "0", "1")
    assert [cursor["name"] for cursor in ask("GET", "/cursors", None)[1]["cursor"]] == ["c"]
    assert ask("DELETE", "/topic/t/cursors/c", None) == (200, {})
    assert [topic["name"] for topic in ask("GET", "/describe", None)[1]["topic"]] == ["t"]
    assert ask("GET", "/topics/t", None)[1]["end"] == "1"
    assert ask("POST", "/cleanup", None) == (200, {"swept": []})
    assert ask("POST", "/topic/t/compact", None)[0] == 200
    assert ask("DELETE", "/topics/t", None) == (200, {})
    assert ask("GET", "/topics/t", None)[0] == 404


def test_index_after_bytes_of_slogd_is_accepted_over_http(running: Running) -> None:
    slogds = {"index_after_bytes": 4096, "message_size_limit": 10}
    status, created = running.request_json("PUT", "/topics/t", slogds)
    assert (status, created["settings"]["message_size_limit"]) == (201, "10")
    assert running.request_json("PATCH", "/topics/t", {"index_after_bytes": "4KiB"})[0] == 200


def test_filter_works_by_http(running: Running) -> None:
    logs = [{"raw_bytes": "YQ==", "annotations": {"n": str(n)}} for n in range(3)]
    running.request("POST", "/topic/t/logs", {"logs": logs})
    status, document = running.request_json("GET", "/topic/t/logs?filter=k:n%20v:1")
    assert ([entry["offset"] for entry in document["logs"]], document["next_offset"]) == (["1"], "3")
    status, refused = running.request_json("GET", "/topic/t/logs?filter=k:(")
    assert (status, refused["code"]) == (400, 3)
    assert "^" in refused["error"]


def test_cursors_are_listed_despite_a_damaged_batch(running: Running, stub: StructuredLogStub) -> None:
    topic = running.log.topic("t", create=True)
    for payload in (b"a batch to be found and damaged", b"whole"):
        topic.append(body([payload]), Origin("grpc", 0, 0, 0)).result(20)
    (path,) = running.folder.joinpath("t").glob("*.arrows")
    data = bytearray(path.read_bytes())
    data[data.index(b"a batch to be")] ^= 1
    path.write_bytes(data)
    stub.CommitCursor(pb.CommitCursorRequest(topic="t", name="c", offset=0), timeout=20)
    assert stub.ListCursors(pb.ListCursorsRequest(), timeout=20).cursor[0].name == "c"
    assert stub.DescribeTopics(pb.DescribeTopicsRequest(), timeout=20).topic[0].end == 2


def test_listing_opens_no_topic(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.topic("t", create=True).append(body([b"x"]), Origin("test", 0, 0, 0)).result()
    log.topic("t").cursors.commit("reader", 0)
    log.close()
    log = Log(tmp_path)
    try:
        topics = PermittedTopics(log)
        (described,) = AdminApi(topics).describe([], ANONYMOUS)
        assert (described.end, [cursor.lag_entries for cursor in described.cursors]) == (1, [1])
        assert [cursor.name for cursor in AdminApi(topics).cursors("", ANONYMOUS)] == ["reader"]
        assert not topics.is_open("t")
    finally:
        log.close()
