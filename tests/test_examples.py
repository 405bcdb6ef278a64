"""The files in examples/ use metrics, keys, ports and commands that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from docsite.metrics import sample_families
from penstock.cli.command_line import COMMANDS, build
from penstock.client.tail.container_logs import PATTERNS
from penstock.config import Settings, load
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
            assert rule["labels"]["severity"] in ("info", "warning", "critical")
            assert rule["annotations"]["summary"]


CONTAINERFILE = (EXAMPLES / "Containerfile").read_text()
IMAGE_VARIABLES = dict(re.findall(r"(PENSTOCK_\w+)=(\S+)", CONTAINERFILE))
COMPOSE = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())["services"]["penstock"]
MANIFESTS = {d["kind"]: d for d in yaml.safe_load_all((EXAMPLES / "kubernetes" / "penstock.yaml").read_text())}


def served_ports(settings: Settings) -> set[tuple[int, str]]:
    """Return the ports of all listeners and of the API, with their transport."""
    addresses = [settings.log.http, settings.log.grpc, settings.console.http]
    return {
        *((int(address.rpartition(":")[2]), "tcp") for address in addresses),
        *((listener.port, listener.transport) for listener in settings.listener),
    }


def test_compose_file_builds_the_image_and_publishes_its_ports(tmp_path: Path) -> None:
    build = COMPOSE["build"]
    assert (EXAMPLES / build["context"] / build["dockerfile"]).read_text() == CONTAINERFILE
    (tmp_path / "penstock.toml").touch()
    settings = load(tmp_path / "penstock.toml", environment=IMAGE_VARIABLES | COMPOSE["environment"])
    ports = [re.fullmatch(r"(127\.0\.0\.1:)?(\d+):(\d+)(?:/(\w+))?", port) for port in COMPOSE["ports"]]
    published = {(int(match[3]), match[4] or "tcp"): match[1] for match in ports if match}
    assert published.keys() == served_ports(settings)
    api = [settings.log.http, settings.log.grpc, settings.console.http]
    assert all(published[int(address.rpartition(":")[2]), "tcp"] for address in api)
    assert COMPOSE["healthcheck"]["test"][1] == "penstock"
    assert COMPOSE["healthcheck"]["test"][2] in COMMANDS


def test_kubernetes_manifests_agree_with_their_configuration(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(MANIFESTS["ConfigMap"]["data"]["penstock.toml"])
    template = MANIFESTS["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = template["containers"]
    variables = {entry["name"]: entry["value"] for entry in container["env"]}
    # The image has variables for listeners that this configuration does not have; they would stop the start.
    settings = load(file, environment=variables)
    assert container["command"][:2] == ["env", "-u"]
    unset = {word for word in container["command"] if word.startswith("PENSTOCK_")}
    assert unset == {name for name in IMAGE_VARIABLES if name.startswith("PENSTOCK_LISTENER__")}
    ports = {port["name"]: (port["containerPort"], port["protocol"].lower()) for port in container["ports"]}
    assert set(ports.values()) == {(listener.port, listener.transport) for listener in settings.listener}
    assert {port["targetPort"] for port in MANIFESTS["Service"]["spec"]["ports"]} == ports.keys()
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[name]["exec"]["command"][0] == "penstock"
        assert container[name]["exec"]["command"][1] in COMMANDS
    assert template["terminationGracePeriodSeconds"] > 2 * settings.shutdown_time
    (data,) = (mount for mount in container["volumeMounts"] if mount["name"] == "data")
    assert data["mountPath"] == str(settings.data_dir)


def test_units_run_commands_that_exist() -> None:
    for unit in (EXAMPLES / "systemd").glob("*.service"):
        commands = re.findall(r"^Exec\w+=/opt/penstock/bin/penstock (\w+)", unit.read_text(), re.MULTILINE)
        assert commands
        assert set(commands) <= COMMANDS.keys()


def test_examples_of_container_logs_call_tail_with_its_options_and_mount_what_it_reads(tmp_path: Path) -> None:
    compose = yaml.safe_load((EXAMPLES / "container-logs.compose.yaml").read_text())["services"]["tail"]
    manifest = yaml.safe_load((EXAMPLES / "kubernetes" / "container-logs.yaml").read_text())
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    mounts_by_command = [
        (["penstock", *compose["command"]], {volume.split(":")[1] for volume in compose["volumes"]}),
        ([*container["command"], *container["args"]], {mount["mountPath"] for mount in container["volumeMounts"]}),
    ]
    group: Any = get_command(build(["tail"]))
    options = {option for parameter in group.commands["tail"].params for option in parameter.opts}
    for (program, command, *arguments), mounts in mounts_by_command:
        assert (program, command) == ("penstock", "tail")
        assert {argument.partition("=")[0] for argument in arguments} <= options
        files = [argument.partition("=")[2] for argument in arguments if "=/" in argument]
        assert all(any(file.startswith(mount) for mount in mounts) for file in files)
        read_folders = {pattern.partition("/*")[0] for pattern in PATTERNS}
        assert read_folders & mounts
    assert compose["healthcheck"]["test"][1:] == container["readinessProbe"]["exec"]["command"]
    assert container["resources"]["limits"]["memory"]
