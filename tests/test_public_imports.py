"""Public names are exported by the ``__init__`` of their room, and each ``__init__`` describes its folder."""

from __future__ import annotations

import ast
import importlib
import re
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
OPEN = ("penstock.records", "penstock.counts", "penstock.errors", "penstock.tables")
"""Modules that are public by themselves."""
READ = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").glob("*.py"))]
PACKAGES = sorted(".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "penstock").rglob("__init__.py"))
SENTENCES = 2
"""What is in the folder; in which order to read it, and what it may import."""
FROM = re.compile(r"from (penstock[\w.]*) import (\w+(?:, \w+)*|\([\w\s,]+\))")
IMPORT = re.compile(r"\bimport (penstock[\w.]*)")


def imports_in(text: str) -> list[tuple[str, str]]:
    """Return module and name of each import of Penstock in a page or a program."""
    imports = [(module, name) for module, names in FROM.findall(text) for name in re.findall(r"\w+", names)]
    return imports + [(module, "") for module in IMPORT.findall(text)]


def names_of(module: ModuleType) -> list[str]:
    """Return the exported names of a module; all names of one that is public by itself."""
    return list(getattr(module, "__all__", dir(module)))


def test_imports_in_texts_and_programs_are_recognised() -> None:
    prose = "as `from penstock.kafka import Producer, Consumer; Producer({})` says"
    text = f"{prose}\nfrom penstock.a import (\n    b,\n)\nimport penstock.c\n"
    assert imports_in(text) == [
        ("penstock.kafka", "Producer"),
        ("penstock.kafka", "Consumer"),
        ("penstock.a", "b"),
        ("penstock.c", ""),
    ]


@pytest.mark.parametrize("page", READ, ids=lambda path: path.name)
def test_pages_and_examples_import_only_from_rooms(page: Path) -> None:
    for module, name in imports_in(page.read_text()):
        assert module.count(".") == 1, f"{page.name} imports {module}, which is inside a room"
        assert module in {*PACKAGES, *OPEN}, f"{page.name} imports {module}, which is not a folder"
        assert not name or name in names_of(importlib.import_module(module)), f"{module} does not export {name}"


@pytest.mark.parametrize("package", PACKAGES)
def test_docstring_of_a_folder_describes_its_content_and_exports(package: str) -> None:
    module = importlib.import_module(package)
    text = module.__doc__ or ""
    assert len(re.findall(r"[.:;](?:\s|$)", text)) >= SENTENCES, f"{package} does not say what is in it"
    if package.count("."):
        assert "import" in text.lower(), f"{package} does not say what it may import"
    assert module.__all__, f"{package} exports nothing"
    for name in module.__all__:
        assert _exists_in(package, name), f"{package} has no {name}"


def _exists_in(package: str, name: str) -> bool:
    """Report whether a name is a module of the package or a name in it."""
    return find_spec(f"{package}.{name}") is not None or hasattr(importlib.import_module(package), name)


@pytest.mark.parametrize("package", [name for name in PACKAGES if f"{name}.".startswith("penstock.cli.")])
def test_folder_of_commands_imports_nothing_by_itself(package: str) -> None:
    tree = ast.parse(Path(str(importlib.import_module(package).__file__)).read_text())
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
