"""What a process has loaded is no more looked through for garbage; what it makes from then on is."""

from __future__ import annotations

import subprocess
import sys

FROZEN = """
import gc
from penstock.process.loaded_for_good import keep_what_is_loaded
import penstock.log
before = len(gc.get_objects())
keep_what_is_loaded()
first = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
keep_what_is_loaded()
print(before, first, gc.get_freeze_count(), len(gc.get_objects()))
"""
FREED = """
import gc
import weakref
from penstock.process.loaded_for_good import keep_what_is_loaded

class Node:
    def __init__(self):
        self.itself = self

keep_what_is_loaded()
node = weakref.ref(Node())
gc.collect()
print(node())
"""


def told(code: str) -> list[str]:
    """What a process says that runs ``code``."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()


def test_what_is_there_at_the_first_call_is_left_out() -> None:
    before, first, later, left = map(int, told(FROZEN))
    assert first > 0.8 * before
    assert later <= first  # some of it is freed, nothing is added
    assert 1000 < left < 0.2 * before


def test_what_is_made_afterwards_and_holds_itself_is_still_freed() -> None:
    assert told(FREED) == ["None"]
