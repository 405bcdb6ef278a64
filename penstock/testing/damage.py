"""What a disk or a crash does to files that nobody has open: a flipped bit, a lost end, a page of zeros."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

PAGE = 4096
LEFT_ALONE = ("token", "lock", "LOCK")
"""Names of files that are not data: a secret, and locks."""


def data_files(data_dir: Path) -> list[Path]:
    """All files below ``data_dir`` that hold something, but for tables, which are other programs' formats."""
    found = (path for path in data_dir.rglob("*") if path.is_file() and path.name not in LEFT_ALONE)
    own = (path for path in found if "tables" not in path.relative_to(data_dir).parts)
    return sorted(path for path in own if path.stat().st_size)


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


DAMAGES: tuple[Callable[[Path, random.Random], str], ...] = (flip_bit, cut_tail, zero_page)


def damage_one(data_dir: Path, dice: random.Random) -> str:
    """Damage one file, each kind of file as likely as the others; what was done, in words."""
    by_kind: dict[str, list[Path]] = {}
    for path in data_files(data_dir):
        by_kind.setdefault(path.suffix or path.name, []).append(path)
    if not by_kind:
        return "no file to damage"
    path = dice.choice(by_kind[dice.choice(sorted(by_kind))])
    return f"{path.relative_to(data_dir)}: {dice.choice(DAMAGES)(path, dice)}"
