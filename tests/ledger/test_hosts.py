"""The register of hosts: posts, differences to what arrived, and disks that are lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from penstock.files.checked_document import read_document, write_document
from penstock.ledger import hosts
from penstock.ledger.hosts import HostPost, HostRegister, ListenerReport, OnHost, on_host, parse_host_post
from penstock.ledger.posts import BadPost
from tests.fuzzed import documents

POST = HostPost("web1", "up", "disk 1", "process", 1, 1_000_000, 0, "0.2.0", {})


class Central:
    """A register with entries that arrived, by HOST/LISTENER, and a clock (s)."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.arrived, self.now = folder, dict[str, int](), 1000.0
        self._version = 0
        self.restart()

    def restart(self) -> None:
        self.register = HostRegister(self.folder, lambda source: self.arrived.get(source, 0), lambda: self.now)

    def post(self, disk: str = "disk 1", relay: str = "up", **counts: Any) -> bool:
        self._version += 1
        report = ListenerReport(**counts)
        post = replace(POST, disk=disk, relay=relay, version=self._version, listeners={"udp": report})
        return self.register.post(post.document())

    def arrive(self, count: int) -> None:
        self.arrived["web1/udp"] = self.arrived.get("web1/udp", 0) + count

    def row(self) -> OnHost:
        arrived = self.arrived.get("web1/udp", 0)
        row = on_host(self.register.states["web1"], "udp", arrived)
        assert row.accepted == arrived + row.expired + row.pending + row.lost_with_disk + row.unaccounted
        return row


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


def test_damaged_file_is_set_aside(central: Central, caplog: pytest.LogCaptureFixture) -> None:
    central.post(accepted=4, pending=4)
    (central.folder / "web1.json").write_bytes(b"damaged")
    central.restart()
    assert not central.register.states
    assert (central.folder / "web1.damaged").exists()
    assert "the counts of host web1 are set aside" in caplog.text


def test_hosts_and_relays_are_bounded(central: Central, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "MAX_HOSTS", 1)
    monkeypatch.setattr(hosts, "MAX_RELAYS", 1)
    central.post(accepted=1, pending=1)
    with pytest.raises(BadPost, match="1 hosts are registered already"):
        central.register.post(replace(POST, host="web2").document())
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


@given(documents(*HostPost.__slots__))
def test_any_document_is_a_post_or_refused(document: Any) -> None:
    try:
        post = parse_host_post(document)
    except BadPost:
        return
    assert parse_host_post(post.document()) == post
