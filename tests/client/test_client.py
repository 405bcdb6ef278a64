"""The names of ``penstock.client``: each can be imported, and senders import neither gRPC nor Arrow."""

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


def test_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nobody'"):
        penstock.client.Nobody  # noqa: B018


def test_senders_import_neither_grpc_nor_arrow() -> None:
    program = (
        "import sys; from penstock.client import UdpSender, TcpSender, PenstockHandler;"
        "print(*({'grpc', 'pyarrow'} & sys.modules.keys()))"
    )
    completed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert completed.stdout.strip() == ""


def test_old_name_of_the_error_can_be_imported() -> None:
    with pytest.warns(DeprecationWarning, match="now ClientError"):
        assert penstock.client.LogError is ClientError


def test_pages_and_examples_import_from_one_module() -> None:
    imports = [line for page in PAGES for line in re.findall(r"from penstock\.client.*", page.read_text())]
    assert imports
    assert [line for line in imports if not line.startswith("from penstock.client import ")] == []
