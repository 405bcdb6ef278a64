"""The pages of documentation: reference, examples, commands and links are true, and the site builds."""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config

from penstock.cli.main import build as build_commands
from penstock.cli.run.config import PAGES as PAGES_OF_REFERENCE
from penstock.cli.run.config import Page
from penstock.config import load
from penstock.slogd import slogd_pb2

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
STAGES = ("listeners", "logbuffer", "log", "tables", "balance", "console", "kafka")
OTHERS = ("# vector.toml",)
"""First lines of examples that are other programs' configurations."""


def blocks(page: Path, language: str = "[a-z]*") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.S | re.M)


def listed(entries: list[Any]) -> Iterator[str]:
    """The pages in the contents."""
    for entry in entries:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from listed(value)


@pytest.mark.parametrize("name", PAGES_OF_REFERENCE)
def test_a_page_of_reference_is_that_of_the_code(name: Page) -> None:
    page = DOCS / f"{name}.md"
    assert page.read_text() == PAGES_OF_REFERENCE[name](), f"penstock config reference {name} > {page}"


def test_the_pages_of_the_apis_name_every_call() -> None:
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_pages_that_are_there(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} leads to {target}"


def test_every_page_is_in_the_contents() -> None:
    contents = yaml.safe_load((DOCS.parent / "mkdocs.yml").read_text())
    assert set(listed(contents["nav"])) == {page.name for page in PAGES}


def test_the_site_builds_without_a_warning_and_fetches_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "mkdocs"):
        build(load_config(str(DOCS.parent / "mkdocs.yml"), site_dir=str(tmp_path)))
    assert [record.getMessage() for record in caplog.records] == []
    text = "".join((tmp_path / page.name).with_suffix(".html").read_text() for page in PAGES)
    assert re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(?:https?:)?//[^"]*"', text) == []


@pytest.mark.parametrize("stage", STAGES)
def test_the_page_of_a_stage_has_a_picture_no_wider_than_a_page(stage: str) -> None:
    pictures = [text for text in blocks(DOCS / f"{stage}.md") if re.search(r"--+>|--+\+|<--+|offset  ", text)]
    assert pictures
    assert max(len(line) for picture in pictures for line in picture.splitlines()) <= 110


@pytest.mark.parametrize("page", [DOCS.parent / "README.md", *PAGES], ids=lambda page: page.name)
def test_the_examples_of_a_configuration_load(page: Path, tmp_path: Path) -> None:
    for example in blocks(page, "toml"):
        assert tomllib.loads(example)
        if not example.startswith(OTHERS):
            (tmp_path / "penstock.toml").write_text(example)
            load(tmp_path / "penstock.toml", environment={})


@pytest.fixture(scope="module")
def commands() -> typer.core.TyperGroup:
    found = typer.main.get_command(build_commands([]))
    assert isinstance(found, typer.core.TyperGroup)
    return found


@pytest.mark.parametrize("page", [DOCS.parent / "README.md", *PAGES], ids=lambda page: page.name)
def test_commands_in_the_text_and_their_options_are_there(page: Path, commands: typer.core.TyperGroup) -> None:
    for line in re.findall(r"`penstock ([^`]+)`", page.read_text()):
        known, words = commands, line.split()
        while isinstance(known, typer.core.TyperGroup) and words and words[0][0].islower():
            assert words[0] in known.commands, f"penstock {line}"
            known = known.commands[words.pop(0)]
        options = {name for parameter in known.params for name in parameter.opts} | {"--help"}
        wanted = {word for word in words if re.fullmatch(r"--?[a-z][a-z_-]*", word)}
        assert wanted <= options, f"penstock {line}"
