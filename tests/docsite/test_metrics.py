"""The page of metrics has all that the code names."""

from __future__ import annotations

import re
from pathlib import Path

from docsite.metrics import metrics_page
from penstock.server.metrics.prometheus import STATISTICS_HELP

PAGE = metrics_page()
NAMED = set(re.findall(r"^\| `(penstock_\w+)` \|", PAGE, re.MULTILINE))
SERVER = Path(__file__).parents[2] / "penstock" / "server"


def test_every_metric_of_the_code_is_on_the_page() -> None:
    text = "".join(path.read_text() for path in SERVER.rglob("*.py"))
    assert set(re.findall(r'Family\(\s*"(penstock_\w+)"', text)) <= NAMED


def test_every_key_of_stat_is_on_the_page() -> None:
    for key in STATISTICS_HELP:
        assert [name for name in NAMED if name.startswith(f"penstock_plog_{key}")], key


def test_every_metric_has_labels_and_a_meaning() -> None:
    assert "| `penstock_topic_fate_total` | counter | `topic`, `fate` | What became of a topic's messages |" in PAGE
    assert "| `penstock_cursor_lag_entries` | gauge | `topic`, `cursor` |" in PAGE
    assert all(len(line.split("|")[4].split()) > 1 for line in PAGE.splitlines() if line.startswith("| `penstock_"))
