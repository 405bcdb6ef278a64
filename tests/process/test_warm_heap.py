"""Processes that use the memory of a round again."""

from __future__ import annotations

import subprocess
import sys

import pytest

SAID = "import {module}, pyarrow, sys; print(pyarrow.default_memory_pool().backend_name, sys.modules.get('pandas'))"


@pytest.mark.parametrize("module", ["penstock.ingest.receiver", "penstock.spark.pipeline"])
def test_they_take_it_from_the_c_library(module: str) -> None:
    command = [sys.executable, "-c", SAID.format(module=module)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[0] == "system"


def test_a_receiver_does_without_pandas() -> None:
    command = [sys.executable, "-c", SAID.format(module="penstock.ingest.receiver")]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[1] == "None"
