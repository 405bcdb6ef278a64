"""The record of an audit's checks: what the console shows, bounded, without credentials, and the worst audit first."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.audit.reports import check_history
from penstock.audit.reports.check_history import CheckHistory, read_histories
from tests.audit.audited import run_audit, write_parquet

ROWS = [(0, offset) for offset in range(60)]


def test_check_is_recorded_with_its_ranges_and_later_ones_keep_its_verdict(tmp_path: Path) -> None:
    source, table = write_parquet(tmp_path / "source", ROWS), write_parquet(tmp_path / "t", [*ROWS[:40], *ROWS[50:52]])
    (tmp_path / "penstock.toml").write_text(f'data_dir = "{tmp_path}/data"\n')
    options = ("--config", str(tmp_path / "penstock.toml"))
    assert run_audit("", str(source), table, *options)[0] == 1
    (audit,) = read_histories(tmp_path / "data" / "audits")
    (part,) = audit["partitions"]
    assert (audit["status"], audit["every_s"], audit["table"]) == (1, 0, str(table))
    assert part["missing"] == {"offsets": 18, "first": [[40, 50], [52, 60]], "ranges": 2}
    (table / "torn.parquet").write_bytes(b"PAR1 torn")
    assert run_audit("", str(source), table, *options)[0] == 2
    (audit,) = read_histories(tmp_path / "data" / "audits")
    assert (audit["status"], audit["partitions"]) == (2, [])
    assert "torn.parquet cannot be read" in audit["verdict"]
    assert [check["status"] for check in audit["checks"]] == [2, 1]


def test_verdicts_are_limited_and_the_worst_audit_is_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_history, "MAX_VERDICTS", 3)
    for topic, count in (("b", 1), ("a", 5)):
        history = CheckHistory(tmp_path, (topic, "table"), 300.0)
        for number in range(count):
            history.record_undecided(topic, topic, "table", f"reason {number}")
    first, second = read_histories(tmp_path)
    assert [check["verdict"] for check in first["checks"]] == [f"a: not decided: reason {n}" for n in (4, 3, 2)]
    assert (first["topic"], second["topic"], len(second["checks"])) == ("a", "b", 1)


def test_audits_that_check_something_else_have_a_record_each(tmp_path: Path) -> None:
    source, table = write_parquet(tmp_path / "source", ROWS), write_parquet(tmp_path / "t", ROWS)
    (tmp_path / "penstock.toml").write_text(f'data_dir = "{tmp_path}/data"\n')
    config = ("--config", str(tmp_path / "penstock.toml"))
    variants: list[tuple[str, ...]] = [
        (),
        ("--store", "AWS_SECRET_ACCESS_KEY=renewed"),
        ("--store", "uri=postgresql://u:secret@a/lake"),
        ("--store", "uri=postgresql://u:renewed@a/lake"),
        ("--store", "uri=postgresql://u:secret@b/lake"),
        ("--count-by", "total"),
    ]
    for options in variants:
        run_audit("", str(source), table, *config, *options)
    assert len(read_histories(tmp_path / "data" / "audits")) == 4


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_left_out(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("audits")
    (folder / "damaged.json").write_bytes(content)
    assert read_histories(folder) == []
