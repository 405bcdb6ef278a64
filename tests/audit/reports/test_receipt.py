"""A receipt repeats its check on the same version and offsets; damaged ones are refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import deltalake
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from penstock.audit.reports.receipt import UnreadableReceipt, read_receipt
from penstock.cli.audit import audit
from tests.audit.audited import filled_topic, rows_table, run_audit, write_delta
from tests.kafka.kafka_helpers import Topics


def verify(receipt: Path, *options: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(audit)
    completed = CliRunner().invoke(app, ["verify", str(receipt), *options])
    return completed.exit_code, completed.stdout + completed.stderr


def test_verify_repeats_the_check_of_the_same_version(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    write_delta(tmp_path / "t", rows[1:], topic)
    receipt = tmp_path / "receipt.json"
    assert run_audit(topics, topic, tmp_path / "t", "--receipt", str(receipt))[0] == 1
    topics.plain(topic, [b"later"])
    deltalake.write_deltalake(str(tmp_path / "t"), rows_table(rows[:1], topic), mode="append")
    status, text = verify(receipt)
    assert status == 1
    assert f"{topic}: 1 missing of 60 records checked" in text
    assert "the check agrees with the receipt" in text
    changed = json.loads(receipt.read_text())
    changed["partitions"][0]["missing"] = [[5, 6]]
    receipt.write_text(json.dumps(changed))
    assert "partition 0: missing was [[5, 6]] and is [[0, 1]]" in verify(receipt)[1]


def test_verify_leaves_out_doubled_rows_before_the_checked_time(topics: Topics, tmp_path: Path) -> None:
    topic, rows = filled_topic(topics)
    write_delta(tmp_path / "t", [*rows, rows[0]], topic)
    receipt = tmp_path / "receipt.json"
    since = datetime.now(UTC) + timedelta(days=1)
    options = ("--since", since.isoformat(), "--receipt", str(receipt))
    assert run_audit(topics, topic, tmp_path / "t", *options)[0] == 0
    status, text = verify(receipt)
    assert (status, "the check agrees with the receipt" in text) == (0, True), text


@pytest.mark.survives("audit", "damaged bytes")
@pytest.mark.survives("audit", "other format")
@pytest.mark.parametrize("text", ["", "{}", '{"format": 1}', '{"format": 2}', "[1]", '{"format": 1, "columns": 3}'])
def test_damaged_receipt_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "receipt.json").write_text(text)
    status, output = verify(tmp_path / "receipt.json")
    assert status == 2
    assert "receipt.json" in output


@given(st.binary(max_size=200))
def test_any_bytes_are_a_receipt_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(content)
    with pytest.raises(UnreadableReceipt):
        read_receipt(path)
