"""Task results arrive unchanged at the driver, with columns inline or in a file."""

from __future__ import annotations

import gc
import os
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.landing.duplicates.events_seen import EventsSeen
from penstock.landing.writing.part_writer import PartResult
from penstock.landing.writing.written_file import WrittenFile
from penstock.spark.query.part_results import SharedFolder, pack_result, unpack_result
from tests.landing.duplicates.events import Event, as_seen, draw_events


def part(*events: list[Event] | None) -> PartResult:
    files = [
        WrittenFile(f"kind=event/date=2026-02-02/{n}.parquet", "event", "2026-02-02", 1, 10, "{}", seen=parts)
        for n, parts in enumerate(as_seen(entry) if entry is not None else None for entry in events)
    ]
    return PartResult(files, 7, ["it failed"])


def columns(events: EventsSeen | None) -> list[object]:
    return [] if events is None else [np.asarray(getattr(events, entry.name)).tolist() for entry in fields(events)]


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.none(), draw_events()), max_size=4), st.booleans())
def test_result_is_complete_and_its_file_removed(tmp_path: Path, events: list[list[Event] | None], here: bool) -> None:
    sent = part(*events)
    shared = SharedFolder.offer(tmp_path / "scratch")
    unpacked = unpack_result(pack_result(sent, shared.visible_here() if here else None))
    assert (unpacked.through, unpacked.failures) == (7, ["it failed"])
    assert [file.name for file in unpacked.files] == [file.name for file in sent.files]
    gc.collect(0)  # what was made here is young; a whole collection takes seconds after other tests
    for got, want in zip(unpacked.files, sent.files, strict=True):
        assert columns(got.seen) == columns(want.seen)
    assert os.listdir(tmp_path / "scratch") == [shared.probe.name]


def test_columns_travel_in_a_file(tmp_path: Path) -> None:
    many = part([Event((n, n), n, offset=n) for n in range(10_000)])
    assert len(pack_result(many, tmp_path)) < 2_000
    assert len(pack_result(many, None)) > 100_000


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    sent = pack_result(part([Event((1, 2), 3)]), tmp_path)
    next(tmp_path.iterdir()).unlink()
    with pytest.raises(OSError, match="columns"):
        unpack_result(sent)


def test_executor_without_the_drivers_disk_sends_columns_through_spark(tmp_path: Path) -> None:
    shared = SharedFolder.offer(tmp_path / "scratch")
    assert SharedFolder.offer(tmp_path / "scratch") == shared
    sent = part([Event((n, n), n, offset=n) for n in range(10_000)])
    assert shared.visible_here() == tmp_path / "scratch"
    # As on another machine: a folder of that path may exist, but not with the probe of this driver.
    shared.probe.unlink()
    assert shared.visible_here() is None
    result = pack_result(sent, shared.visible_here())
    (tmp_path / "scratch").rmdir()
    assert [file.name for file in unpack_result(result).files] == [file.name for file in sent.files]
