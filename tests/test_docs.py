"""The documentation is correct: reference, examples, commands and links; and the site builds."""

from __future__ import annotations

import json
import logging
import pkgutil
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config

from docsite.hooks import GENERATED
from penstock.cli.command_line import build as build_commands
from penstock.cli.run.config import PAGES as PAGES_OF_REFERENCE
from penstock.cli.run.config import Page
from penstock.config import load
from penstock.config.reloadable import AT_START, TOKENS
from penstock.counts import Name, Origin
from penstock.files import checked_document, checked_lines
from penstock.handover.frames.frame import FrameMetadata
from penstock.ledger.book import checkpoint
from penstock.log.store import batch_format, index, segment_files
from penstock.slogd import slogd_pb2

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
README = ROOT / "README.md"
GUIDES = [README, *(ROOT / f"{name}.md" for name in ("ARCHITECTURE", "CONTRIBUTING", "CHANGELOG"))]
NAMED = [page for page in [*GUIDES, *PAGES] if page.name != "CHANGELOG.md"]
"""What names only what there is; the changelog has what was, too."""
AUDITED_TABLES = [page for page in PAGES if page.parent.name == "audit" and page.stem not in ("tables", "columns")]
FORMATS = DOCS / "compatibility.md"
OF_DATA = ("topics", "buffers", "relays", "tables", "landed", "quarantine")
"""Folders of a data directory."""
NO_MODULES = {
    f"penstock.{name}"
    for name in (
        "handlers",
        "codecs",
        "kafka.auditors",
        "audit",
        "toml",
        "conf",
        "service",
        "json",
        "rules.yml",
        "yaml",
    )
}
"""Groups of entry points, a type of event, and files."""
STAGES = ("listeners", "logbuffer", "log", "tables", "balance", "console", "kafka")
OTHERS = ("# vector.toml",)
"""First lines of examples that are other programs' configurations."""


def blocks(page: Path, language: str = "[a-z]*") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def listed(entries: list[Any]) -> Iterator[str]:
    """Yield the pages in the contents."""
    for entry in entries:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from listed(value)


@pytest.mark.parametrize("name", PAGES_OF_REFERENCE)
def test_reference_page_equals_the_code(name: Page) -> None:
    page = DOCS / f"{name}.md"
    assert page.read_text() == PAGES_OF_REFERENCE[name](), f"penstock config reference {name} > {page}"


def test_api_pages_name_each_call() -> None:
    calls = [method.name for method in slogd_pb2.DESCRIPTOR.services_by_name["StructuredLog"].methods]
    page = (DOCS / "grpc.md").read_text()
    assert all(f"\n| `{call}` |" in page for call in calls)
    for name in slogd_pb2.DESCRIPTOR.message_types_by_name:
        assert f"\nmessage {name} {{" in page
    page = (DOCS / "http.md").read_text()
    assert "422" not in page
    for heading in ("### `POST /topic/{topic}/logs`", "### `GET /balance`", "### `PATCH /topics/{topic}`"):
        assert f"\n{heading}\n" in page
    assert "| `logs[].raw_bytes` | byte |" in page


def name_of(page: Path) -> str:
    return page.relative_to(DOCS if page.is_relative_to(DOCS) else ROOT).as_posix()


@pytest.mark.parametrize("page", [*GUIDES, *PAGES], ids=name_of)
def test_links_lead_to_existing_pages(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        is_generated = page.parent == DOCS and target in GENERATED
        assert is_generated or (page.parent / target).exists(), f"{name_of(page)} leads to {target}"


def test_each_page_is_in_the_contents() -> None:
    contents = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert set(listed(contents["nav"])) == {name_of(page) for page in PAGES} | set(GENERATED)


def test_site_builds_without_warnings_and_downloads(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "mkdocs"):
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path)))
    assert [record.getMessage() for record in caplog.records] == []
    pages = [*map(name_of, PAGES), *GENERATED]
    text = "".join((tmp_path / page).with_suffix(".html").read_text() for page in pages)
    fetched = r'<(?:script|link)[^>]*(?:src|href)="(?:https?:)?//[^"]*"|<img[^>]*src="(?:https?:)?//[^"]*"'
    assert re.findall(fetched, text) == []
    search_locations = {
        entry["location"] for entry in json.loads((tmp_path / "search" / "search_index.json").read_text())["docs"]
    }
    assert {page.replace(".md", ".html") for page in pages} <= search_locations, "every page can be found"
    assert '<span class="nb">echo</span>' in text, "commands are highlighted"


@pytest.mark.parametrize("stage", STAGES)
def test_page_of_a_stage_has_a_picture_within_the_page_width(stage: str) -> None:
    pictures = [text for text in blocks(DOCS / f"{stage}.md") if re.search(r"--+>|--+\+|<--+|offset  ", text)]
    assert pictures
    assert max(len(line) for picture in pictures for line in picture.splitlines()) <= 110


@pytest.mark.parametrize("page", [*GUIDES, *PAGES], ids=name_of)
def test_configuration_examples_load(page: Path, tmp_path: Path) -> None:
    for example in blocks(page, "toml"):
        assert tomllib.loads(example)
        if not example.startswith(OTHERS):
            (tmp_path / "penstock.toml").write_text(example)
            load(tmp_path / "penstock.toml", environment={})


@pytest.fixture(scope="module")
def commands() -> typer.core.TyperGroup:
    group = typer.main.get_command(build_commands(None))
    assert isinstance(group, typer.core.TyperGroup)
    return group


@pytest.mark.parametrize("page", [*GUIDES, *PAGES], ids=name_of)
def test_commands_and_options_in_the_text_exist(page: Path, commands: typer.core.TyperGroup) -> None:
    for line in re.findall(r"`penstock ([^`]+)`", page.read_text()):
        command, words = commands, line.split()
        while isinstance(command, typer.core.TyperGroup) and words and words[0][0].islower():
            assert words[0] in command.commands, f"penstock {line}"
            command = command.commands[words.pop(0)]
        options = {name for parameter in command.params for name in parameter.opts} | {"--help"}
        used_options = {word for word in words if re.fullmatch(r"--?[a-z][a-z_-]*", word)}
        assert used_options <= options, f"penstock {line}"


@pytest.mark.parametrize("page", AUDITED_TABLES, ids=name_of)
def test_page_of_an_audited_table_begins_with_a_valid_command(page: Path, commands: typer.core.TyperGroup) -> None:
    text = page.read_text()
    first, *others = re.findall(r"^    penstock audit (.+)$", text, re.MULTILINE)
    assert text.index(first) < text.index("\n## ")
    for line in (first, *others):
        source, table, *_ = words = shlex.split(line)
        context = commands.commands["audit"].make_context("audit", words)
        assert (context.params["source"], context.params["table"]) == (source, table)
    headings = set(re.findall(r"^## (.+)$", text, re.MULTILINE))
    assert headings >= {"Install", "Where the offsets are", "What is read", "Limits"}


@pytest.mark.parametrize("page", NAMED, ids=name_of)
def test_files_named_in_the_text_exist(page: Path) -> None:
    for path in re.findall(r"`((?:[a-z_]+/)*(?:[a-z_]+/|[a-z_]+\.py))`", page.read_text()):
        if path.split("/")[0] not in OF_DATA:
            assert (ROOT / "penstock" / path).exists() or (ROOT / path).exists(), path


@pytest.mark.parametrize("page", NAMED, ids=name_of)
def test_modules_and_names_in_the_text_exist(page: Path) -> None:
    text = page.read_text()
    named = set(re.findall(r"\bpenstock(?:\.[a-z_]+)+(?:\.[A-Z]\w+)?", text)) - NO_MODULES
    imported = re.findall(r"from (penstock[a-z_.]*) import (\w+(?:, \w+)*)", text)
    named |= {f"{module}.{name}" for module, names in imported for name in names.split(", ")}
    for name in sorted(named):
        assert pkgutil.resolve_name(name) is not None


def rows_of(page: Path, first: str) -> list[list[str]]:
    """Return the cells of a page's tables whose first column is named ``first``."""
    tables = re.findall(rf"^\| {first} \|.*\n\|[- |]+\n((?:\|.*\n)+)", page.read_text(), re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for table in tables for line in table.splitlines()]


def test_operating_has_each_key_that_needs_a_restart_with_its_reason() -> None:
    rows = {row[0].strip("`"): row[1] for row in rows_of(DOCS / "operating.md", "key or group")}
    assert rows.items() >= AT_START.items()
    assert rows.keys() - AT_START.keys() == {TOKENS}


def test_glossary_has_each_count() -> None:
    assert [row[0].strip("`") for row in rows_of(DOCS / "glossary.md", "count")] == list(Name)


def test_documented_versions_of_files_equal_the_code() -> None:
    documented = {
        row[0].split(",")[0].split(":")[0].split(" and ")[0].strip("`"): row[1] for row in rows_of(FORMATS, "file")
    }
    assert documented["TOPIC/*.arrows"] == str(batch_format.VERSION)
    assert documented["TOPIC/*.index"] == str(index.VERSION)
    assert documented["TOPIC/*.synced"] == str(segment_files.SYNCED_FORMAT)
    assert documented["TOPIC/gaps.jsonl"] == str(checked_lines.VERSION)
    assert documented["LEDGER"] == str(checkpoint.FORMAT)
    assert documented["its frames"] == str(FrameMetadata(Origin("", 0, 0, 0)).document()["v"])
    documents = ("TOPIC/*.state", "TOPIC/settings.json", "TOPIC/cursors/*.cursor", "TRANSACTION-*.intent")
    assert {documented[name] for name in documents} == {str(checked_document.FORMAT)}


def test_install_commands_name_this_project_and_its_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    sources = [*PAGES, *GUIDES, *(ROOT / "penstock").rglob("*.py")]
    commands = {text for path in sources for text in re.findall(r"pip install '([^']+)'", path.read_text())}
    assert commands
    for command in commands:
        name, _, extras = command.partition("[")
        assert name in (project["name"], "."), command
        if not extras.startswith("{"):  # the command line fills in the extra of a missing module
            assert {*extras.rstrip("]").split(",")} <= {*project["optional-dependencies"]}, command
    assert not [path for path in sources if re.search(r"pip install penstock\b(?!-pipe)", path.read_text())]


def test_changelog_has_one_line_for_each_change() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    entries = [line for line in lines if line.startswith("- ")]
    assert len(entries) > 50
    assert [line for line in lines if line.startswith("  ")] == [], "a second line"
    assert [line for line in entries if len(line) > 150] == []
