"""Texts of the audits page."""

from __future__ import annotations

from typing import Any

from penstock.console.pages.audits import findings_html, history_html, verdicts_html

NONE: dict[str, Any] = {"offsets": 0, "first": [], "ranges": 0}
PART: dict[str, Any] = {
    "partition": 2,
    "begin": 0,
    "due": 5000,
    "rows": 4990,
    "missing": {"offsets": 12, "first": [[7, 8], [40, 51]], "ranges": 5},
    "doubled": NONE,
    "unexplained": NONE,
    "differing": NONE,
    "undecided": 0,
    "missing_by_hour": [[1767225600, 12]],
    "lost_by": ["version 8, OPTIMIZE by <engine>"],
    "doubled_in": [],
    "orphans": [["part-1.parquet", 11]],
}
AUDIT: dict[str, Any] = {
    "topic": "orders",
    "source": "kafka://broker:9092/orders",
    "table": "s3://lake/orders",
    "kind": "Delta",
    "version": "8",
    "proof": "by column kafka_offset",
    "warnings": ["partition 2: 11 records expire"],
    "status": 1,
    "verdict": "orders: 12 missing of 5,000 <records>",
    "at_s": 1767225600.0,
    "every_s": 300.0,
    "partitions": [PART, PART | {"partition": 3, "missing": NONE}],
    "hours": [],
    "checks": [
        {"at_s": 1767225600.0, "status": 1, "verdict": "orders: 12 missing"},
        {"at_s": 1767225000.0, "status": 0, "verdict": "orders: complete"},
    ],
}


def test_verdict_is_first_and_escaped() -> None:
    html = verdicts_html([AUDIT])
    assert '<b class="bad"><span class="long">orders: 12 missing of 5,000 &lt;records&gt;</span></b>' in html
    assert "s3://lake/orders (Delta, version 8), by column kafka_offset" in html
    assert "11 records expire" in html
    assert "penstock audit" in verdicts_html([])


def test_only_partitions_with_findings_have_a_row_with_ranges_hours_and_commits() -> None:
    html = findings_html([AUDIT])
    assert html.count("<tr>") == 2
    assert '12 missing</span>: <span class="long">7, 40 to 50 and 3 more ranges' in html
    assert "2026-01-01 00:00: 12" in html
    assert "lost by version 8, OPTIMIZE by &lt;engine&gt;" in html
    assert "11 also in part-1.parquet, a file of no version that was searched" in html
    assert "check before you add such a file: a writer may be about to commit it" in html
    assert "cannot be decided" not in html
    assert "3 cannot be decided" in findings_html([AUDIT | {"partitions": [PART | {"undecided": 3}]}])
    assert "No finding" in findings_html([AUDIT | {"partitions": []}])


def test_hours_that_differ_have_a_row_each() -> None:
    html = findings_html([AUDIT | {"partitions": [], "hours": [[1767225600, 100, 98]]}])
    assert "2026-01-01 00:00</span>" in html
    assert ">98<" in html


def test_history_has_the_checks_of_all_audits_newest_first() -> None:
    html = history_html([AUDIT, AUDIT | {"checks": [{"at_s": 1767225300.0, "status": 2, "verdict": "undecided"}]}])
    assert [html.index(text) for text in ("12 missing", "undecided", "orders: complete")] == sorted(
        html.index(text) for text in ("12 missing", "undecided", "orders: complete")
    )
