"""The files in examples/ use metrics that /metrics has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from docsite.metrics import sample_families
from penstock.counts import Name
from penstock.server.api.monitoring import ROUTE_FATES
from penstock.server.metrics.prometheus import Family, render

EXAMPLES = Path(__file__).parents[1] / "examples"
DASHBOARD = json.loads((EXAMPLES / "grafana" / "penstock.json").read_text())
RULES = yaml.safe_load((EXAMPLES / "prometheus" / "penstock.rules.yml").read_text())
FUNCTIONS = {"sum", "rate", "increase", "time", "min", "max", "absent", "by", "and"}


def expressions() -> Iterator[tuple[str, str]]:
    """Yield title and expression of all panels and rules."""
    for panel in DASHBOARD["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])
    for group in RULES["groups"]:
        yield from ((rule["alert"], rule["expr"]) for rule in group["rules"])


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> list[Family]:
    """The metric families of a listener, its topic and its table."""
    return sample_families(tmp_path_factory.mktemp("metrics"))


def test_each_family_has_samples_help_and_type(families: list[Family]) -> None:
    lines = render(families).splitlines()
    for family in families:
        assert family.samples, family.name
        assert len(family.help.split()) > 1, family.name
        assert f"# TYPE {family.name} {family.kind}" in lines
        assert f"# HELP {family.name} {family.help}" in lines
    names = [family.name for family in families]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("title", "expression"), list(expressions()), ids=lambda text: text.replace(" ", "_")[:30])
def test_metrics_and_labels_of_an_expression_exist(title: str, expression: str, families: list[Family]) -> None:
    labels_by_family = {family.name: {name for labels, _ in family.samples for name in labels} for family in families}
    used = re.findall(r"penstock_\w+", expression)
    assert used
    assert set(used) <= labels_by_family.keys(), title
    labels = set.union(*(labels_by_family[name] for name in used))
    used_labels = set(re.findall(r"(\w+)(?:=~?)\"", expression))
    used_labels |= {name.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for name in group.split(",")}
    assert used_labels <= labels, title
    bare = re.sub(r"\"[^\"]*\"|\[[^\]]*\]|\{[^}]*\}|by \([^)]*\)|penstock_\w+", "", expression)
    assert set(re.findall(r"[a-z_]+", bare)) <= FUNCTIONS, title
    assert bare.count("(") == bare.count(")")


def test_names_and_fates_of_queries_are_in_the_balance() -> None:
    names = [str(name) for name in Name]
    for title, expression in expressions():
        for _, text in re.findall(r"(name|fate)=~?\"([^\"]*)\"", expression):
            for pattern in text.split("|"):
                stem = pattern.replace("[.]", ".").removesuffix("*").rstrip(".")
                assert stem in ROUTE_FATES or any(
                    stem in (n, n.rstrip(".")) or (n[-1] == "." and stem.startswith(n)) for n in names
                ), (title, pattern)


def test_reasons_of_gaps_equal_those_of_the_log() -> None:
    text = "".join(path.read_text() for path in (EXAMPLES.parent / "penstock" / "log").rglob("*.py"))
    for _, expression in expressions():
        for reason in re.findall(r"gap\.(\w+)", expression):
            assert f'"{reason}"' in text


def test_dashboard_prompts_for_its_datasource_and_panels_do_not_overlap() -> None:
    assert DASHBOARD["templating"]["list"][0]["type"] == "datasource"
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        position: dict[str, Any] = panel["gridPos"]
        panel_cells = {
            (x, y)
            for x in range(position["x"], position["x"] + position["w"])
            for y in range(position["y"], position["y"] + position["h"])
        }
        assert not panel_cells & cells, panel["title"]
        assert position["x"] + position["w"] <= 24
        cells |= panel_cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_each_rule_has_a_severity_and_a_summary() -> None:
    for group in RULES["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert rule["annotations"]["summary"]
