"""What ``penstock.client`` gives: each name it lists, nothing heavy to who only sends, all that the pages import."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import penstock.client
from penstock.client import ClientError

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.py")]


@pytest.mark.parametrize("name", penstock.client.__all__)
def test_each_name_can_be_imported(name: str) -> None:
    assert getattr(penstock.client, name) is not None


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nobody'"):
        penstock.client.Nobody  # noqa: B018


def test_who_only_sends_needs_neither_grpc_nor_arrow() -> None:
    program = (
        "import sys; from penstock.client import UdpSender, TcpSender, PenstockHandler;"
        "print(*({'grpc', 'pyarrow'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""


def test_the_old_name_of_the_error_still_works() -> None:
    with pytest.warns(DeprecationWarning, match="now ClientError"):
        assert penstock.client.LogError is ClientError


def test_pages_and_examples_import_the_clients_from_one_place() -> None:
    imports = [line for page in PAGES for line in re.findall(r"from penstock\.client.*", page.read_text())]
    assert imports
    assert [line for line in imports if not line.startswith("from penstock.client import ")] == []
