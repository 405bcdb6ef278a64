"""Weakens each tagged safeguard in turn and reports which ones no test notices: ``python -m tests.mutants log/store``.

A safeguard is the statement below a comment that begins with ``Invariant:``, ``Order:``, ``Crash:`` or ``Limit:``. A
mutant removes it, swaps it with the next statement, negates its condition or lifts its bound. The module's own tests
run first, then seeds of the simulation, then all tests of its room, each if nothing has noticed it before. The
unchanged code must pass all of them.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.own_coverage import PACKAGE, ROOT, modules, own_tests

TAG = re.compile(r"\s*# (Invariant|Order|Crash|Limit): ")
MAX_RUN_S = 900
"""Limit for the tests of a mutant: one that waits forever is noticed."""
BLOCKS = ("body", "orelse", "finalbody")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module's source with one safeguard weakened; ``line`` is the safeguard's in the real source."""

    line: int
    change: str
    source: str


def tagged_lines(source: str) -> list[int]:
    """Return the line of the first code below each tagged comment."""
    lines = source.splitlines()
    tagged = []
    for number, text in enumerate(lines):
        if TAG.match(text):
            following = number
            while following < len(lines) and lines[following].lstrip().startswith("#"):
                following += 1
            tagged.append(following + 1)
    return tagged


def mutants(source: str) -> Iterator[Mutant]:
    """Yield the mutants of a module."""
    for line in tagged_lines(source):
        changes = ("remove", "swap") if _block_of(ast.parse(source), line) else ()
        for change in (*changes, "negate", "unbound"):
            tree = ast.parse(source)
            if _weaken(tree, line, change):
                yield Mutant(line, change, ast.unparse(tree))


def _block_of(tree: ast.Module, line: int) -> tuple[list[ast.stmt], int] | None:
    """Return the block and the number in it of the statement that begins at a line."""
    for node in ast.walk(tree):
        for field in BLOCKS:
            block = getattr(node, field, None)
            if isinstance(block, list):
                for number, statement in enumerate(block):
                    if statement.lineno == line:
                        return block, number
    return None


def _weaken(tree: ast.Module, line: int, change: str) -> bool:
    """Weaken the statement at a line in place; return whether the change applies to it."""
    if (place := _block_of(tree, line)) is None:
        return False
    block, number = place
    statement = block[number]
    if change == "remove" and isinstance(statement, ast.Expr):
        block[number] = ast.copy_location(ast.Pass(), statement)
        return True
    if (
        change == "swap"
        and number + 1 < len(block)
        and not _ends_block(block[number + 1])
        and not _ends_block(statement)
    ):
        block[number : number + 2] = block[number + 1], statement
        return True
    if change == "negate" and isinstance(statement, ast.If | ast.While):
        statement.test = ast.copy_location(ast.UnaryOp(ast.Not(), statement.test), statement.test)
        return True
    if change == "unbound":
        unbounded = _Unbounded()
        block[number] = unbounded.visit(copy.deepcopy(statement))
        return unbounded.is_changed
    return False


def _ends_block(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Return | ast.Raise | ast.Continue | ast.Break)


class _Unbounded(ast.NodeTransformer):
    """Replaces the first ``min(a, b)`` or ``max(a, b)`` by its last argument."""

    is_changed = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if not self.is_changed and isinstance(node.func, ast.Name) and node.func.id in ("min", "max") and node.args[1:]:
            self.is_changed = True
            return node.args[-1]
        return self.generic_visit(node)


def notice(copied: Path, tests: list[Path], seeds: int) -> str:
    """Return what notices the mutant in a copy of the repository: "tests", "simulation" or ""."""
    if tests and not _pass(copied, tests):
        return "tests"
    simulation = ("penstock.testing.simulation", "--processes", "1", "--seeds", str(seeds))
    return "" if _passes(copied, *simulation) else "simulation"


def _pass(copied: Path, tests: list[Path]) -> bool:
    names = [str(path.relative_to(ROOT)) for path in tests]
    return _passes(copied, "pytest", "-q", "-x", "-n", "0", "-m", "not soak", "-p", "no:cacheprovider", *names)


def _notice_in_room(copied: Path, module: Path) -> str:
    if module.parent == PACKAGE:
        return ""
    return "" if _pass(copied, [ROOT / "tests" / module.relative_to(PACKAGE).parts[0]]) else "tests of the room"


def _passes(copied: Path, *module: str) -> bool:
    environment = os.environ | {"PYTHONPATH": str(copied)}
    try:
        command = [sys.executable, "-m", *module]
        return not subprocess.run(
            command, cwd=copied, env=environment, capture_output=True, timeout=MAX_RUN_S, check=False
        ).returncode
    except subprocess.TimeoutExpired:
        return False


class BadBaseline(Exception):
    """The unchanged module fails, so that its mutants would seem to be noticed."""


def judge(copied: Path, path: Path, seeds: int) -> Iterator[tuple[Mutant, str]]:
    """Yield the mutants of a module, each with what notices it. Raises BadBaseline before the first one."""
    source, copy_of_module = path.read_text(), copied / path.relative_to(ROOT)
    for number, mutant in enumerate(mutants(source)):
        if not number and (failed := notice(copied, own_tests(path), seeds) or _notice_in_room(copied, path)):
            raise BadBaseline(f"{path.relative_to(ROOT)}: noticed by {failed} without any change")
        copy_of_module.write_text(mutant.source)
        try:
            yield mutant, notice(copied, own_tests(path), seeds) or _notice_in_room(copied, path)
        finally:
            copy_of_module.write_text(source)


def main() -> int:
    """Print a line for each mutant; return 1 if one survives, 2 if the unchanged code fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rooms", nargs="*", default=["log", "ledger", "handover", "logbuffer"])
    parser.add_argument("--seeds", type=int, default=50, help="Seeds of the simulation for each mutant.")
    parser.add_argument("--list", action="store_true", help="List the mutants without running them.")
    options = parser.parse_args()
    paths = [path for room in options.rooms for path in modules(room)]
    if options.list:
        for path in paths:
            for mutant in mutants(path.read_text()):
                print(f"{path.relative_to(ROOT)}:{mutant.line} {mutant.change}")
        return 0
    total = survived = 0
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder)
        for root in ("penstock", "tests", "docs", "examples"):
            shutil.copytree(ROOT / root, copied / root, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copied)
        try:
            for path in paths:
                for mutant, noticed_by in judge(copied, path, options.seeds):
                    total += 1
                    survived += not noticed_by
                    outcome = f"noticed by {noticed_by}" if noticed_by else "SURVIVED"
                    print(f"{path.relative_to(ROOT)}:{mutant.line} {mutant.change}: {outcome}", flush=True)
        except BadBaseline as error:
            print(error)
            return 2
    print(f"{total} mutants, {survived} survived")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
