"""Metrics of topics and their cursors."""

from __future__ import annotations

import time
from pathlib import Path

from penstock.counts import Origin
from penstock.handover.heartbeat import Heartbeat
from penstock.log import Log
from penstock.records import body
from penstock.server.metrics.topic_metrics import MAX_RELAY_SILENCE_S, relay_families, topic_families


def samples_by_family(log: Log) -> dict[str, dict[tuple[str, ...], float]]:
    return {
        family.name: {tuple(labels.values()): value for labels, value in family.samples}
        for family in topic_families(log)
    }


def append(log: Log, topic: str, *payloads: bytes) -> None:
    log.topic(topic, create=True).append(body(list(payloads)), Origin("grpc", 0, 0, 0)).result(20)


def test_sizes_and_cursor_lags_are_reported_without_readers(tmp_path: Path) -> None:
    log = Log(tmp_path)
    append(log, "t", b"one", b"two")
    append(log, "u", b"one")
    log.topic("t").cursors.commit("slow", 0)
    log.topic("t").cursors.commit("done", 2)
    samples = samples_by_family(log)
    assert samples["penstock_cursor_lag_entries"] == {("t", "slow"): 2, ("t", "done"): 0}
    assert (
        samples["penstock_cursor_lag_seconds"]["t", "done"] == 0 < samples["penstock_cursor_lag_seconds"]["t", "slow"]
    )
    assert samples["penstock_topic_bytes"] == {
        (name,): sum(path.stat().st_size for path in (tmp_path / name).glob("*.arrows")) for name in "tu"
    }
    log.close()


def test_relays_are_reported_with_the_lag_of_their_cursors(tmp_path: Path) -> None:
    log = Log(tmp_path)
    append(log, "t", b"one", b"two")
    log.topic("t").cursors.commit("relay-up", 1)
    log.topic("t").cursors.commit("relay-other", 0)
    numbers = {"entries": 1, "bytes": 3, "retries": 5, "refusals": 4}
    document = {"connected": True, "topics": {"t": numbers}}
    silent = Heartbeat(lambda: time.monotonic() - MAX_RELAY_SILENCE_S - 1)
    published = {
        "up": document | Heartbeat().beat(),
        "silent": {"connected": True} | silent.beat(),
        "away": {"connected": False} | Heartbeat().beat(),
        "new": {},
    }
    families = relay_families(published, topic_families(log))
    samples = {
        family.name: {tuple(labels.values()): number for labels, number in family.samples} for family in families
    }
    assert samples["penstock_relay_connected"] == {("up",): 1, ("silent",): 0, ("away",): 0, ("new",): 0}
    assert samples["penstock_relay_lag_seconds"].pop(("up", "t")) > 0
    assert {name: number for name, number in samples.items() if name != "penstock_relay_connected"} == {
        "penstock_relay_entries_total": {("up", "t"): 1},
        "penstock_relay_bytes_total": {("up", "t"): 3},
        "penstock_relay_retries_total": {("up", "t"): 5},
        "penstock_relay_refusals_total": {("up", "t"): 4},
        "penstock_relay_lag_entries": {("up", "t"): 1},
        "penstock_relay_lag_seconds": {},
    }
    log.close()


def test_scrape_opens_no_topic(tmp_path: Path) -> None:
    log = Log(tmp_path)
    append(log, "t", b"one", b"two")
    log.topic("t").cursors.commit("slow", 1)
    log.close()
    again, opened = Log(tmp_path), list[str]()
    again.observe_recoveries(lambda name, _: opened.append(name))
    assert samples_by_family(again)["penstock_cursor_lag_entries"] == {("t", "slow"): 1}
    assert opened == []
    again.topic("t")
    assert opened == ["t"]
    again.close()


def test_scrape_survives_a_damaged_batch(tmp_path: Path) -> None:
    log = Log(tmp_path)
    append(log, "t", b"a batch to be damaged", b"its second row", b"its third row")
    append(log, "t", b"whole")
    log.topic("t").cursors.commit("slow", 1)
    (path,) = (tmp_path / "t").glob("*.arrows")
    data = bytearray(path.read_bytes())
    data[data.index(b"a batch to be")] ^= 1
    path.write_bytes(data)
    assert samples_by_family(log)["penstock_cursor_lag_entries"] == {("t", "slow"): 1}
    log.close()
