"""Hosts that forward to Kafka: differences are named by host, listener and minute once they are certain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.ledger.kafka_hosts import (
    FOLDER,
    KafkaHostRegister,
    KafkaPost,
    KafkaReport,
    OverKafka,
    parse_kafka_post,
)
from penstock.ledger.posts import BadPost

M = 1_795_806_960 // 60 * 60
"""A minute."""


class Central:
    """A register with a clock, the landed offsets and the landed messages of web1/udp by minute."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now, self.through, self.versions = folder, float(M + 600), {"t/0": 0}, 0
        self.arrived: dict[int, int] = {}
        self.register = self.open()

    def open(self) -> KafkaHostRegister:
        return KafkaHostRegister(self.folder / FOLDER, lambda: self.through, lambda: self.now)

    def post(
        self, minutes: Mapping[int, tuple[int, int]], *, pending: int = 0, disk: str = "d", older: int = 0
    ) -> bool:
        self.versions += 1
        self.now += 1
        forwarded, failed = older + sum(f for f, _ in minutes.values()), sum(f for _, f in minutes.values())
        report = KafkaReport(forwarded + failed + pending, forwarded, failed, 0, pending, minutes)
        post = KafkaPost("web1", disk, "p", self.versions, int(self.now * 1000), "1", {"udp": report})
        return self.register.post(post.document())

    def land(self, arrived: Mapping[int, int], through: int) -> None:
        """Land messages up to an offset; the ends of the partitions are read before and after."""
        self.now += 11
        self.register.post_ends({"ends": {"t/0": through}, "age_ms": 1})
        self.arrived, self.through = dict(arrived), {"t/0": through}
        self.compare()
        self.now += 11
        self.register.post_ends({"ends": {"t/0": through}, "age_ms": 1})

    def compare(self, rolled: int = 0) -> OverKafka:
        return self.register.compare({"web1/udp": self.arrived}, rolled)["web1", "udp"]


def sums_close(compared: OverKafka) -> bool:
    right = compared.forwarded + compared.doubled + compared.failed_landed + compared.unposted
    delivered = compared.forwarded + compared.failed + compared.dropped + compared.unposted
    accepted = delivered + compared.pending + compared.lost_with_disk
    return compared.landed + compared.in_kafka + compared.missing == right and compared.accepted == accepted


def test_messages_are_in_kafka_until_the_landing_has_reached_them_and_then_equal(tmp_path: Path) -> None:
    central = Central(tmp_path)
    central.post({M: (10, 0), M + 60: (5, 0)}, pending=3)
    compared = central.compare()
    assert (compared.accepted, compared.in_kafka, compared.missing, compared.pending) == (18, 15, 0, 3)
    central.land({M: 10, M + 60: 5}, 15)
    compared = central.compare()
    assert (compared.in_kafka, compared.missing, compared.doubled, compared.landed) == (0, 0, 0, 15)


def test_missing_messages_are_named_by_minute_once_the_landing_has_passed_them(tmp_path: Path) -> None:
    central = Central(tmp_path)
    central.post({M: (10, 0), M + 60: (5, 0), M + 120: (5, 0)}, older=7)
    central.land({M - 600: 7, M: 8, M + 60: 5, M + 120: 4}, 24)
    compared = central.compare()
    assert (compared.missing, compared.missing_minutes, compared.doubled) == (3, (M, M + 120), 0)
    assert sums_close(compared)
    # Messages sent since do not hide it, also while none of the newer posts is settled.
    central.post({M: (10, 0), M + 60: (5, 0), M + 120: (50, 0)}, older=7)
    central.arrived[M + 120] = 6
    compared = central.compare()
    assert (compared.missing, compared.missing_minutes, compared.in_kafka) == (2, (M, M), 44)
    assert sums_close(compared)


def test_missing_messages_older_than_the_minutes_of_a_post_have_no_minute(tmp_path: Path) -> None:
    central = Central(tmp_path)
    central.post({M: (1, 0)}, older=7)
    central.land({M - 600: 6, M: 1}, 7)
    assert (central.compare().missing, central.compare().missing_minutes) == (1, ())


def test_ends_read_before_a_post_settle_nothing(tmp_path: Path) -> None:
    central = Central(tmp_path)
    central.register.post_ends({"ends": {"t/0": 0}, "age_ms": 1})
    central.post({M: (10, 0)})
    central.now += 11
    # The records were written after these ends were read: the request took longer than the post is old.
    central.register.post_ends({"ends": {"t/0": 0}, "age_ms": 5000})
    assert (central.compare().in_kafka, central.compare().missing) == (10, 0)


def test_doubled_messages_are_named_and_failed_deliveries_that_landed_are_not(tmp_path: Path) -> None:
    central = Central(tmp_path)
    central.post({M: (10, 2), M + 60: (5, 0), M + 120: (1, 0)}, pending=1)
    central.land({M: 12, M + 60: 8, M + 120: 4}, 24)
    compared = central.compare()
    assert (compared.doubled, compared.doubled_minutes, compared.failed_landed) == (3, (M + 60, M + 60), 2)
    assert (compared.unposted, compared.missing) == (3, 0)  # of the newest minute the host may have sent more since
    assert sums_close(compared)
    central.post({M: (10, 2), M + 60: (5, 0), M + 120: (2, 0)})
    assert (central.compare().doubled, central.compare().doubled_minutes) == (5, (M + 60, M + 120))


def test_minutes_that_are_rolled_up_by_day_count_as_older(tmp_path: Path) -> None:
    central = Central(tmp_path)
    central.post({M: (10, 0)})
    central.land({M // 86400 * 86400: 10}, 10)
    assert (central.compare(M + 86400).missing, central.compare(M + 86400).doubled) == (0, 0)


def test_host_with_a_new_disk_keeps_the_counts_of_the_former_one_and_names_what_was_lost(tmp_path: Path) -> None:
    central = Central(tmp_path)
    minute = int(central.now) // 60 * 60
    central.post({M: (10, 0), minute: (4, 0)}, pending=6)
    central.now += 30
    central.post({minute: (3, 0)}, disk="new")
    central.land({M: 10, minute: 9}, 19)  # two of the pending ones were sent before the disk was lost
    compared = central.compare()
    assert (compared.accepted, compared.forwarded, compared.lost_with_disk) == (23, 17, 4)
    assert (compared.missing, compared.doubled, compared.pending) == (0, 0, 0)
    assert sums_close(compared)


@pytest.mark.parametrize("count", [20, 39, 41, 100, 300])
def test_new_disk_with_many_minutes_has_no_false_difference(tmp_path: Path, count: int) -> None:
    central = Central(tmp_path)

    def newest(minutes: Mapping[int, tuple[int, int]]) -> tuple[dict[int, tuple[int, int]], int]:
        separate = {minute: minutes[minute] for minute in sorted(minutes)[-39:]}
        return separate, 10 * (len(minutes) - len(separate))

    former = {M + 60 * number: (10, 0) for number in range(50)}
    present = {M + 60 * number: (10, 0) for number in range(60, 60 + count)}
    separate, older = newest(former)
    central.now = float(M + 60 * 50)
    central.post(separate, older=older, pending=6)
    separate, older = newest(present)
    central.now = float(M + 60 * 60)
    central.post(dict(list(present.items())[:1]), disk="new")
    central.now = float(M + 60 * (60 + count))
    central.post(separate, older=older, disk="new")
    # Two of the pending ones were sent before the disk was lost.
    central.land({**dict.fromkeys([*former, *present], 10), M + 60 * 49: 12}, 502 + 10 * count)
    compared = central.compare()
    assert (compared.forwarded, compared.landed) == (500 + 10 * count, 502 + 10 * count)
    assert (compared.missing, compared.doubled, compared.in_kafka, compared.lost_with_disk) == (0, 0, 0, 4)
    assert sums_close(compared)
    central.arrived[max(present)] -= 3
    assert (central.compare().missing, central.compare().missing_minutes) == (3, (max(present), max(present)))


def test_pending_messages_that_landed_before_the_next_post_count_once(tmp_path: Path) -> None:
    central = Central(tmp_path)
    central.post({M: (5, 0)}, pending=5)
    central.arrived = {M: 8}
    compared = central.compare()
    assert (compared.accepted, compared.pending, compared.unposted) == (10, 2, 3)
    central.arrived = {M: 12}
    compared = central.compare()
    assert (compared.accepted, compared.pending, compared.unposted) == (12, 0, 7)
    assert sums_close(compared)


def test_posts_survive_a_restart_and_a_damaged_file_is_set_aside(tmp_path: Path) -> None:
    central = Central(tmp_path)
    central.post({M: (10, 0)})
    central.post({M: (1, 0)}, disk="new")
    central.register = central.open()
    assert central.compare().forwarded == 11
    (tmp_path / FOLDER / "web1.json").write_bytes(b"x")
    assert central.open().compare({}) == {}
    assert (tmp_path / FOLDER / "web1.damaged").exists()


def test_old_versions_of_a_process_are_not_entered(tmp_path: Path) -> None:
    central = Central(tmp_path)
    central.post({M: (10, 0)})
    central.versions -= 1
    assert not central.post({M: (9, 0)})
    assert central.compare().forwarded == 10


COUNTS = st.tuples(st.integers(0, 5), st.integers(0, 2))
MINUTES = st.dictionaries(st.integers(0, 8).map(lambda n: M + 60 * n), COUNTS, max_size=6)


@given(st.data())
def test_sums_close_and_only_certain_differences_are_named(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    central = Central(tmp_path_factory.mktemp("central"))
    sent = data.draw(MINUTES)
    central.post(sent, pending=data.draw(st.integers(0, 1)))
    arrived = {minute: data.draw(st.integers(0, 8)) for minute in sent}
    through = data.draw(st.booleans())
    if through:
        central.land(arrived, 100)
    else:
        central.arrived = arrived
    compared = central.compare()
    assert sums_close(compared)
    shortfall = sum(max(f - arrived[m], 0) for m, (f, _) in sent.items())
    assert (compared.missing, compared.in_kafka) == ((shortfall, 0) if through else (0, shortfall))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=5), part, max_size=3),
    max_leaves=8,
)
GOOD = KafkaPost("web1", "d", "p", 1, 5, "1", {"udp": KafkaReport(5, 3, 1, 0, 1, {M: (3, 1)})})


@given(st.sampled_from([*GOOD.document(), "listeners.udp", "minutes"]), JSON)
def test_any_document_is_a_post_or_refused(key: str, part: Any) -> None:
    document: dict[str, Any] = GOOD.document()
    if key == "listeners.udp":
        document["listeners"] = {"udp": part}
    elif key == "minutes":
        document["listeners"]["udp"]["minutes"] = part
    else:
        document[key] = part
    try:
        post = parse_kafka_post(document)
    except BadPost:
        return
    assert parse_kafka_post(post.document()) == post


@pytest.mark.parametrize(
    "change",
    [{"minutes": {M: (4, 0)}}, {"minutes": {M + 1: (1, 0)}}, {"forwarded": -1}, {"pending": True}],
)
def test_post_that_cannot_be_true_is_refused(change: dict[str, Any]) -> None:
    report = replace(GOOD.listeners["udp"], **change)
    with pytest.raises(BadPost):
        parse_kafka_post(replace(GOOD, listeners={"udp": report}).document())
