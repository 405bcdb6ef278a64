"""Each measure works, and each can be switched off."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from penstock.process.tuning import GRPC_SERIES, GRPC_VARIABLE, SKIP_VARIABLE, Measure, is_enabled


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: text for name, text in os.environ.items() if name not in (GRPC_VARIABLE, SKIP_VARIABLE)}
    return subprocess.run(
        [sys.executable, *arguments], env=clean | environment, check=True, capture_output=True, text=True, timeout=120
    )


def words(code: str, **environment: str) -> list[str]:
    return run("-c", code, **environment).stdout.split()


def test_measures_are_skipped_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SKIP_VARIABLE, "warm_heap, frozen_objects")
    assert [measure for measure in Measure if not is_enabled(measure)] == [Measure.WARM_HEAP, Measure.FROZEN_OBJECTS]


STATE = "import {module}, pyarrow, sys; print(pyarrow.default_memory_pool().backend_name, sys.modules.get('pandas'))"


@pytest.mark.parametrize("module", ["penstock.ingest.receiver", "penstock.spark.pipeline"])
def test_receiver_and_pipeline_use_the_allocator_of_the_c_library(module: str) -> None:
    assert words(STATE.format(module=module))[0] == "system"


def test_receiver_runs_without_pandas() -> None:
    assert words(STATE.format(module="penstock.ingest.receiver"))[1] == "None"


PANDAS = """
from penstock.process.tuning import tune
tune("command")
try:
    import pandas
except ImportError:
    print("blocked")
else:
    print("imported")
"""


def test_pandas_is_blocked_unless_the_measure_is_skipped() -> None:
    assert words(PANDAS) == ["blocked"]
    assert words(PANDAS, PENSTOCK_SKIP_TUNING="no_pandas") == ["imported"]


# Blocks between others that stay: the C library alone returns none of them.
FRAGMENTED = """
from penstock.process import tuning
tuning.shrink_heap()
import asyncio
import pyarrow

async def main():
    tuning.RELEASE_INTERVAL_S = 0.05
    start = tuning.own_memory()
    large, small = [], []
    for _ in range(100):
        large.append(bytearray(1 << 20))
        small.append(bytearray(600))
    full = tuning.own_memory()
    large.clear()
    freed = tuning.own_memory()
    task = asyncio.create_task(tuning.release_freed_memory())
    await asyncio.sleep(1)
    print(start >> 20, full >> 20, freed >> 20, tuning.own_memory() >> 20)
    task.cancel()

asyncio.run(main())
"""


def test_freed_memory_between_live_blocks_is_released() -> None:
    start, full, freed, released = map(int, words(FRAGMENTED))
    assert full > start + 90
    assert freed > start + 80, "the C library alone keeps it"
    assert released < start + 20


FROZEN = """
import gc
from penstock.process.tuning import freeze_loaded_objects
import penstock.log
before = len(gc.get_objects())
freeze_loaded_objects()
first = gc.get_freeze_count()
later_objects = [[] for _ in range(1000)]
freeze_loaded_objects()
print(before, first, gc.get_freeze_count(), len(gc.get_objects()))
"""
CYCLE = """
import gc
import weakref
from penstock.process.tuning import freeze_loaded_objects

class Node:
    def __init__(self):
        self.itself = self

freeze_loaded_objects()
node = weakref.ref(Node())
gc.collect()
print(node())
"""


def test_only_the_first_call_freezes_objects() -> None:
    before, first, later, tracked = map(int, words(FROZEN))
    assert first > 0.8 * before
    assert later <= first  # some are freed, none is added
    assert 1000 < tracked < 0.2 * before


def test_objects_are_not_frozen_when_the_measure_is_skipped() -> None:
    assert words(FROZEN, PENSTOCK_SKIP_TUNING="frozen_objects")[1] == "0"


def test_cycles_created_after_the_freeze_are_collected() -> None:
    assert words(CYCLE) == ["None"]


SERVER = """
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
TUNE
import grpc

def switches():
    count = 0
    for thread in Path("/proc/self/task").iterdir():
        if (thread / "comm").read_text().startswith("event_eng"):
            count += int((thread / "status").read_text().split("voluntary_ctxt_switches:")[1].split()[0])
    return count

def call(port):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for _ in range(200):
            try:
                channel.unary_unary("/a/b")(b"", timeout=20)
            except grpc.RpcError as error:
                assert error.code() is grpc.StatusCode.UNIMPLEMENTED

if len(sys.argv) > 1:
    call(sys.argv[1])
else:
    import subprocess
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    before = switches()
    subprocess.run([sys.executable, __file__, str(port)], check=True)
    print(switches() - before, os.environ.get("GRPC_EXPERIMENTS"))
    server.stop(0)
"""
TUNE = "from penstock.process.tuning import poll_grpc_in_callers; poll_grpc_in_callers()"


def serve(folder: Path, tune: str, **environment: str) -> tuple[int, str, str]:
    """Return how often grpc's own threads woke during 200 calls, GRPC_EXPERIMENTS afterwards, and standard error."""
    path = folder / "server.py"
    path.write_text(SERVER.replace("TUNE", tune))
    process = run(str(path), **environment)
    count, variable = process.stdout.split()
    return int(count), variable, process.stderr


def test_grpc_threads_sleep_while_calls_are_served(tmp_path: Path) -> None:
    assert version("grpcio").startswith(GRPC_SERIES), "measure the new release, then change GRPC_SERIES"
    count, variable, complaints = serve(tmp_path, TUNE)
    assert count < 100 < serve(tmp_path, "")[0]
    assert variable == "None"
    assert "experiment" not in complaints.lower()


def test_grpc_experiments_of_the_environment_are_respected(tmp_path: Path) -> None:
    count, variable, _ = serve(tmp_path, TUNE, GRPC_EXPERIMENTS="-event_engine_dns")
    assert (count > 100, variable) == (True, "-event_engine_dns")
