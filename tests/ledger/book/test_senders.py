"""Senders in the ledger: stored once, kept when a table is lost, and never counted twice."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from penstock.counts import Counts
from penstock.handover.paths import senders_file
from penstock.handover.sender_reading import read_senders
from penstock.handover.sender_table import (
    ACCEPTED,
    MAX_SENDERS,
    OTHERS,
    Arrivals,
    SenderTable,
    address_names,
    named_arrivals,
    sender_counts,
)
from penstock.ingest.slots import SENDER
from penstock.ledger.book.book_from_topics import load
from penstock.ledger.book.bucket_tables import RowTable
from penstock.ledger.book.senders import NO_TABLE, SenderPages, silent_hosts, sum_totals, totals_of
from penstock.ledger.ledger import Ledger
from penstock.ledger.posts import SenderTotals
from penstock.log import Log

NOW_US = 1_800_000_000_000_000
HOUR, MINUTE = 3600, 60


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = Log(tmp_path / "topics")
    yield log
    log.close()


class Receiver:
    """The table of one receiver."""

    def __init__(self, folder: Path, name: str = "in") -> None:
        self.path, self.now, self.position = senders_file(folder, name), 0.0, 0
        self.table = SenderTable(self.path, -1, lambda: self.now)

    def hear(self, name: str, times: int = 1, after: float = 0.0) -> None:
        for _ in range(times):
            self.now += after
            counts = sender_counts(1)[0]
            counts[ACCEPTED] = 1
            self.table.stage(named_arrivals({name: counts}), self.position, NOW_US + int(self.now * 1e6))
            self.table.confirm(self.position)
            self.position += 32
        self.table.tick()


def accepted(ledger: Ledger, *receivers: str) -> dict[str, int]:
    return {state.name: state.totals.counts["accepted"] for state in ledger.senders(receivers or ("in",), 0.0)}


def test_senders_are_known_when_their_table_is_lost(log: Log, tmp_path: Path) -> None:
    receiver, ledger = Receiver(tmp_path), Ledger(log, tmp_path, ["in"])
    receiver.hear("a", 3)
    receiver.hear("b")
    ledger.post_senders()
    receiver.hear("a")
    assert accepted(ledger) == {"a": 4, "b": 1}
    receiver.path.unlink()
    assert accepted(ledger) == {"a": 3, "b": 1}
    receiver = Receiver(tmp_path)
    receiver.hear("a", 2)
    ledger.post_senders()
    assert accepted(ledger) == {"a": 5, "b": 1}
    receiver.hear("a")
    assert accepted(ledger) == {"a": 6, "b": 1}


def test_only_changed_senders_are_posted_and_a_restart_knows_them(log: Log, tmp_path: Path) -> None:
    receiver, ledger = Receiver(tmp_path), Ledger(log, tmp_path, ["in"])
    for name in ("a", "b", "a"):
        receiver.hear(name)
    for _ in range(3):
        ledger.post_senders()
    assert log.topic("_ledger", internal=True).end == 1
    receiver.hear("b")
    ledger.post_senders()
    ledger.write_checkpoint()
    posted = load(log.directory).snapshot().senders
    assert {name: totals.counts["accepted"] for name, totals in posted["in"].sum_gone_tables(NO_TABLE).items()} == {
        "a": 2,
        "b": 2,
    }
    receiver.path.unlink()
    assert accepted(Ledger(log, tmp_path, ["in"])) == {"a": 2, "b": 2}
    assert Ledger(log, tmp_path, ["in"])._book.snapshot().senders == posted


def test_senders_are_posted_once_an_hour_of_listening_over_restarts(log: Log, tmp_path: Path) -> None:
    receiver = Receiver(tmp_path)

    def posts_after(listened_s: float) -> int:
        receiver.hear("a", after=listened_s)
        Ledger(log, tmp_path, ["in"]).write_checkpoint()
        return log.topic("_ledger", create=True, internal=True).end

    assert [posts_after(listened_s) for listened_s in (1799.0, 1799.0, 3.0, 3598.0, 3.0)] == [0, 0, 1, 1, 2]


def test_senders_of_several_receivers_of_a_port_are_one(log: Log, tmp_path: Path) -> None:
    first, second, ledger = Receiver(tmp_path), Receiver(tmp_path, "in-2"), Ledger(log, tmp_path, ["in", "in-2"])
    first.hear("a", 600, 1.0)
    first.hear("b", 600, 1.0)
    second.hear("a", 600, 1.0)
    assert accepted(ledger, "in", "in-2") == {"a": 1200, "b": 600}
    states = {state.name: state for state in ledger.senders(["in", "in-2"], 0.0)}
    # "a" fell silent at the first receiver only: the kernel chose the other one.
    assert {name: state.is_silent for name, state in states.items()} == {"a": False, "b": False}
    assert {state.name: state.is_silent for state in ledger.senders(["in"], 0.0)} == {"a": True, "b": False}


def test_sender_that_a_second_receiver_heard_once_becomes_silent(log: Log, tmp_path: Path) -> None:
    first, second, ledger = Receiver(tmp_path), Receiver(tmp_path, "in-2"), Ledger(log, tmp_path, ["in", "in-2"])
    second.hear("a")
    for receiver in (first, second):
        receiver.hear("b", 600, 1.0)
    first.hear("a", 600, 1.0)
    for receiver in (first, second):
        receiver.hear("b", 70, 1.0)
    states = {state.name: state for state in ledger.senders(["in", "in-2"], 0.0)}
    assert {name: state.is_silent for name, state in states.items()} == {"a": True, "b": False}
    assert states["a"].pauses == (70.0, 1.0)


def test_senders_with_one_name_are_sum_totals(tmp_path: Path) -> None:
    address, table = np.zeros(1, SENDER), SenderTable(tmp_path / "table", -1)
    address["family"], address["ipv4"] = socket.AF_INET, 0xC0000201
    arrivals = named_arrivals({"192.0.2.1": sender_counts(1)[0] + 1})
    of_address = Arrivals(np.array([5], np.uint64), sender_counts(1) + 2, 1, lambda _: address_names(address))
    for position, part in enumerate((arrivals, of_address)):
        table.stage(part, position, NOW_US)
        table.confirm(position)
    senders = read_senders(tmp_path / "table")
    assert senders is not None
    assert totals_of(senders)["192.0.2.1"].counts["accepted"] == 3


def test_tables_that_are_gone_take_no_late_post(tmp_path: Path) -> None:
    def totals(count: int) -> dict[str, SenderTotals]:
        return {"a": SenderTotals(1, 2, Counts({"accepted": count}))}

    pages = SenderPages()
    assert pages.enter("first", 5, totals(1))
    assert not pages.enter("first", 4, totals(9))
    assert pages.enter("first", 5, {"b": SenderTotals(3, 4, Counts({"accepted": 7}))})
    assert pages.enter("second", 1, totals(2))
    assert not pages.enter("first", 6, totals(9))
    assert pages.sum_gone_tables(NO_TABLE) == {
        "a": SenderTotals(1, 2, Counts({"accepted": 3})),
        "b": pages.sum_gone_tables("second")["b"],
    }
    assert pages.enter("second", 2, {"a": SenderTotals(0, 0, Counts())})
    assert pages.sum_gone_tables(NO_TABLE)["a"].counts["accepted"] == 1


def test_the_smallest_senders_of_a_sum_are_others() -> None:
    totals = {f"s{number}": SenderTotals(1, 2, Counts({"accepted": 1 + number})) for number in range(MAX_SENDERS + 2)}
    total = sum_totals([totals])
    assert len(total) == MAX_SENDERS + 1
    assert total[OTHERS].counts["accepted"] == 1 + 2


def test_a_host_that_stopped_relaying_is_silent_after_ten_usual_pauses() -> None:
    begin = 1_800_000_000 // MINUTE * MINUTE
    minutes = [begin + number * MINUTE for number in range(60) if number != 30]
    entries = [("db1/in", bucket) for bucket in minutes] + [("db2/in", bucket) for bucket in minutes[:5]]
    logged = {"web": RowTable(dict.fromkeys([*entries, ("in", begin)], 1))}
    last = minutes[-1] + MINUTE
    assert silent_hosts(logged, last + 590) == {}
    assert silent_hosts(logged, last + 610) == {"db1": 610}
    # After a day without an entry the host is forgotten.
    assert silent_hosts(logged, last + 26 * HOUR) == {}
