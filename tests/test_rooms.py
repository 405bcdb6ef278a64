"""Each room imports only from the rooms above it, in the order of the architecture page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "penstock"
# fmt: off
ROOMS = [
    "errors", "compact_json", "counts", "qualified_names", "records", "lazy_names", "files", "config", "process",
    "java", "wire", "logbuffer", "log", "handover", "ingest", "supervise", "kafka", "sinks", "slogd", "ledger",
    "server", "client", "landing", "proof", "upkeep", "tables", "sql", "spark", "audit", "console", "testing", "drill",
    "cli",
    "__main__",
]
# fmt: on


def imports(path: Path) -> Iterator[str]:
    """Yield the rooms that a file imports from, including imports in functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("penstock."):
            yield str(node.module).split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (name.name.split(".")[1] for name in node.names if name.name.startswith("penstock."))


def test_each_room_is_in_the_list() -> None:
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms - {"__init__"} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_room_imports_only_from_rooms_above_it(room: str) -> None:
    files = [*(PACKAGE / room).rglob("*.py"), *PACKAGE.glob(f"{room}.py")]
    allowed = {*ROOMS[: ROOMS.index(room) + 1]}
    wrong = {str(file.relative_to(PACKAGE)): below for file in files if (below := {*imports(file)} - allowed)}
    assert not wrong


FREE = {"errors", "compact_json", "counts", "qualified_names", "records", "lazy_names", "files"}
"""Every room may import these."""
FOLDERS = sorted(path.parent.relative_to(PACKAGE) for path in PACKAGE.rglob("*/__init__.py"))


def modules_imported(path: Path) -> set[str]:
    """Return the modules below ``penstock`` that a file imports."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("penstock."):
            modules.add(str(node.module).removeprefix("penstock."))
        elif isinstance(node, ast.Import):
            modules |= {name.name.removeprefix("penstock.") for name in node.names if name.name.startswith("penstock.")}
    return modules


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_init_names_each_module_of_its_folder(folder: Path) -> None:
    text = (PACKAGE / folder / "__init__.py").read_text()
    named = re.findall(r"``(\w+)/?``", ast.get_docstring(ast.parse(text)) or "")
    named += re.findall(r'"(\w+)"', text.partition("__all__ = [")[2])
    modules = {path.stem for path in (PACKAGE / folder).glob("*.py") if not path.name.startswith("__")}
    modules |= {path.parent.name for path in (PACKAGE / folder).glob("*/__init__.py")}
    assert not modules - {*named}


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_folder_imports_only_the_declared_rooms(folder: Path) -> None:
    text = ast.get_docstring(ast.parse((PACKAGE / folder / "__init__.py").read_text())) or ""
    declared = " ".join(text.split()).rpartition("Imports ")[2]
    allowed = {*re.findall(r"``([a-z_.]+)``", declared), *FREE, ".".join(folder.parts)}
    if "any room before it" in declared:
        allowed |= {*ROOMS[: ROOMS.index(folder.parts[0])]}
    for file in (PACKAGE / folder).glob("*.py"):
        for module in modules_imported(file):
            assert any(f"{module}.".startswith(f"{name}.") for name in allowed), f"{file.name} imports {module}"
