"""Damage to closed files as by a disk or a crash: a flipped bit, a lost end, a page of zeros."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

PAGE = 4096
NOT_DATA = ("token", "lock", "LOCK", "landed.lock")
"""Files without data: a secret, and locks."""
FOREIGN_FOLDERS = ("tables/_checkpoints/landed/", "tables/_checkpoints/scratch/")
OWN_TABLE_FOLDERS = ("tables/_checkpoints/", "tables/_types/")
"""Penstock's own files below ``tables``; the others, and FOREIGN_FOLDERS, have the formats of Delta and Spark."""


def data_files(data_dir: Path) -> list[Path]:
    """Return all files below ``data_dir`` that are not empty and are Penstock's own."""
    paths = (path for path in data_dir.rglob("*") if path.is_file() and path.name not in NOT_DATA)
    own_files = (path for path in paths if _is_penstock_file(str(path.relative_to(data_dir))))
    return sorted(path for path in own_files if path.stat().st_size)


def _is_penstock_file(name: str) -> bool:
    return not name.startswith("tables/") or (
        name.startswith(OWN_TABLE_FOLDERS) and not name.startswith(FOREIGN_FOLDERS)
    )


def flip_bit(path: Path, dice: random.Random) -> str:
    """Flip one bit; return a description."""
    position, bit = dice.randrange(path.stat().st_size), dice.randrange(8)
    with path.open("r+b") as file:
        file.seek(position)
        old = file.read(1)[0]
        file.seek(position)
        file.write(bytes([old ^ 1 << bit]))
    return f"bit {bit} of byte {position:,} flipped"


def cut_tail(path: Path, dice: random.Random) -> str:
    """Cut off up to a page; return a description."""
    size = path.stat().st_size
    count = dice.randint(1, min(size, PAGE))
    with path.open("r+b") as file:
        file.truncate(size - count)
    return f"the last {count:,} bytes cut off"


def zero_page(path: Path, dice: random.Random) -> str:
    """Zero one page; return a description."""
    size = path.stat().st_size
    begin = dice.randrange(0, size, PAGE)
    length = min(PAGE, size - begin)
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(bytes(length))
    return f"{length:,} bytes from {begin:,} on zeroed"


DAMAGES: dict[str, Callable[[Path, random.Random], str]] = {
    "bits flipped": flip_bit,
    "ends cut off": cut_tail,
    "pages zeroed": zero_page,
}
SUBFOLDERS = ("quarantine", "cursors", "promoted", "refills")
WEIGHTS = (8, 1, 1)
"""Frequencies of DAMAGES: a flipped bit is the hardest to detect."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A damage to a file: ``how`` is a key of ``DAMAGES``, ``kind`` the class of the file."""

    kind: str
    how: str
    words: str


def kind_of(name: str) -> str:
    """Return the class of a file from its path below the data directory: the path without names and numbers."""
    path = Path(_original_name(name))
    folders = [part for part in path.parent.parts[1:] if part[0] == "_" or part in SUBFOLDERS]
    is_one_of_many = path.suffix not in ("", ".json", ".jsonl") or folders[-1:] in (["_types"], ["refills"])
    pattern = (
        "*"
        if folders[-1:] == ["quarantine"]
        else f"*{path.suffix.rstrip(string.digits)}"
        if is_one_of_many
        else path.name
    )
    return "/".join([*path.parent.parts[:1], *folders, pattern])


def _original_name(name: str) -> str:
    """Return the name of the original of a copy."""
    return name.replace(".copy.", ".").replace(".copies", ".arrows").removesuffix(".copy")


def damage(data_dir: Path, dice: random.Random, number: int = 1) -> list[Damage]:
    """Damage ``number`` files, or all if there are fewer; each kind of file is equally likely.

    A file and its copy are never both damaged.
    """
    return [_damage_file(data_dir, path, dice) for path in islice(_shuffled_files(data_dir, dice), number)]


def _shuffled_files(data_dir: Path, dice: random.Random) -> Iterator[Path]:
    """Yield a file of each kind, then a second one of each kind, and so on; of a file and its copy one of the two."""
    pairs: dict[str, list[Path]] = {}
    for path in data_files(data_dir):
        pairs.setdefault(_original_name(str(path.relative_to(data_dir))), []).append(path)
    by_kind: dict[str, list[Path]] = {}
    for name, pair in pairs.items():
        # Penstock promises to survive the damage of a file or of its copy, not of both.
        by_kind.setdefault(kind_of(name), []).append(dice.choice(pair))
    while kinds := [kind for kind in sorted(by_kind) if by_kind[kind]]:
        dice.shuffle(kinds)
        for kind in kinds:
            yield by_kind[kind].pop(dice.randrange(len(by_kind[kind])))


def _damage_file(data_dir: Path, path: Path, dice: random.Random) -> Damage:
    [method] = dice.choices(list(DAMAGES), WEIGHTS)
    name = str(path.relative_to(data_dir))
    return Damage(kind_of(name), method, f"{name}: {DAMAGES[method](path, dice)}")
