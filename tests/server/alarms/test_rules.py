"""Alarm rules and the Prometheus file that is generated from them."""

from __future__ import annotations

from pathlib import Path

from penstock.server.alarms.rules import RULES, prometheus_file

FILE = Path(__file__).parents[3] / "examples" / "prometheus" / "penstock.rules.yml"


def test_prometheus_example_equals_the_rules() -> None:
    assert FILE.read_text() == prometheus_file()


def test_rule_names_are_unique() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_alarms_page_lists_every_rule_with_severity_and_condition() -> None:
    page = (FILE.parents[2] / "docs" / "alarms.md").read_text()
    for rule in RULES:
        after = f"{rule.hold // 60} min" if rule.hold else "at once"
        assert f"| `{rule.name}` | {rule.severity} | {after} |\n" in page
