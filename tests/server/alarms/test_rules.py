"""Prometheus' file is made of the rules."""

from __future__ import annotations

from pathlib import Path

from penstock.server.alarms.rules import RULES, prometheus_file

FILE = Path(__file__).parents[3] / "examples" / "prometheus" / "penstock.rules.yml"


def test_the_example_for_prometheus_is_made_of_the_rules() -> None:
    assert FILE.read_text() == prometheus_file()


def test_every_rule_has_a_name_of_its_own() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_the_page_names_every_rule_with_its_severity_and_when_it_is_told() -> None:
    page = (FILE.parents[2] / "docs" / "alarms.md").read_text()
    for rule in RULES:
        after = f"{rule.hold // 60} min" if rule.hold else "at once"
        assert f"| `{rule.name}` | {rule.severity} | {after} |\n" in page
