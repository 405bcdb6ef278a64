"""Counts of a relayed topic by listener."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.relay import tally
from penstock.client.relay.tally import ListenerTally, TopicTally, relayed_listener, relayed_origin
from penstock.counts import Origin
from penstock.ledger.hosts.host_posts import FURTHER
from penstock.log import Log, Topic, TopicSettings
from penstock.records import body


@pytest.fixture
def topic(tmp_path: Path) -> Iterator[Topic]:
    log = Log(tmp_path, TopicSettings())
    yield log.topic("t", create=True)
    log.close()


def store(topic: Topic, source: str, count: int) -> None:
    topic.append(body([b"x"] * count), Origin(source, 60, 1, 2)).result(30)


def test_entries_are_counted_once_by_listener(topic: Topic) -> None:
    store(topic, "udp", 3)
    store(topic, "tcp", 2)
    counts = TopicTally("web1")
    for _ in range(2):
        counts.count_to(topic.reader(), 4)
    assert counts.listeners == {"udp": ListenerTally(3), "tcp": ListenerTally(1)}
    counts.count_to(topic.reader(), 5)
    counts.forward("udp", 2)
    counts.expire_of("tcp", 1)
    assert counts.stored() == {"udp": (2, 0), "tcp": (0, 1)}
    assert TopicTally.from_stored("web1", counts.stored(), 3).listeners == {
        "udp": ListenerTally(2, 2, 0),
        "tcp": ListenerTally(1, 0, 1),
    }


def test_files_show_what_was_forwarded_before_a_cursor(topic: Topic) -> None:
    store(topic, "udp", 3)
    store(topic, "tcp", 2)
    assert TopicTally.from_files("web1", topic.reader(), 4).listeners == {
        "udp": ListenerTally(3, 3),
        "tcp": ListenerTally(1, 1),
    }


def test_entries_that_are_passed_over_are_expired(topic: Topic) -> None:
    store(topic, "udp", 3)
    counts = TopicTally("web1")
    counts.count_to(topic.reader(), 3)
    counts.forward("udp", 1)
    counts.expire(topic.reader(), 2)
    assert counts.listeners == {"udp": ListenerTally(3, 1, 1)}


def test_listeners_beyond_the_limit_are_summed(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "MAX_LISTENERS", 2)
    for source in ("a", "b", "c", "a"):
        store(topic, source, 1)
    counts = TopicTally("web1")
    counts.count_to(topic.reader(), 4)
    assert counts.listeners == {"a": ListenerTally(2), FURTHER: ListenerTally(2)}


def test_relayed_origin_names_the_host_and_fits_into_the_index() -> None:
    origin = Origin("events-udp", 60, 1, 2, "plog", {"accepted": 3}, "buffer", 4, 5)
    assert relayed_origin("web1", origin, "d/t") == Origin("web1/events-udp", 60, 1, 2, "plog", hops=("d/t",))
    again = relayed_origin("web2", relayed_origin("web1", origin, "d/t"), "e/t")
    assert (again.source, again.hops) == ("web2/web1/events-udp", ("d/t", "e/t"))
    assert relayed_origin("h" * 20, Origin("s" * 32, 60, 1, 2), "d/t").source == f"{'h' * 20}/{'s' * 11}"
    assert relayed_origin("web1", Origin("", 60, 1, 2), "d/t").source == "web1/unknown"
    assert relayed_listener("h" * 20, "s" * 32) == "s" * 11
    assert relayed_listener("web1", "") == "unknown"
