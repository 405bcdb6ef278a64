"""Weakens each tagged safeguard in turn and reports which ones no test notices: ``python -m tests.mutants log/store``.

A safeguard is the statement below a comment that begins with ``Invariant:``, ``Order:``, ``Crash:`` or ``Limit:``. A
mutant removes it, swaps it with the next statement, negates its condition or lifts its bound. The module's own tests
run first, then seeds of the simulation, then all tests of its room, each if nothing has noticed it before; with
``--own`` its own tests only. The unchanged code must pass all of them. ``--sample`` draws some of the mutants.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.own_coverage import PACKAGE, ROOT, modules, own_tests

TAGS = ("Invariant", "Order", "Crash", "Limit")
MAX_RUN_S = 900
"""Limit for the tests of a mutant: one that waits forever is noticed."""
MIN_RUN_S = 60
SLOWDOWN = 10
"""Limit for the tests of a mutant as a multiple of what the unchanged module needs, on a machine that may be busy."""
TAG = re.compile(rf"\s*# ({'|'.join(TAGS)}): ")
BARRIER_TESTS = ROOT / "tests" / "files" / "test_memory_order.py"
"""Tests that notice a missing barrier on every machine: x86 needs none."""
BLOCKS = ("body", "orelse", "finalbody")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module's source with one safeguard weakened; ``line`` is the safeguard's in the real source."""

    tag: str
    line: int
    change: str
    source: str


def tagged_lines(source: str) -> Iterator[tuple[str, int]]:
    """Yield the tag of each tagged comment and the line of the first code below it."""
    lines = source.splitlines()
    for number, text in enumerate(lines):
        if tag := TAG.match(text):
            following = number
            while following < len(lines) and lines[following].lstrip().startswith("#"):
                following += 1
            yield tag[1], following + 1


def mutants(source: str) -> Iterator[Mutant]:
    """Yield the mutants of a module."""
    for tag, line in tagged_lines(source):
        changes = ("remove", "swap") if _block_of(ast.parse(source), line) else ()
        for change in (*changes, "negate", "unbound"):
            tree = ast.parse(source)
            if _weaken(tree, line, change):
                yield Mutant(tag, line, change, ast.unparse(tree))


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


class BadBaseline(Exception):
    """The unchanged module fails, so that its mutants would seem to be noticed."""


@dataclass(frozen=True, slots=True)
class Checks:
    """What runs for each mutant in a copy of the repository, and how long it may take."""

    copied: Path
    seeds: int
    with_room: bool
    limit_s: float = MAX_RUN_S

    def notice(self, module: Path) -> str:
        """Return what notices the mutant of a module: "tests", "simulation", "tests of the room" or ""."""
        tests = own_tests(module)
        if "memory_order.barrier" in module.read_text():
            tests.append(BARRIER_TESTS)
        if tests and not self._pass(tests):
            return "tests"
        simulation = ("penstock.testing.simulation", "--processes", "1", "--seeds", str(self.seeds))
        if self.seeds and not self._passes(*simulation):
            return "simulation"
        room = ROOT / "tests" / module.relative_to(PACKAGE).parts[0]
        if self.with_room and module.parent != PACKAGE and not self._pass([room]):
            return "tests of the room"
        return ""

    def _pass(self, tests: list[Path]) -> bool:
        names = [str(path.relative_to(ROOT)) for path in tests]
        return self._passes("pytest", "-q", "-x", "-n", "0", "-m", "not soak", "-p", "no:cacheprovider", *names)

    def _passes(self, *module: str) -> bool:
        environment = os.environ | {"PYTHONPATH": str(self.copied)}
        process = subprocess.Popen(
            [sys.executable, "-m", *module],
            cwd=self.copied,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return not process.wait(self.limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return False


def judge(checks: Checks, path: Path, chosen: list[Mutant]) -> Iterator[tuple[Mutant, str]]:
    """Yield mutants of a module, each with what notices it. Raises BadBaseline before the first one."""
    source, copy_of_module = path.read_text(), checks.copied / path.relative_to(ROOT)
    begin = time.monotonic()
    if failed := checks.notice(path):
        raise BadBaseline(f"{path.relative_to(ROOT)}: noticed by {failed} without any change")
    limit_s = min(MAX_RUN_S, max(MIN_RUN_S, SLOWDOWN * (time.monotonic() - begin)))
    for mutant in chosen:
        copy_of_module.write_text(mutant.source)
        try:
            yield mutant, replace(checks, limit_s=limit_s).notice(path)
        finally:
            copy_of_module.write_text(source)


def choose(rooms: list[str], tags: list[str], sample: int, seed: int) -> dict[Path, list[Mutant]]:
    """Return the mutants of rooms by module: all of them, or as many as ``sample`` says, drawn by a seed."""
    every = [
        (path, mutant)
        for room in rooms
        for path in modules(room)
        for mutant in mutants(path.read_text())
        if mutant.tag in tags
    ]
    if 0 < sample < len(every):
        every = sorted(random.Random(seed).sample(every, sample), key=every.index)
    chosen: dict[Path, list[Mutant]] = {}
    for path, mutant in every:
        chosen.setdefault(path, []).append(mutant)
    return chosen


def copy_repository(folder: Path) -> None:
    """Copy what the tests read into a folder, where modules may be changed."""
    for root in ("penstock", "tests", "docs", "examples"):
        shutil.copytree(ROOT / root, folder / root, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)


def main() -> int:
    """Print a line for each mutant; return 1 if one survives, 2 if the unchanged code of a module fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rooms", nargs="*", default=["log", "ledger", "handover", "logbuffer"])
    parser.add_argument("--seeds", type=int, default=50, help="Seeds of the simulation for each mutant.")
    parser.add_argument("--own", action="store_true", help="Run the module's own tests, not all tests of its room.")
    parser.add_argument("--tags", nargs="+", choices=TAGS, default=TAGS, help="Kinds of safeguards.")
    parser.add_argument("--sample", type=int, default=0, help="Number of mutants to draw; 0: all.")
    parser.add_argument("--random", type=int, default=0, help="Seed of the sample.")
    parser.add_argument("--list", action="store_true", help="List the mutants without running them.")
    options = parser.parse_args()
    chosen = choose(options.rooms, options.tags, options.sample, options.random)
    if options.list:
        for path, mutants_of_module in chosen.items():
            for mutant in mutants_of_module:
                print(f"{path.relative_to(ROOT)}:{mutant.line} {mutant.change}")
        return 0
    total = survived = failed_modules = 0
    with tempfile.TemporaryDirectory() as folder:
        copy_repository(Path(folder))
        checks = Checks(Path(folder), options.seeds, not options.own)
        for path, mutants_of_module in chosen.items():
            try:
                for mutant, noticed_by in judge(checks, path, mutants_of_module):
                    total += 1
                    survived += not noticed_by
                    outcome = f"noticed by {noticed_by}" if noticed_by else "SURVIVED"
                    print(f"{path.relative_to(ROOT)}:{mutant.line} {mutant.change}: {outcome}", flush=True)
            except BadBaseline as error:
                failed_modules += 1
                print(error, flush=True)
    print(f"{total} mutants, {survived} survived, {failed_modules} modules not judged")
    return 2 if failed_modules else 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
