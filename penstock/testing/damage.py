"""What a disk or a crash does to files that nobody has open: a flipped bit, a lost end, a page of zeros."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

PAGE = 4096
LEFT_ALONE = ("token", "lock", "LOCK", "landed.lock")
"""Names of files that are not data: a secret, and locks."""
OTHERS = ("tables/_checkpoints/landed/", "tables/_checkpoints/scratch/")
OURS = ("tables/_checkpoints/", "tables/_types/")
"""Of what lies below ``tables``: the rest, and those, are other programs' formats."""


def data_files(data_dir: Path) -> list[Path]:
    """All files below ``data_dir`` that hold something and are Penstock's own."""
    found = (path for path in data_dir.rglob("*") if path.is_file() and path.name not in LEFT_ALONE)
    own = (path for path in found if _is_own(str(path.relative_to(data_dir))))
    return sorted(path for path in own if path.stat().st_size)


def _is_own(name: str) -> bool:
    return not name.startswith("tables/") or (name.startswith(OURS) and not name.startswith(OTHERS))


def flip_bit(path: Path, dice: random.Random) -> str:
    """Flip one bit; where, in words."""
    at, bit = dice.randrange(path.stat().st_size), dice.randrange(8)
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(1)[0]
        file.seek(at)
        file.write(bytes([old ^ 1 << bit]))
    return f"bit {bit} of byte {at:,} flipped"


def cut_tail(path: Path, dice: random.Random) -> str:
    """Cut off up to a page."""
    size = path.stat().st_size
    lost = dice.randint(1, min(size, PAGE))
    with path.open("r+b") as file:
        file.truncate(size - lost)
    return f"the last {lost:,} bytes cut off"


def zero_page(path: Path, dice: random.Random) -> str:
    """Zero one page."""
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
OFTEN = (8, 1, 1)
"""How often each of them: a bit is the hardest to notice."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What was done to a file: ``how`` is of ``DAMAGES``, ``kind`` what files of its sort have in common."""

    kind: str
    how: str
    words: str


def kind_of(name: str) -> str:
    """What files of one sort have in common, from a path below the data directory."""
    path = Path(_original(name))
    folders = [part for part in path.parent.parts[1:] if part[0] == "_" or part in SUBFOLDERS]
    several = path.suffix not in ("", ".json", ".jsonl") or folders[-1:] in (["_types"], ["refills"])
    last = "*" if folders[-1:] == ["quarantine"] else f"*{path.suffix.rstrip(string.digits)}" if several else path.name
    return "/".join([*path.parent.parts[:1], *folders, last])


def _original(name: str) -> str:
    """Of a file and its copy, the file."""
    return name.replace(".copy.", ".").replace(".copies", ".arrows")


def damage(data_dir: Path, dice: random.Random, number: int = 1) -> list[Damage]:
    """Damage ``number`` files, or all where there are fewer, each kind of file as likely as the others.

    Of a file and its copy only one is.
    """
    return [_damaged(data_dir, path, dice) for path in islice(_shuffled(data_dir, dice), number)]


def _shuffled(data_dir: Path, dice: random.Random) -> Iterator[Path]:
    """All files, but for those that have a copy one of the two: one of each kind, then a second one, and so on."""
    pairs: dict[str, list[Path]] = {}
    for path in data_files(data_dir):
        pairs.setdefault(_original(str(path.relative_to(data_dir))), []).append(path)
    by_kind: dict[str, list[Path]] = {}
    for name, pair in pairs.items():
        by_kind.setdefault(kind_of(name), []).append(dice.choice(pair))
    while kinds := [kind for kind in sorted(by_kind) if by_kind[kind]]:
        dice.shuffle(kinds)
        for kind in kinds:
            yield by_kind[kind].pop(dice.randrange(len(by_kind[kind])))


def _damaged(data_dir: Path, path: Path, dice: random.Random) -> Damage:
    [how] = dice.choices(list(DAMAGES), OFTEN)
    name = str(path.relative_to(data_dir))
    return Damage(kind_of(name), how, f"{name}: {DAMAGES[how](path, dice)}")
