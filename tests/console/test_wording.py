"""Numbers and counts in words."""

from __future__ import annotations

import time

import pytest

from penstock.console.wording import FATES, clock, exact, fate_of, lasted, meaning, short, size
from penstock.counts import LOST, Name


@pytest.mark.parametrize(
    ("number", "expected"), [(0, "0"), (999, "999"), (14100, "14.1k"), (2.5e6, "2.5M"), (0.1234, "0.123")]
)
def test_short_numbers(number: float, expected: str) -> None:
    assert short(number) == expected


def test_exact_numbers_sizes_and_times() -> None:
    assert (exact(1234567), size(3 << 20), size(100)) == ("1,234,567", "3 MiB", "100 B")
    assert (lasted(5), lasted(90), lasted(7200), lasted(2 * 86400)) == ("5 s", "1.5 min", "2 h", "2 d")
    now = time.time()
    assert clock(now) == time.strftime("%H:%M", time.localtime(now))
    assert len(clock(now - 40 * 86400)) > 5


@pytest.mark.parametrize("name", [n for n in Name if n not in (Name.HOLE, Name.JUMP)])
def test_every_loss_belongs_to_a_fate(name: Name) -> None:
    expected = fate_of(name + "x" if name.endswith(".") else name)
    is_end = name in (*LOST, Name.QUARANTINED, Name.DUPLICATE, Name.DROPPED)
    assert (expected in FATES) == is_end


def test_every_count_has_a_meaning() -> None:
    assert meaning("incomplete.expired").startswith("messages whose fragments")
    assert meaning("line.overlong") == "lines longer than max_line"
    assert meaning("invalid.other_reason") == "invalid: other reason"
