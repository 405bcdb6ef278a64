"""The register of hosts: posts, differences to what arrived, and disks that are lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.files.checked_document import read_document, write_document
from penstock.ledger.balance import HostListener, balance, with_hosts
from penstock.ledger.book.book_pages import BookPages
from penstock.ledger.hosts import host_files, hosts
from penstock.ledger.hosts.host_posts import HostPost, ListenerReport, parse_host_post
from penstock.ledger.hosts.host_states import OnHost
from penstock.ledger.hosts.hosts import HostRegister
from penstock.ledger.posts import BadPost
from tests.fuzzed import JSON, objects

EMPTY = balance(BookPages(), {}, {})
POST = HostPost("web1", "up", "disk 1", "process", 1, 1_000_000, 0, "0.2.0", {})


class Central:
    """A register with entries that arrived, by HOST/LISTENER, and a clock (s)."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.arrived, self.now = folder, dict[str, int](), 1000.0
        self.arrived_elsewhere: dict[str, dict[str, int]] = {}
        self._version = 0
        self.restart()

    def restart(self) -> None:
        self.register = HostRegister(self.folder, self._arrived_from, lambda: self.now)

    def _arrived_from(self, host: str) -> dict[str, int]:
        return dict(self.arrived if host == "web1" else self.arrived_elsewhere.get(host, {}))

    def post(self, disk: str = "disk 1", relay: str = "up", **counts: Any) -> bool:
        self._version += 1
        report = ListenerReport(**counts)
        post = replace(POST, disk=disk, relay=relay, version=self._version, listeners={"udp": report})
        return self.register.post(post.document())

    def post_all(self, listeners: Mapping[str, ListenerReport], disk: str = "disk 1", relay: str = "up") -> bool:
        self._version += 1
        post = replace(POST, disk=disk, relay=relay, version=self._version, listeners=listeners)
        return self.register.post(post.document())

    def arrive(self, count: int, listener: str = "udp") -> None:
        self.arrived[listener] = self.arrived.get(listener, 0) + count

    def arrive_of(self, host: str, count: int) -> None:
        listeners = self.arrived_elsewhere.setdefault(host, {})
        listeners["udp"] = listeners.get("udp", 0) + count

    def rows(self, host: str = "web1") -> dict[str, OnHost]:
        """Return the rows of a host, each of which adds up."""
        entries = [HostListener(host, name, count, {}, 0, 0) for name, count in self._arrived_from(host).items()]
        rows: dict[str, OnHost] = {}
        for entry in with_hosts(replace(EMPTY, hosts=entries), {host: self.register.states[host]}).hosts:
            row = rows[entry.listener] = cast(OnHost, entry.on_host)
            gone = row.expired + row.lost_with_disk + row.unaccounted
            assert row.accepted == entry.accepted + row.pending + gone
            assert row.pending >= 0
        return rows

    def row(self) -> OnHost:
        return self.rows()["udp"]


@pytest.fixture
def central(tmp_path: Path) -> Central:
    return Central(tmp_path / "hosts")


def test_entries_that_arrive_after_a_post_are_no_longer_pending(central: Central) -> None:
    central.post(accepted=10, forwarded=0, pending=8, expired=2, lost=3, sent=15)
    assert central.row() == OnHost(10, 2, 8, 0, 0, 3, 15, 0.0, 1000.0, 0.0, "0.2.0", 0)
    central.arrive(5)
    assert (central.row().accepted, central.row().pending) == (10, 3)
    central.arrive(7)
    assert (central.row().accepted, central.row().pending) == (14, 0)


def test_register_is_read_again_after_a_restart(central: Central) -> None:
    central.post(accepted=10, pending=10)
    row = central.row()
    central.restart()
    assert central.row() == row


def test_missing_entries_are_named_with_the_minute(central: Central) -> None:
    central.arrive(4)
    central.post(accepted=5, forwarded=5)
    # The book may have the last append a moment later.
    assert (central.row().unaccounted, central.row().pending) == (0, 1)
    central.now = 1130.0
    central.post(accepted=5, forwarded=5)
    central.now = 1300.0
    central.post(accepted=6, forwarded=5, pending=1)
    assert (central.row().unaccounted, central.row().differs_since) == (1, 960)
    central.arrive(1)
    central.post(accepted=6, forwarded=5, pending=1)
    assert (central.row().unaccounted, central.row().differs_since) == (0, 0)


def test_entries_that_the_host_did_not_send_are_named(central: Central) -> None:
    central.post(accepted=5, forwarded=0, pending=5)
    central.arrive(8)
    central.post(accepted=5, forwarded=5)
    assert (central.row().unaccounted, central.row().differs_since) == (-3, 960)


def test_entries_in_doubt_may_have_arrived(central: Central) -> None:
    central.arrive(5)
    central.post(accepted=5, forwarded=2, pending=3, in_doubt=3)
    assert (central.row().unaccounted, central.row().pending) == (0, 0)


def test_entries_from_before_the_registration_were_accepted(central: Central) -> None:
    central.arrive(100)
    central.post(accepted=3, pending=3)
    assert (central.row().accepted, central.row().pending, central.row().unaccounted) == (103, 3, 0)


def test_pending_entries_of_a_former_disk_are_lost_with_it(central: Central) -> None:
    central.post(accepted=10, forwarded=0, pending=9, expired=1, lost=2)
    central.arrive(4)
    # The new disk has sent two entries before its first post.
    central.arrive(2)
    central.post(disk="disk 2", accepted=3, forwarded=2, pending=1, lost=1)
    row = central.row()
    assert (row.accepted, row.pending, row.lost_with_disk, row.expired, row.lost) == (13, 1, 5, 1, 3)
    with pytest.raises(BadPost, match="another machine has registered as web1"):
        central.post(disk="disk 1", accepted=11)


def test_relays_of_a_host_are_summed(central: Central) -> None:
    central.post(accepted=4, forwarded=4, lost=1)
    central.arrive(4)
    central.post(relay="second", accepted=3, pending=3, lost=1)
    assert (central.row().accepted, central.row().pending, central.row().lost) == (7, 3, 1)


def test_earlier_post_of_a_process_changes_nothing(central: Central) -> None:
    central.post(accepted=4, pending=4)
    late = replace(POST, version=1, listeners={"udp": ListenerReport(accepted=9, pending=9)})
    assert not central.register.post(late.document())
    assert central.row().accepted == 4
    # Another process of the host counts from 1 again.
    assert central.register.post(replace(late, process="successor").document())
    assert central.row().accepted == 9


def test_relays_of_a_host_are_bounded(central: Central, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "MAX_RELAYS", 1)
    central.post(accepted=1, pending=1)
    with pytest.raises(BadPost, match="web1 has 1 relays already"):
        central.post(relay="second")


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": ""}, {"host": ".."}, {"host": "a/b"}, {"disk": 5}, {"software": "x" * 101}, {"version": -1},
        {"time_ms": 1.5}, {"listeners": []}, {"listeners": {"udp": {"accepted": True}}}, {"listeners": {"udp": 5}},
        {"listeners": {str(number): {} for number in range(101)}},
    ],
    ids=str,
)  # fmt: skip
def test_impossible_post_is_refused(wrong: dict[str, object]) -> None:
    assert parse_host_post(POST.document()) == POST
    with pytest.raises(BadPost):
        parse_host_post({**POST.document(), **wrong})


def test_listener_without_entries_in_the_first_post_differs_on_no_disk(central: Central) -> None:
    central.arrive(8, "tcp")
    central.post_all({})
    central.arrive(5, "tcp")
    for disk in ("disk 1", "disk 2", "disk 3"):
        central.post_all({}, disk)
    central.post_all({"tcp": ListenerReport(accepted=9, pending=9)}, "disk 3")
    row = central.rows()["tcp"]
    assert (row.accepted, row.pending, row.unaccounted) == (22, 9, 0)


def test_entries_of_listeners_that_a_post_does_not_name_are_of_further_ones(central: Central) -> None:
    central.arrive(2, "former")
    central.post(accepted=0)
    for disk in ("disk 1", "disk 2"):
        named = {str(number): ListenerReport(accepted=1, forwarded=1) for number in range(99)}
        for name in (*named, "a", "b"):
            central.arrive(1, name)
        for _ in range(2):
            central.post_all({**named, "further": ListenerReport(accepted=3, forwarded=2, pending=1)}, disk)
        rows = central.rows()
        assert not {"a", "b", "former"} & rows.keys()
        assert not any(row.unaccounted for row in rows.values())
    assert (rows["further"].accepted, rows["further"].pending, rows["further"].lost_with_disk) == (8, 1, 1)
    # A later disk names a listener that was a further one.
    central.post_all({"a": ListenerReport(accepted=4, pending=4)}, "disk 3")
    rows = central.rows()
    assert (rows["a"].accepted, rows["a"].pending, rows["a"].unaccounted) == (6, 4, 0)
    central.arrive(4, "b")
    central.post_all({"further": ListenerReport(accepted=3, forwarded=3), "a": ListenerReport()}, "disk 3")
    central.post_all({"further": ListenerReport(accepted=3, forwarded=3), "a": ListenerReport()}, "disk 3")
    assert central.rows()["further"].unaccounted == -1


def test_relays_of_a_host_that_registers_late_do_not_differ(central: Central) -> None:
    central.arrive(50)
    for _ in range(3):
        central.post(relay="r1", accepted=20, forwarded=20)
        central.post(relay="r2", accepted=30, forwarded=30)
        assert (central.row().accepted, central.row().unaccounted) == (50, 0)


@pytest.mark.parametrize("pending", [0, 12])
def test_relays_that_count_further_listeners_do_not_differ(central: Central, pending: int) -> None:
    for disk in ("disk 1", "disk 2"):
        central.arrive(3, "a")
        central.arrive(9, "b")
        for relay, count in (("r1", 0), ("r2", 12), ("r1", 0), ("r2", 12)):
            report = ListenerReport(count + pending, count, pending=pending)
            central.post_all({"further": report}, disk, relay)
    row = central.rows()["further"]
    lost = 2 * pending
    assert (row.accepted, row.pending, row.lost_with_disk, row.unaccounted) == (24 + 2 * lost, lost, lost, 0)


def test_second_relay_of_a_new_disk_sent_nothing_for_the_former_one(central: Central) -> None:
    central.post(relay="r1", accepted=10, pending=10)
    # Relays of the new disk: the second one has sent before either of them posts.
    central.arrive(12)
    for _ in range(2):
        central.post(relay="r1", disk="disk 2", accepted=1, pending=1)
        central.post(relay="r2", disk="disk 2", accepted=12, forwarded=12)
    row = central.row()
    assert (row.accepted, row.pending, row.lost_with_disk, row.unaccounted) == (23, 1, 10, 0)


def test_renamed_host_does_not_differ(central: Central) -> None:
    central.arrive(100)
    central.post(accepted=100, forwarded=100)
    for version in range(3):
        report = ListenerReport(accepted=101 + version, forwarded=101 + version)
        post = replace(POST, host="web2", process="successor", version=version, listeners={"udp": report})
        central.register.post(post.document())
        central.arrive_of("web2", 1)
        assert central.rows("web2")["udp"].unaccounted == 0
    assert (central.rows("web2")["udp"].accepted, central.rows("web2")["udp"].pending) == (3, 0)


def test_renamed_host_still_shows_a_loss(central: Central) -> None:
    central.arrive(90)
    central.post(accepted=100, forwarded=100)
    for version in range(2):
        listeners = {"udp": ListenerReport(accepted=100, forwarded=100)}
        post = replace(POST, host="web2", process="successor", version=version, listeners=listeners)
        central.register.post(post.document())
    assert central.rows("web2")["udp"].unaccounted == 10


def test_counts_that_do_not_add_up_are_unaccounted(central: Central) -> None:
    central.arrive(2)
    central.post(accepted=4, forwarded=2, expired=10)
    assert (central.row().unaccounted, central.row().pending, central.row().differs_since) == (-8, 0, 960)


def test_removed_relay_does_not_hide_surplus_entries(central: Central) -> None:
    central.arrive(50)
    central.post(relay="removed", accepted=50, pending=50)
    central.post(accepted=50, forwarded=50)
    # The removed relay has sent these after its last post.
    central.arrive(5)
    for _ in range(3):
        central.now += 3600
        central.post(accepted=50, forwarded=50)
    assert (central.row().unaccounted, central.row().pending) == (0, 45)
    central.arrive(30)
    central.post(accepted=50, forwarded=50)
    central.restart()
    assert central.row().unaccounted == -30
    # The relay is added again.
    central.post(relay="removed", accepted=50, forwarded=35, pending=15)
    assert (central.row().unaccounted, central.row().pending) == (0, 15)


def test_late_post_of_a_former_process_changes_nothing(central: Central) -> None:
    for process, count in (("first", 1), ("second", 2), ("first", 3)):
        post = replace(POST, process=process, version=count, listeners={"udp": ListenerReport(count, pending=count)})
        assert central.register.post(post.document()) == (count < 3)
        central.restart()
    assert central.row().accepted == 2


def test_version_is_of_the_post_that_was_received_last(central: Central) -> None:
    listeners = {"udp": ListenerReport()}
    # The host's clock was set back.
    posts = (("old", 9_000_000, "0.1.0"), ("new", 999_000, "0.2.0"))
    for relay, time_ms, software in posts:
        post = replace(POST, relay=relay, time_ms=time_ms, software=software, listeners=listeners)
        central.register.post(post.document())
        central.now += 1
    assert (central.row().version, central.row().clock_offset_s) == ("0.2.0", -2.0)


@pytest.mark.survives("hosts", "flood")
def test_new_disks_within_an_hour_are_bounded(central: Central) -> None:
    for number in range(11):
        central.post(f"disk {number}", accepted=1, pending=1)
    with pytest.raises(BadPost, match="web1 has registered 10 new disks within an hour"):
        central.post("disk 11")
    central.now += 3600
    assert central.post("disk 11")
    assert central.row().lost_with_disk == 11


@pytest.mark.survives("hosts", "flood")
def test_listeners_of_former_disks_are_bounded(central: Central, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "MAX_CLOSED", 3)
    for disk in range(5):
        central.now += 900
        central.post_all({f"{disk}-{name}": ListenerReport(2, 1, pending=1) for name in "ab"}, f"disk {disk}")
        for name in "ab":
            central.arrive(1, f"{disk}-{name}")
    assert len(central.register.states["web1"].closed) == len(central.register.states["web1"].baseline) == 4
    rows = central.rows()
    assert set(rows) == {"4-a", "4-b", "further"}
    assert (rows["further"].accepted, rows["further"].lost_with_disk, rows["further"].unaccounted) == (16, 8, 0)


class SimulatedHost:
    """A host whose counts are right, and that posts first on each new disk."""

    def __init__(self, central: Central, random: Random) -> None:
        self._central, self._random, self._disks = central, random, 0
        self.use_new_disk()

    def use_new_disk(self) -> None:
        self._disks += 1
        self._counts: dict[str, ListenerReport] = {}
        self._in_doubt = ("", 0)
        self.post()

    def accept(self) -> None:
        name, count = self._random.choice("xy"), self._random.randint(1, 9)
        report = self._counts.get(name, ListenerReport())
        self._counts[name] = replace(report, accepted=report.accepted + count, pending=report.pending + count)

    def expire(self) -> None:
        name, report = self._listener()
        count = min(self._random.randint(0, 3), report.pending - self._in_doubt[1])
        if count > 0:
            self._counts[name] = replace(report, expired=report.expired + count, pending=report.pending - count)

    def append(self) -> None:
        name, report = self._listener()
        count = min(self._random.randint(0, 9), report.pending)
        if count and not self._in_doubt[0]:
            self._central.arrive(count, name)
            self._in_doubt = (name, count)
            if self._random.random() < 0.7:
                self._resolve()

    def post(self) -> None:
        if self._in_doubt[0] and self._random.random() < 0.5:
            self._resolve()
        name, count = self._in_doubt
        doubts = {name: replace(self._counts[name], in_doubt=count)} if name else {}
        self._central.post_all({**self._counts, **doubts}, f"disk {self._disks}")

    def _resolve(self) -> None:
        name, count = self._in_doubt
        report = self._counts[name]
        self._counts[name] = replace(report, forwarded=report.forwarded + count, pending=report.pending - count)
        self._in_doubt = ("", 0)

    def _listener(self) -> tuple[str, ListenerReport]:
        name = self._random.choice("xy")
        return name, self._counts.get(name, ListenerReport())


STEPS = ("accept", "accept", "append", "append", "expire", "post", "post", "use_new_disk")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=40), st.randoms(use_true_random=False))
def test_right_counts_of_a_host_never_differ(steps: list[str], random: Random) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        # Fast path: a durable file for each post takes most of the time.
        patch.setattr(host_files, "write_document", lambda *_: None)
        central = Central(Path(folder))
        host = SimulatedHost(central, random)
        for step in steps:
            central.now += 900
            getattr(host, step)()
            assert not any(row.unaccounted for row in central.rows().values())


@pytest.mark.parametrize("text", ["\ud800", "\x1b[2J", "a\n", "\u202e"], ids=ascii)
def test_text_that_cannot_be_shown_is_refused(central: Central, text: str) -> None:
    for wrong in ({"listeners": {text: {}}}, {"relay": text}, {"software": text}, {"disk": text}, {"process": text}):
        with pytest.raises(BadPost, match="cannot be printed") as refusal:
            central.register.post({**POST.document(), **wrong})
        str(refusal.value).encode()


@pytest.mark.parametrize("key", ["posts", "closed", "baseline"])
def test_stored_text_that_cannot_be_shown_is_set_aside(central: Central, key: str) -> None:
    central.post(accepted=4, pending=4)
    path = central.folder / "web1.json"
    document = read_document(path)
    post = document["posts"]["up"]
    stored = {
        "posts": {"up": {**post, "listeners": {"\ud800": {}}}},
        "closed": {"\ud800": {}},
        "baseline": {"\ud800": 1},
    }
    write_document(path, {**document, key: stored[key]})
    central.restart()
    assert not central.register.states
    assert path.with_suffix(".damaged").exists()


@given(JSON | objects(*HostPost.__slots__).map(lambda changes: {**POST.document(), **changes}))
def test_any_document_is_a_post_or_refused(document: Any) -> None:
    try:
        post = parse_host_post(document)
    except BadPost:
        return
    assert parse_host_post(post.document()) == post
