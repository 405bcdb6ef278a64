"""Prints the modules whose own tests leave lines uncovered, or that have none: ``python -m tests.own_coverage log``.

A module's own test file is ``tests/ROOM/test_NAME.py``, or several that begin so (``test_consumer_seek.py``). What only
a child process runs is not seen.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from coverage import Coverage

from tests.test_tidy import TESTED_BY

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "penstock"
GENERATED = "slogd_pb2"


def modules(room: str) -> Iterator[Path]:
    """Yield the modules with code in a room, or in all rooms."""
    for path in sorted((PACKAGE / room).rglob("*.py") if room else PACKAGE.rglob("*.py")):
        if path.name != "__init__.py" and GENERATED not in path.name:
            yield path


def own_tests(module: Path) -> list[Path]:
    """Return the test files of a module; where it has none, the one that test_tidy names for it."""
    folder = ROOT / "tests" / module.relative_to(PACKAGE).parent
    siblings = {path.stem for path in module.parent.glob("*.py")}
    candidates = [folder / f"test_{module.stem}.py", *sorted(folder.glob(f"test_{module.stem}_*.py"))]
    own = [
        path for path in candidates if path.exists() and (path.stem[5:] == module.stem or path.stem[5:] not in siblings)
    ]
    other = TESTED_BY.get(str(module.relative_to(ROOT)))
    return own or ([ROOT / other] if other else [])


def uncovered(module: Path, tests: list[Path]) -> list[int]:
    """Return the lines of ``module`` that its own tests do not reach."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "coverage"
        source = [f"--data-file={data}", f"--include={module}"]
        command = [sys.executable, "-m", "coverage", "run", *source, "-m", "pytest", "-q", *map(str, tests)]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        coverage = Coverage(data_file=str(data))
        coverage.load()
        return list(coverage.analysis2(str(module))[3]) if data.exists() else [0]


def main() -> None:
    """Print a line for each module that its own tests do not cover."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("room", nargs="?", default="", help="a folder of penstock, such as log/store; all without it")
    for module in modules(parser.parse_args().room):
        tests = own_tests(module)
        missing = uncovered(module, tests) if tests else []
        name = module.relative_to(ROOT)
        if not tests:
            print(f"{name}: no test file of its own", flush=True)
        elif missing:
            print(f"{name}: lines {', '.join(map(str, missing))}", flush=True)


if __name__ == "__main__":
    main()
