"""The process of the SQL servers."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import re
from pathlib import Path

import numpy
from penstock.config.keys.sql import SqlConfig
from penstock.sql import servers

in_use = int(re.search(r"VmData:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10
servers.BASE_BYTES = in_use + (200 << 20)
servers.limit_memory(SqlConfig(max_queries=2, memory=64 << 20))
numpy.ones(100 << 20, "u1")
try:
    numpy.ones(400 << 20, "u1")
except MemoryError:
    print("refused")
"""


def test_allocation_beyond_the_memory_of_all_queries_fails() -> None:
    answer = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=True)
    assert answer.stdout == "refused\n"
