"""Hosts that forward to Kafka: differences are named by host, listener and minute once they are certain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.ledger import balance
from penstock.ledger import ledger as ledger_module
from penstock.ledger.hosts import over_kafka
from penstock.ledger.hosts.host_files import MAX_NEW_DISKS
from penstock.ledger.hosts.hosts import MAX_CLOSED
from penstock.ledger.hosts.kafka_hosts import (
    FOLDER,
    MAX_PIPELINES,
    PIPELINE_SILENCE_S,
    KafkaHostRegister,
    KafkaPost,
    KafkaReport,
    parse_kafka_post,
)
from penstock.ledger.hosts.over_kafka import OverKafka
from penstock.ledger.ledger import Ledger
from penstock.ledger.posts import BadPost
from penstock.log import Log

M = 1_795_806_960 // 60 * 60
"""A minute."""


class Central:
    """A register with a clock, the landed offsets and the landed messages of web1/udp by minute."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now, self.through, self.versions = folder, float(M + 600), {"t/0": 0}, 0
        self.arrived: dict[int, int] = {}
        self.clock_step = 0.0
        self.register = self.open()

    def open(self) -> KafkaHostRegister:
        return KafkaHostRegister(
            self.folder / FOLDER, lambda: self.through, lambda: self.now + self.clock_step, lambda: self.now
        )

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
        self.post_ends({"t/0": through})
        self.arrived, self.through = dict(arrived), {"t/0": through}
        self.compare()
        self.post_ends({"t/0": through})

    def post_ends(self, ends: Mapping[str, int], pipeline: str = "") -> bool:
        self.now += 11
        return self.register.post_ends({"ends": ends, "age_ms": 1, "pipeline": pipeline})

    def compare(
        self, rolled: int = 0, promoted: Mapping[int, int] | None = None, duplicates: Mapping[int, int] | None = None
    ) -> OverKafka:
        arrived, copies, repeated = ({"web1/udp": counts or {}} for counts in (self.arrived, promoted, duplicates))
        return over_kafka.compare(self.register.settled_states(), arrived, rolled, copies, repeated)["web1", "udp"]


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


def test_duplicates_of_a_killed_handler_hide_no_message_that_was_lost_with_a_disk(tmp_path: Path) -> None:
    central = Central(tmp_path)
    minute = int(central.now) // 60 * 60
    central.post({minute: (4, 0)}, pending=6)
    central.now += 30
    central.post({minute: (3, 0), minute + 60: (1, 0)}, disk="new")
    central.land({minute: 12, minute + 60: 1}, 13)  # two of the pending ones, and three sent twice
    compared = central.compare(duplicates={minute: 3})
    assert (compared.accepted, compared.forwarded, compared.lost_with_disk) == (14, 8, 4)
    assert (compared.doubled, compared.unposted, compared.missing) == (3, 2, 0)
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


def test_posts_survive_a_restart(tmp_path: Path) -> None:
    central = Central(tmp_path)
    central.post({M: (10, 0)})
    central.post({M: (1, 0)}, disk="new")
    central.register = central.open()
    assert central.compare().forwarded == 11


def test_old_versions_of_a_process_are_not_entered(tmp_path: Path) -> None:
    central = Central(tmp_path)
    central.post({M: (10, 0)})
    central.versions -= 1
    assert not central.post({M: (9, 0)})
    assert central.compare().forwarded == 10


def test_post_of_a_former_disk_is_refused_also_after_a_restart(tmp_path: Path) -> None:
    central = Central(tmp_path)
    central.post({M: (10, 0)})
    central.post({M: (5, 0)}, disk="new")
    for register in (central.register, central.open()):
        central.register = register
        with pytest.raises(BadPost, match=r"another machine has registered as web1.*remove kafka-hosts/web1\.json"):
            central.post({M: (10, 0)})
        assert central.compare().forwarded == 15
    central.post({M: (6, 0)}, disk="new")
    assert central.compare().forwarded == 16


def test_new_disks_and_their_listeners_are_limited(tmp_path: Path) -> None:
    central = Central(tmp_path)

    def post(number: int) -> None:
        names = [f"l{number}.{listener}" for listener in range(100)]
        listeners = dict.fromkeys(names, KafkaReport(1, 1, minutes={M: (1, 0)}))
        document = KafkaPost("web1", f"d{number}", f"p{number}", 1, 0, "1", listeners).document()
        central.register.post(document)

    for number in range(MAX_CLOSED // 100 + 1):
        post(number)
    with pytest.raises(BadPost, match="web1 has 400 listeners of former disks"):
        post(MAX_CLOSED // 100 + 1)
    assert len(central.register.settled_states()["web1"].closed) == MAX_CLOSED
    (tmp_path / FOLDER / "web1.json").unlink()
    central.register = central.open()
    for number in range(MAX_NEW_DISKS + 1):
        central.post({}, disk=f"d{number}")
    with pytest.raises(BadPost, match="10 new disks within an hour"):
        central.post({}, disk="last")
    central.now += 3600
    assert central.post({}, disk="last")


@pytest.mark.survives("hosts", "wrong clock")
def test_posts_after_a_clock_step_back_are_not_settled_by_earlier_ends(tmp_path: Path) -> None:
    central = Central(tmp_path)
    central.post({M: (5, 0)})
    central.land({M: 5}, 5)
    central.clock_step = -4000.0
    central.post({M: (9, 0)})
    assert (central.compare().in_kafka, central.compare().missing) == (4, 0)
    central.register = central.open()
    assert (central.compare().in_kafka, central.compare().missing) == (4, 0)
    central.land({M: 8}, 9)
    assert (central.compare().in_kafka, central.compare().missing) == (0, 1)


def test_ends_of_a_topic_that_is_gone_or_begins_again_do_not_hold_back_verdicts(tmp_path: Path) -> None:
    central = Central(tmp_path)
    central.post({M: (5, 0)})
    central.arrived = {M: 3}
    central.through = {"t/0": 5, "again/0": 2}
    central.post_ends({"t/0": 5, "gone/0": 7, "again/0": 9})
    assert central.compare().missing == 0
    central.post_ends({"t/0": 5, "again/0": 2})
    assert (central.compare().missing, central.compare().in_kafka) == (2, 0)


def test_each_pipeline_must_have_reached_its_ends_until_it_is_silent_for_a_day(tmp_path: Path) -> None:
    central = Central(tmp_path)
    central.post({M: (5, 0)})
    central.arrived, central.through = {M: 3}, {"t/0": 5, "u/0": 1}
    central.post_ends({"u/0": 2}, "second")
    central.post_ends({"t/0": 5}, "first")
    assert (central.compare().missing, central.compare().in_kafka) == (0, 2)
    central.now += PIPELINE_SILENCE_S
    central.post_ends({"t/0": 5}, "first")
    assert (central.compare().missing, central.compare().in_kafka) == (2, 0)
    for number in range(MAX_PIPELINES - 1):
        central.post_ends({}, str(number))
    with pytest.raises(BadPost, match="100 pipelines"):
        central.post_ends({}, "one more")


def test_answer_to_ends_names_whether_any_host_is_registered(tmp_path: Path) -> None:
    central = Central(tmp_path)
    assert not central.post_ends({})
    central.post({M: (5, 0)})
    assert central.post_ends({})


def test_messages_that_land_while_the_balance_is_read_are_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [float(M + 600)]
    log = Log(tmp_path / "topics")
    ledger = Ledger(log, tmp_path / "buffers", [])
    ledger.kafka_hosts = KafkaHostRegister(
        tmp_path / FOLDER, ledger._book.landed_through, lambda: now[0], lambda: now[0]
    )
    post = KafkaPost("web1", "d", "p", 1, 0, "1", {"udp": KafkaReport(10, 10, minutes={M: (10, 0)})})
    assert ledger.post(post.document())
    now[0] += 11
    assert ledger.post({"tier": "kafka_ends", "ends": {"t/0": 10}, "age_ms": 1})
    counts = [{"source": "web1/udp", "bucket": M, "counts": {"landed.event": 10}}]
    landed = {"tier": "landed", "topic": "t/0", "version": 0, "through": 10, "end": 10, "counts": counts}

    def post_and_sum(*pages: Any) -> balance.Balance:
        ledger.post(landed)
        return balance_of(*pages)

    balance_of = ledger_module.balance_of
    monkeypatch.setattr(ledger_module, "balance_of", post_and_sum)
    for in_kafka in (10, 0):
        (row,) = ledger.balance().hosts
        assert row.over_kafka is not None
        assert (row.over_kafka.missing, row.over_kafka.in_kafka) == (0, in_kafka)
    log.close()


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


def test_messages_that_were_relayed_and_then_promoted_are_no_doubled_ones(tmp_path: Path) -> None:
    # Minute 60 was relayed alone and is older than the report, 120 was relayed in part, 180 was only forwarded.
    central = Central(tmp_path)
    central.post({120: (10, 0), 180: (10, 0)})
    central.land({60: 4, 120: 13, 180: 12}, 39)
    central.post({120: (10, 0), 180: (10, 0), 240: (0, 0)})
    compared = central.compare(promoted={60: 4, 120: 3})
    assert (compared.doubled, compared.landed, compared.missing, compared.in_kafka) == (2, 22, 0, 0)
    assert compared.doubled_minutes == (180, 180)
    assert sums_close(compared)
    # Without the ledger's promoted counts all of them were doubled.
    assert central.compare().doubled == 9


@given(st.data())
def test_minutes_that_no_post_names_are_compared_by_their_sum(
    tmp_path_factory: pytest.TempPathFactory, data: Any
) -> None:
    central = Central(tmp_path_factory.mktemp("central"))
    counts = st.dictionaries(st.integers(-3, 6).map(lambda minute: M + 60 * minute), st.integers(0, 9), max_size=8)
    for disk in data.draw(st.sampled_from(("d", "dd", "de"))):
        sent = {minute: (count, 0) for minute, count in data.draw(counts).items()}
        central.post(sent, disk=disk, pending=data.draw(st.integers(0, 3)), older=data.draw(st.integers(0, 5)))
        central.land(data.draw(counts), 100)
    rolled = data.draw(st.sampled_from((0, M, M + 120)))
    hosts = central.register.settled_states()
    since = over_kafka.separate_since(hosts, rolled)["web1/udp"]
    summed = {minute: count for minute, count in central.arrived.items() if minute >= since}
    summed[0] = sum(central.arrived.values()) - sum(summed.values())
    each = over_kafka.compare(hosts, {"web1/udp": central.arrived}, rolled)
    assert over_kafka.compare(hosts, {"web1/udp": summed}, rolled) == each


def test_promoted_messages_that_have_not_landed_make_no_other_message_missing(tmp_path: Path) -> None:
    central = Central(tmp_path)
    central.post({120: (10, 0)})
    central.land({120: 10}, 10)
    compared = central.compare(promoted={60: 4, 120: 3})
    assert (compared.missing, compared.in_kafka, compared.doubled, compared.landed) == (0, 0, 0, 10)
    assert sums_close(compared)
