"""Summaries of topics: the same as a new reading after each change, and no reading without one."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.log import Log, TopicSettings
from penstock.log.topic_summary import TopicSummaries, TopicSummary
from tests.log.log_helpers import origin, rows


def settle(folder: Path) -> None:
    """Date the topic's files back, as if nothing had changed for a second."""
    for path in [folder, *folder.rglob("*")]:
        old_ns = path.stat().st_mtime_ns - 1_000_000_000
        os.utime(path, ns=(old_ns, old_ns))


def read_anew(log: Log) -> TopicSummary:
    return TopicSummaries(log.directory, lambda name: log.topic(name).cursors).read("t")


def test_summary_follows_every_change(tmp_path: Path) -> None:
    log = Log(tmp_path, TopicSettings(segment_size_limit=1500, retain_bytes=2000))
    try:
        topic = log.topic("t", create=True)
        changes = [
            lambda: topic.append(rows(b"a", b"b"), origin()).result(),
            lambda: topic.append(rows(b"c"), origin()).result(),
            lambda: topic.cursors.commit("reader", 1),
            lambda: topic.cursors.commit("reader", 2),
            lambda: topic.append(rows(b"x" * 4000), origin()).result(),
            lambda: topic.append(rows(b"y"), origin()).result(),
            log.sweep,
            lambda: topic.cursors.remove("reader"),
        ]
        summaries = []
        for change in changes:
            change()
            assert log.summaries.read("t") == read_anew(log)
            settle(topic.path)
            summaries.append(log.summaries.read("t"))
        assert [summary.extent.end for summary in summaries] == [2, 3, 3, 3, 4, 5, 5, 5]
        assert [summary.backlogs["reader"].entries for summary in summaries[2:4]] == [2, 1]
        assert summaries[-2].extent.gaps
        assert not summaries[-1].backlogs
    finally:
        log.close()


def test_unchanged_topic_is_not_read_again(tmp_path: Path) -> None:
    log = Log(tmp_path)
    try:
        log.topic("t", create=True).append(rows(b"a"), origin()).result()
        settle(tmp_path / "t")
        assert log.summaries.read("t") is log.summaries.read("t")
    finally:
        log.close()


def test_summary_of_a_recreated_topic_is_new(tmp_path: Path) -> None:
    log = Log(tmp_path)
    try:
        log.topic("t", create=True).append(rows(b"a"), origin()).result()
        settle(tmp_path / "t")
        assert log.summaries.read("t").extent.start == 0
        log.delete("t")
        log.topic("t", create=True).append(rows(b"b"), origin()).result()
        assert log.summaries.read("t").extent.start == 1
    finally:
        log.close()
