"""The pages of documentation: the reference is that of the code, links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from penstock.cli.reference import reference_page

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.glob("*.md"))


def test_the_reference_of_the_configuration_is_that_of_the_code() -> None:
    page = DOCS / "configuration.md"
    assert page.read_text() == reference_page(), f"penstock config reference > {page}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_pages_and_headings_that_are_there(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} leads to {target}"


def test_every_page_is_in_the_contents() -> None:
    contents = yaml.safe_load((DOCS.parent / "mkdocs.yml").read_text())
    listed = {name for entry in contents["nav"] for name in entry.values()}
    assert listed == {page.name for page in PAGES}
