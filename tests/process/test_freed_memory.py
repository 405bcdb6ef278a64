"""What a process has freed goes back to the system."""

from __future__ import annotations

import subprocess
import sys

# Blocks between others that stay: the C library alone gives none of them back.
CODE = """
import penstock.process.small_heap
import asyncio
from penstock.process import freed_memory

async def main():
    freed_memory.EVERY = 0.05
    begun = freed_memory.own_memory()
    large, small = [], []
    for _ in range(100):
        large.append(bytearray(1 << 20))
        small.append(bytearray(600))
    full = freed_memory.own_memory()
    large.clear()
    freed = freed_memory.own_memory()
    task = asyncio.create_task(freed_memory.give_back_what_is_freed())
    await asyncio.sleep(1)
    print(begun >> 20, full >> 20, freed >> 20, freed_memory.own_memory() >> 20)
    task.cancel()

asyncio.run(main())
"""


def test_what_lies_between_that_which_stays_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True, text=True)
    begun, full, freed, left = map(int, done.stdout.split())
    assert full > begun + 90
    assert freed > begun + 80, "without it, it stays"
    assert left < begun + 20
