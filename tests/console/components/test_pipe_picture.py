"""The picture of the pipe."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from penstock.console.components.pipe_picture import MAX_ROWS, draw, listeners, tables, topics
from penstock.console.daemon_poll import Daemon
from tests.console.console_balance import balance, daemon


def test_every_station_has_its_rate() -> None:
    state = daemon(balance(100), balance(300))
    assert [(box.name, box.rate) for box in listeners(state)] == [("in", 20), ("grpc", 0)]
    assert [(box.name, box.rate, box.below) for box in topics(state)] == [("events", 20, "300 logged, 10 waiting")]
    assert [(box.name, box.below) for box in tables(state)] == [
        ("events", "287 rows, 1 dropped as duplicates"),
        ("syslog", "0 rows"),
        ("messages", "0 rows"),
        ("quarantine", "2 rows"),
    ]
    assert tables(state)[-1].leak == "inspect"


def test_quarantine_rate_is_its_growth() -> None:
    later = balance()
    later["topics"][0]["fates"]["quarantined.no_uuid"] = 30
    assert tables(daemon(balance(), later))[-1].rate == 3


def test_rates_of_unavailable_daemon_are_unknown() -> None:
    state = daemon(balance(100), balance(300))
    state.answered_s -= 3600
    boxes = [*listeners(state), *topics(state), *tables(state)]
    assert {box.rate for box in boxes} == {None}
    assert "".join(ElementTree.fromstring(draw(state)).itertext()).count("?") == 2 * len(boxes)


def test_losses_are_shown() -> None:
    assert listeners(daemon(balance(kernel_dropped=7)))[0].leak == "7 lost"
    assert listeners(daemon(balance()))[0].leak == ""


def test_stopped_receiver_is_shown_instead_of_nothing_pending() -> None:
    state = daemon(balance())
    assert draw(state).count("nothing pending") == 2
    state.stat["listeners"]["in"]["silent_s"] = 12.4
    (box, _) = listeners(state)
    assert (box.below, box.leak, box.kind) == ("receiver stopped for 12 s", "stopped", "aside")
    assert draw(state).count("messages wait in the kernel") == 2
    assert "nothing pending" not in draw(state)


def test_silent_forwarder_is_shown_in_the_box_of_its_listener() -> None:
    state = daemon(balance())
    state.stat["listeners"]["in"]["handlers"] = [{"name": "kafka", "silent_s": 12.4}, {"name": "console"}]
    (box, _) = listeners(state)
    assert (box.below, box.leak, box.kind) == ("forwarder to kafka silent for 12 s", "silent", "aside")


def test_picture_is_valid_svg_for_any_name() -> None:
    odd = balance()
    odd["topics"][0]["topic"] = '<script>&"'
    picture = ElementTree.fromstring(draw(daemon(odd)))
    assert '<script>&"' in "".join(picture.itertext())


def test_picture_without_answers_is_valid_svg() -> None:
    ElementTree.fromstring(draw(Daemon("127.0.0.1:1")))


def test_long_name_is_cut_and_whole_in_the_tooltip() -> None:
    long, name = balance(), "service-0001.orders.of-region-north-and-a-long-name"
    long["topics"][0]["topic"] = name
    picture = ElementTree.fromstring(draw(daemon(long)))
    texts = [element.text for element in picture.iter() if element.get("class") == "name"]
    assert "service-0001.orders.o…" in texts
    assert name in [element.text for element in picture.iter() if element.tag.endswith("title")]


def test_many_topics_share_the_last_box() -> None:
    many = balance()
    many["topics"] = [{**many["topics"][0], "topic": f"t{n}"} for n in range(30)]
    boxes = topics(daemon(many))
    assert (len(boxes), boxes[-1].name, boxes[-1].link) == (MAX_ROWS, "23 more", "/topics")


def test_picture_without_topics_has_a_box_between_listeners_and_tables() -> None:
    empty = balance()
    empty["topics"] = []
    assert draw(daemon(empty)).count("no topic yet</text>") == 2


def test_deleted_topic_disappears_and_kafka_partitions_stay() -> None:
    state = daemon(balance())
    state.balance["topics"] += [{**state.balance["topics"][0], "topic": name} for name in ("gone", "orders/0")]
    assert [box.name for box in topics(state)] == ["events", "gone", "orders/0"]
    state.latest.names = frozenset(["events"])
    assert [box.name for box in topics(state)] == ["events", "orders/0"]


def test_quarantine_and_losses_are_separate() -> None:
    picture = draw(daemon(balance(kernel_dropped=7)))
    assert picture.count('class="box lost"') == picture.count('class="box aside"') == 2, "in both pictures"
