"""The picture of the pipe."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from penstock.console.daemon_poll import Daemon
from penstock.console.pipe_picture import MOST_ROWS, draw, listeners, tables, topics
from tests.console.console_balance import balance, daemon


def test_every_station_has_its_rate() -> None:
    seen = daemon(balance(100), balance(300))
    assert [(box.name, box.rate) for box in listeners(seen)] == [("in", 20), ("grpc", 0)]
    assert [(box.name, box.rate, box.below) for box in topics(seen)] == [("events", 20, "300 logged, 10 waiting")]
    assert [(box.name, box.below) for box in tables(seen)] == [
        ("events", "287 rows, 1 dropped as duplicates"),
        ("syslog", "0 rows"),
        ("messages", "0 rows"),
        ("quarantine", "2 rows"),
    ]
    assert tables(seen)[-1].leak == "look at them"


def test_the_rate_of_quarantine_is_what_came_into_it() -> None:
    later = balance()
    later["topics"][0]["fates"]["quarantined.no_uuid"] = 30
    assert tables(daemon(balance(), later))[-1].rate == 3


def test_rates_of_a_daemon_that_does_not_answer_are_unknown() -> None:
    seen = daemon(balance(100), balance(300))
    seen.at -= 3600
    boxes = [*listeners(seen), *topics(seen), *tables(seen)]
    assert {box.rate for box in boxes} == {None}
    assert "".join(ElementTree.fromstring(draw(seen)).itertext()).count("?") == 2 * len(boxes)


def test_what_leaks_is_shown() -> None:
    assert listeners(daemon(balance(kernel_dropped=7)))[0].leak == "7 lost"
    assert listeners(daemon(balance()))[0].leak == ""


def test_the_picture_is_good_svg_whatever_the_names_are() -> None:
    odd = balance()
    odd["topics"][0]["topic"] = '<script>&"'
    picture = ElementTree.fromstring(draw(daemon(odd)))
    assert '<script>&"' in "".join(picture.itertext())


def test_nothing_known_is_a_picture_too() -> None:
    ElementTree.fromstring(draw(Daemon("127.0.0.1:1")))


def test_many_topics_share_the_last_box() -> None:
    many = balance()
    many["topics"] = [{**many["topics"][0], "topic": f"t{n}"} for n in range(30)]
    boxes = topics(daemon(many))
    assert (len(boxes), boxes[-1].name) == (MOST_ROWS, "23 more")


def test_a_topic_that_was_deleted_goes_and_partitions_of_kafka_stay() -> None:
    seen = daemon(balance())
    seen.balance["topics"] += [{**seen.balance["topics"][0], "topic": name} for name in ("gone", "orders/0")]
    assert [box.name for box in topics(seen)] == ["events", "gone", "orders/0"]
    seen.latest.names = frozenset(["events"])
    assert [box.name for box in topics(seen)] == ["events", "orders/0"]


def test_quarantine_is_no_loss_and_a_loss_is_none_of_quarantine() -> None:
    picture = draw(daemon(balance(kernel_dropped=7)))
    assert picture.count('class="box lost"') == picture.count('class="box aside"') == 2, "in both pictures"
