"""Findings as HTML, and the color of the verdict while a process cannot start."""

from __future__ import annotations

from penstock.console.components.findings_list import MAX_FINDINGS, findings_html
from penstock.console.components.receipt_details import verdict_html
from penstock.console.findings import BAD, Finding
from penstock.ledger.receipt import receipt


def test_findings_have_level_problem_and_advice() -> None:
    html = findings_html([Finding(BAD, "<lines> cannot start", "free space")])
    assert html == (
        '<div class="finding bad-edge"><div>&lt;lines&gt; cannot start</div><div class="dim">free space</div></div>'
    )
    assert findings_html([]) == ""


def test_findings_over_the_limit_are_counted() -> None:
    html = findings_html([Finding(BAD, f"problem {number}") for number in range(MAX_FINDINGS + 3)])
    assert html.count("problem") == MAX_FINDINGS
    assert html.endswith('<div class="dim">and 3 more</div>')


def test_verdict_is_bad_while_a_process_cannot_start() -> None:
    empty = {"listeners": [], "routes": [], "topics": [], "unaccounted": 0, "pending": 0}
    missing = empty | {"not_started": [{"process": "receiver lines", "text": "receiver lines cannot start: no space"}]}
    assert 'class="verdict good">No message has arrived yet<' in verdict_html(receipt(empty))
    text = 'class="verdict bad">No message has arrived yet; receiver lines cannot start<'
    assert text in verdict_html(receipt(missing))
