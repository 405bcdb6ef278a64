"""Licences of what users install with Penstock: permissive, or listed with a reason in the record of decisions."""

from __future__ import annotations

import re
from importlib.metadata import PackageMetadata, metadata, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

RECORD = Path(__file__).parents[1] / "docs/decisions/0011-licences.md"
EXTRAS = {"spark", "sql", "kafka", "console", "java", "otel"}
COPYLEFT = re.compile(r"GPL|MPL|EPL|General Public|Mozilla|Affero|Eclipse", re.IGNORECASE)
PERMISSIVE = re.compile(r"Apache|MIT|BSD|ISC|PSF|Python Software Foundation|Dual License", re.IGNORECASE)


def test_each_dependency_is_permissive_or_in_the_record() -> None:
    table = RECORD.read_text().partition("## CRC32C")[0]
    excepted = {
        name for row in re.findall(r"^\| (`.*?)\|", table, re.MULTILINE) for name in re.findall(r"`(.*?)`", row)
    }
    copyleft = set()
    for name in _dependencies():
        licence = _licence(metadata(name))
        assert licence, f"{name} names no licence: read its files, then list it in {RECORD.name}"
        if COPYLEFT.search(licence):
            copyleft.add(name)
        else:
            assert PERMISSIVE.search(licence), f"{name}: unknown licence {licence!r}"
    assert copyleft == excepted, f"{RECORD.name} lists {excepted}"


def _licence(fields: PackageMetadata) -> str:
    classifiers = [line for line in fields.get_all("Classifier") or () if line.startswith("License ::")]
    # Some distributions have the whole text in the field License.
    return " ".join([fields.get("License-Expression") or (fields.get("License") or "")[:100], *classifiers]).strip()


def _dependencies() -> set[str]:
    """Return all distributions that ``pip install penstock-pipe`` with the extras for users brings."""
    open_requirements = [Requirement(f"penstock-pipe[{','.join(EXTRAS)}]")]
    visited: set[tuple[str, str]] = set()
    while open_requirements:
        requirement = open_requirements.pop()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras} - {extra for visited_name, extra in visited if visited_name == name}:
            visited.add((name, extra))
            for line in requires(name) or ():
                needed = Requirement(line)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    open_requirements.append(needed)
    return {name for name, _ in visited}
