from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from penstock.server.auth.rights import ANONYMOUS
from penstock.server.kafka.groups.group_offsets import GroupOffsets, cursor_of, group_of
from penstock.server.kafka.groups.group_state import Refused
from penstock.server.kafka.groups.groups import Groups
from tests.server.running import Running


@given(st.text(max_size=300))
def test_any_name_is_a_distinct_group_or_refused(name: str) -> None:
    try:
        cursor = cursor_of(name)
    except Refused:
        assert not name or len(name.encode(errors="surrogatepass")) > 90
    else:
        assert group_of(cursor) == name
        assert len(cursor) <= 200


def test_group_with_a_valid_cursor_name_is_that_cursor() -> None:
    assert cursor_of("my-group_1.a") == "my-group_1.a"
    assert group_of("kafka-hex.zz") == "kafka-hex.zz"
    with pytest.raises(Refused):
        cursor_of("")


def start_commit(running: Running, offsets: GroupOffsets, offset: int, generation: int = 2) -> Future[ErrorCode]:
    """Send a commit of group g in topic t; return its code, later."""
    part = SimpleNamespace(partition_index=0, committed_offset=offset, committed_metadata="")
    message = SimpleNamespace(
        group_id="g",
        member_id="m",
        generation_id=generation,
        group_instance_id="i",
        topics=[SimpleNamespace(name="t", partitions=[part])],
    )
    call: Any = SimpleNamespace(message=message, caller=ANONYMOUS)

    async def commit() -> ErrorCode:
        answer: Any = await offsets.commit(call)
        return ErrorCode(answer["topics"][0]["partitions"][0]["error_code"])

    return asyncio.run_coroutine_threadsafe(commit(), running.loop)


def test_member_that_may_not_commit_moves_no_cursor(tmp_path: Path) -> None:
    running = Running(tmp_path / "topics")
    try:
        topic = running.log.topic("t", create=True)
        offsets, members = GroupOffsets(running.api), list[tuple[Any, ...]]()

        def check_member(*member: Any) -> None:
            members.append(member)
            if member[2] < 2:
                raise Refused(ErrorCode.illegal_generation)

        def commit(generation: int, offset: int) -> ErrorCode:
            return start_commit(running, offsets, offset, generation).result(30)

        offsets.check_member = check_member
        assert commit(2, 5) is ErrorCode.none
        assert commit(1, 9) is ErrorCode.illegal_generation
        assert [*topic.cursors.offsets().values()] == [5]
        assert members == [("g", "m", 2, "i"), ("g", "m", 1, "i")]
    finally:
        running.stop()


@pytest.mark.parametrize("client_goes", [False, True])
def test_commit_that_is_stuck_in_the_disk_undoes_no_later_one(tmp_path: Path, client_goes: bool) -> None:
    running = Running(tmp_path / "topics")
    try:
        topic = running.log.topic("t", create=True)
        offsets = GroupOffsets(running.api)
        store, has_begun, may_go_on = running.api.manage.commit_cursor, threading.Event(), threading.Event()

        def commit_cursor(topic: str, name: str, offset: int, *rest: Any) -> None:
            if offset == 5:
                has_begun.set()
                assert may_go_on.wait(30)
            store(topic, name, offset, *rest)

        running.api.manage.commit_cursor = commit_cursor  # type: ignore[method-assign]
        stuck = start_commit(running, offsets, 5)
        assert has_begun.wait(30)
        if client_goes:
            stuck.cancel()
        later = start_commit(running, offsets, 9)
        with pytest.raises(TimeoutError):
            later.result(0.5)
        may_go_on.set()
        assert later.result(30) is ErrorCode.none
        assert [*topic.cursors.offsets().values()] == [9]
    finally:
        running.stop()


def test_commit_that_cannot_be_written_is_logged_once_in_a_while(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    running = Running(tmp_path / "topics")
    try:
        topic = running.log.topic("t", create=True)
        topic.cursors.commit("other", 1)
        # A folder in the place of its draft: the commit's file cannot be written, as on a failing disk.
        (topic.path / "cursors" / "g.cursor.tmp").mkdir()
        offsets = GroupOffsets(running.api)
        for offset in range(5):
            assert start_commit(running, offsets, offset).result(30) is ErrorCode.coordinator_load_in_progress
        (line,) = [message for message in caplog.messages if "cannot commit" in message]
        assert line.startswith("kafka: group 'g' cannot commit in topic t: ")
    finally:
        running.stop()


@pytest.mark.parametrize("is_for_all", [False, True])
def test_offset_that_cannot_be_read_is_an_error_to_repeat_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_for_all: bool
) -> None:
    running = Running(tmp_path / "topics")
    try:
        topic = running.log.topic("t", create=True)
        topic.cursors.commit("g", 1)
        topic.cursors.commit("other", 7)
        # A folder in the place of a cursor: it cannot be read, as on a failing disk.
        (topic.path / "cursors" / "g.cursor").unlink()
        (topic.path / "cursors" / "g.cursor").mkdir()
        topics = None if is_for_all else [SimpleNamespace(name="t", partition_indexes=[0])]
        offsets = GroupOffsets(running.api)

        def fetch(group: str) -> Any:
            call: Any = SimpleNamespace(message=SimpleNamespace(group_id=group, topics=topics), caller=ANONYMOUS)
            return asyncio.run_coroutine_threadsafe(offsets.fetch(call), running.loop).result(30)

        answer = fetch("other")
        (part,) = answer["topics"][0]["partitions"]
        assert (answer["error_code"], part["committed_offset"]) == (ErrorCode.none, 7)
        answer = fetch("g")
        assert answer["error_code"] is ErrorCode.coordinator_load_in_progress
        (part,) = answer["topics"][0]["partitions"]
        assert (part["committed_offset"], part["error_code"]) == (-1, ErrorCode.coordinator_load_in_progress)
        assert "kafka: group 'g' cannot read its offset in topic t: " in caplog.text
        # Other groups are listed and removed as before.
        assert asyncio.run_coroutine_threadsafe(offsets.names(ANONYMOUS), running.loop).result(30) == {"g", "other"}
        removal = offsets.forget("other", ANONYMOUS)
        assert asyncio.run_coroutine_threadsafe(removal, running.loop).result(30) is ErrorCode.none
    finally:
        running.stop()


def test_groups_on_a_failing_disk_are_an_error_to_repeat(tmp_path: Path) -> None:
    # A folder in the place of a draft that is removed first: the topic cannot be opened, as on a failing disk.
    (tmp_path / "topics" / "t" / "cursors.tmp" / "x").mkdir(parents=True)
    running = Running(tmp_path / "topics")
    try:
        groups = Groups(offsets := GroupOffsets(running.api))

        def send(handler: Callable[[Any], Coroutine[Any, Any, Any]], **fields: Any) -> Any:
            message = SimpleNamespace(**fields)
            call: Any = SimpleNamespace(message=message, caller=ANONYMOUS)
            return asyncio.run_coroutine_threadsafe(handler(call), running.loop).result(30)

        assert send(groups.list)["error_code"] is ErrorCode.coordinator_load_in_progress
        assert send(groups.describe, groups=["g"])["groups"][0]["error_code"] is ErrorCode.coordinator_load_in_progress
        assert send(offsets.fetch, group_id="g", topics=None)["error_code"] is ErrorCode.coordinator_load_in_progress
    finally:
        running.stop()


def test_removal_of_a_group_whose_cursors_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    running = Running(tmp_path / "topics")
    try:
        topic = running.log.topic("t", create=True)
        # A file in the place of the folder: it cannot be listed, as on a failing disk.
        (topic.path / "cursors").write_bytes(b"")
        removal = GroupOffsets(running.api).forget("g", ANONYMOUS)
        code = asyncio.run_coroutine_threadsafe(removal, running.loop).result(30)
        assert code is ErrorCode.kafka_storage_error
    finally:
        running.stop()
