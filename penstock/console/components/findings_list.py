"""HTML of findings: each with its level as color, and its next step."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from penstock.console.findings import Finding
from penstock.console.wording import exact

MAX_FINDINGS = 20


def findings_html(problems: Sequence[Finding]) -> str:
    """Return the findings, the first MAX_FINDINGS in full; empty without any."""
    items = "".join(
        f'<div class="finding {finding.level}-edge"><div>{escape(finding.problem)}</div>'
        + (f'<div class="dim">{escape(finding.advice)}</div>' if finding.advice else "")
        + "</div>"
        for finding in problems[:MAX_FINDINGS]
    )
    more = len(problems) - MAX_FINDINGS
    return items + (f'<div class="dim">and {exact(more)} more</div>' if more > 0 else "")
