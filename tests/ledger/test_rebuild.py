"""The rebuilt balance, and its differences from the ledger's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.counts import Counts, Origin
from penstock.ledger.ledger import Ledger
from penstock.ledger.posts import parse
from penstock.ledger.rebuild import differences, rebuild_balance
from penstock.log import Log
from penstock.records import body

ORIGIN = Origin("http", 60, 0, 0, counts=Counts({"accepted": 3}))
LANDED = {
    "tier": "landed",
    "topic": "events",
    "version": 0,
    "through": 3,
    "counts": [{"source": "http", "bucket": 60, "counts": {"landed.message": 3}}],
}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """The ledger of a log with one batch that has landed completely."""
    log = Log(tmp_path / "topics")
    log.topic("events", create=True).append(body([b"x"] * 3), ORIGIN).result()
    log.topic("events").wait_until_idle()
    opened = Ledger(log, tmp_path, [])
    opened.post(LANDED)
    yield opened
    log.close()


def test_rebuilt_balance_equals_that_of_the_ledger(ledger: Ledger, tmp_path: Path) -> None:
    now = ledger.balance().document()
    rebuilt = rebuild_balance(tmp_path / "topics", tmp_path, [], [parse(LANDED)], lambda: now)
    assert rebuilt == now | {"differs": []}


def test_table_with_missing_rows_differs_from_the_ledger(ledger: Ledger, tmp_path: Path) -> None:
    now = ledger.balance().document()
    rebuilt = rebuild_balance(tmp_path / "topics", tmp_path, [], [], lambda: now)
    (line,) = rebuilt["differs"]
    assert (
        line
        == "topic events: landed.message 3 in the ledger, 0 computed; read_by_pipeline yes in the ledger, no computed"
    )


def test_posts_of_hosts_and_states_of_disks_and_processes_do_not_prevent_the_comparison(
    ledger: Ledger, tmp_path: Path
) -> None:
    now, posts = ledger.balance().document(), iter(range(2))

    def running() -> dict[str, Any]:
        number = next(posts)
        hosts = [{"host": "a", "way": "relay", "fates": {}, "reported_at": number}]
        return now | {"hosts": hosts, "low_disks": {"/data": number}, "silent": {"receiver": number}}

    rebuilt = rebuild_balance(tmp_path / "topics", tmp_path, [], [], running)
    assert len(rebuilt["differs"]) == 1


def test_without_a_daemon_nothing_is_compared(ledger: Ledger, tmp_path: Path) -> None:
    rebuilt = rebuild_balance(tmp_path / "topics", tmp_path, [], [], lambda: None)
    assert (rebuilt["differs"], rebuilt["topics"][0]["logged"]) == ([], 3)


def landed_topic(**uuids: tuple[int, str]) -> dict[str, Any]:
    sums = {fate: {"rows": rows, "sum": total} for fate, (rows, total) in uuids.items()}
    return {"listeners": [], "routes": [], "topics": [{"topic": "t", "logged": 2, "uuids": sums}]}


def test_topic_with_another_sum_of_uuids_differs() -> None:
    assert differences(landed_topic(event=(2, "0a")), landed_topic(event=(2, "0a"))) == []
    (line,) = differences(landed_topic(event=(2, "0a")), landed_topic(event=(2, "0b")))
    assert line == "topic t: uuids.event.sum 0a in the ledger, 0b computed"


def test_proofs_without_sums_of_uuids_are_not_compared_by_them() -> None:
    assert differences(landed_topic(), landed_topic(event=(2, "0a"))) == []
    assert differences(landed_topic(event=(1, "0a")), landed_topic(event=(2, "0b"))) == []


def test_former_fate_of_a_deleted_row_is_no_difference() -> None:
    entry = {"topic": "t", "fates": {"deleted.asked": 1, "transformed.redacted": 1}}
    ledger: dict[str, Any] = {"listeners": [], "routes": [], "topics": [entry]}
    computed = ledger | {"topics": [entry | {"fates": {"deleted.asked": 1}}]}
    assert differences(ledger, computed) == []
    assert differences(ledger, ledger | {"topics": [entry | {"fates": {"landed.event": 1}}]}) != []


def test_difference_is_one_plain_line_and_names_what_is_missing() -> None:
    entry = {"topic": "t", "logged": 3, "read_by_pipeline": True, "fates": {"landed.event": 3}}
    ledger: dict[str, Any] = {"listeners": [], "routes": [], "topics": [entry]}
    changed = entry | {"read_by_pipeline": False, "fates": {"landed.event": 2, "duplicate": 1}}
    assert differences(ledger, ledger | {"topics": [changed]}) == [
        "topic t: read_by_pipeline yes in the ledger, no computed; landed.event 3 in the ledger, 2 computed; "
        "duplicate 0 in the ledger, 1 computed"
    ]
    assert differences(ledger, ledger | {"topics": []}) == ["topic t: missing in the files"]
