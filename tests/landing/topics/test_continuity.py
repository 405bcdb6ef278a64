"""The marks of landed rows tell a log from another one, also over Flight, and an old row that is gone says nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.counts import Origin
from penstock.landing.daemon_connection import DaemonConnection
from penstock.landing.topics.continuity import LogContinuity, OffsetsRestarted
from penstock.landing.topics.from_flight import FlightStore
from penstock.landing.topics.from_folder import FolderStore
from penstock.landing.topics.topic_store import TopicStore, TopicView
from penstock.log import Log, TopicSettings
from penstock.records import body
from penstock.server.flight import actions
from tests.spark.spark_flight import Served, served
from tests.spark.spark_helpers import append, flip


def marked(topics: Path, open_store: Callable[[], TopicStore]) -> LogContinuity:
    continuity = LogContinuity(open_store, ["*"], topics.with_name("marks.json"))
    continuity.after_reading({"t": FolderStore(topics).views(["t"])["t"].end})
    return continuity


def remote(address: str) -> FlightStore:
    return FlightStore(DaemonConnection(address, retry_for=5))


@pytest.mark.parametrize("rows", [1, 20, 30])
def test_replaced_log_of_a_daemon_is_recognized(topics: Path, rows: int) -> None:
    append(topics, "t", [b"a"] * 20)
    with served(topics) as server:
        marked(topics, partial(remote, server.address)).check()
    shutil.rmtree(topics)
    append(topics, "t", [b"b"] * rows)
    with served(topics) as server:
        continuity = LogContinuity(partial(remote, server.address), ["*"], topics.with_name("marks.json"))
        with pytest.raises(OffsetsRestarted, match="offset 19 landed"):
            continuity.check()
        with pytest.raises(OffsetsRestarted, match="offset 19 landed"):
            continuity.after_reading({"t": rows})
        LogContinuity(partial(remote, server.address), ["other"], topics.with_name("marks.json")).check()


def test_daemon_of_an_earlier_version_gives_no_times(topics: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(topics, "t", [b"a"] * 20)
    act = actions.act
    monkeypatch.setattr(
        "penstock.server.flight.server.act",
        lambda topics, caller, action, body: act(topics, caller, "unknown" if action == "times" else action, body),
    )
    with served(topics) as server:
        assert remote(server.address).row_times({"t": [19, 3]}) == {"t": [None, None]}


def test_daemon_that_does_not_answer_is_checked_later(topics: Path) -> None:
    append(topics, "t", [b"a"])
    marked(topics, partial(FolderStore, topics))
    store = FlightStore(DaemonConnection("127.0.0.1:1", retry_for=0))
    LogContinuity(lambda: store, ["*"], topics.with_name("marks.json")).check()


def test_request_to_land_again_is_checked(topics: Path) -> None:
    append(topics, "t", [b"a"] * 20)
    continuity = marked(topics, partial(FolderStore, topics))
    continuity.after_reading({"t@1": 5})
    shutil.rmtree(topics)
    append(topics, "t", [b"b"] * 20)
    with pytest.raises(OffsetsRestarted):
        continuity.after_reading({"t@1": 10})


def test_row_that_was_damaged_or_deleted_shows_no_other_log(topics: Path) -> None:
    append(topics, "t", [b"a"] * 19, [b"needle"])
    continuity = marked(topics, partial(FolderStore, topics))
    append(topics, "t", [b"b"] * 20)
    flip(topics, "t", b"needle")
    continuity.check()
    log = Log(topics)
    log.topic("t").verify()
    assert [(gap.begin, gap.end) for gap in log.topic("t").gaps()] == [(19, 20)]
    continuity.check()
    log.delete("t")
    log.close()
    continuity.check()
    append(topics, "t", [b"b"] * 20)
    continuity.check()


class DeletingStore(FlightStore):
    """Deletes the topic ``s`` right after the daemon has returned its view."""

    def __init__(self, server: Served) -> None:
        super().__init__(DaemonConnection(server.address, retry_for=5))
        self._server = server

    def views(self, patterns: Sequence[str]) -> dict[str, TopicView]:
        views = super().views(patterns)
        self._server.log.delete("s")
        self._server.topics.forget("s")
        return views


def test_topic_that_is_deleted_during_its_check_fails_no_batch(topics: Path) -> None:
    append(topics, "s", [b"a"] * 20)
    LogContinuity(partial(FolderStore, topics), ["*"], topics.with_name("marks.json")).after_reading({"s": 20})
    shutil.rmtree(topics)
    append(topics, "s", [b"b"] * 20)
    with served(topics) as server:
        continuity = LogContinuity(partial(DeletingStore, server), ["*"], topics.with_name("marks.json"))
        continuity.after_reading({"s": 20})
        assert "s" not in server.log.names()


def test_topic_that_is_deleted_during_its_check_hides_no_other_replaced_topic(topics: Path) -> None:
    for topic in ("s", "t"):
        append(topics, topic, [b"a"] * 20)
    LogContinuity(partial(FolderStore, topics), ["*"], topics.with_name("marks.json")).after_reading({"s": 20, "t": 20})
    shutil.rmtree(topics)
    for topic in ("s", "t"):
        append(topics, topic, [b"b"] * 20)
    with served(topics) as server:
        continuity = LogContinuity(partial(DeletingStore, server), ["*"], topics.with_name("marks.json"))
        with pytest.raises(OffsetsRestarted, match="topic t "):
            continuity.check()
        assert "s" not in server.log.names()


def test_end_that_was_set_back_shows_another_log_only_with_new_rows(topics: Path) -> None:
    """After a power cut, readers see fewer rows until the topic is recovered."""
    append(topics, "t", [b"a"] * 10)
    shutil.copytree(topics, topics.with_name("earlier"))
    append(topics, "t", [b"a"] * 10)
    continuity = marked(topics, partial(FolderStore, topics))
    shutil.rmtree(topics)
    topics.with_name("earlier").rename(topics)
    continuity.check()
    append(topics, "t", [b"b"])
    with pytest.raises(OffsetsRestarted, match="offset 19 landed"):
        continuity.check()


def test_compacted_log_is_the_same_log(topics: Path) -> None:
    """Rows are in other batches afterwards, and keep their times."""
    # A segment that reaches the limit is sealed, and only sealed ones are compacted.
    log = Log(topics, TopicSettings(segment_size_limit=4096))
    topic, now = log.topic("t", create=True), 1_790_000_000_000_000
    for number in range(60):
        origin = Origin("events-udp", 0, now, now)
        topic.append(body(pa.array([b"%d" % number * 20], pa.binary())), origin).result(10)
        if number == 7:
            continuity = marked(topics, partial(FolderStore, topics))
    assert topic.compact()[0] > 0
    log.close()
    continuity.check()
    with served(topics) as server:
        LogContinuity(partial(remote, server.address), ["*"], topics.with_name("marks.json")).check()
