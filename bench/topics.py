"""Many topics: appends of one entry to all of them at once, a start, and the commands that ask for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc.aio

from bench.growth_stored import store_topics
from bench.log import OPTIONS, SERVICE
from bench.peers.penstock import LOG_ALONE
from penstock.slogd import slogd_pb2 as pb
from penstock.testing.pipe import Pipe
from penstock.testing.processes import cpu_of_all

AT_ONCE = (1, 100, 1_000)
CALLERS, CHANNELS = 100, 10
OWN_CONNECTION = ("grpc.use_local_subchannel_pool", 1)
"""Otherwise channels to one address share a connection, and it takes 256 calls at once."""
SECONDS = 3.0
TOPICS = 1_111
COMMANDS = {"topics": ["topics"], "balance_full": ["balance", "--full"]}
SIZE = 256


def measure() -> dict[str, Any]:
    """CPU in us of the server for an append, and seconds of CPU of a start and of commands, with their server."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        with _started(Path(folder, "none")) as pipe:
            figures["topics_none_start_cpu_s"] = _cpu(pipe)
        with _started(Path(folder, "appends")) as pipe:
            for topics in AT_ONCE:
                figures[f"topics_{topics}_at_once_append_cpu_us"] = asyncio.run(_appends(pipe, topics))
        stored = Path(folder, "stored")
        store_topics(stored / "data" / "topics", TOPICS)
        with _started(stored) as pipe:
            figures[f"topics_{TOPICS}_first_start_cpu_s"] = _cpu(pipe)
        with _started(stored) as pipe:
            figures[f"topics_{TOPICS}_start_cpu_s"] = _cpu(pipe)
            for name, command in COMMANDS.items():
                asked = _asked(pipe, command)
                figures |= {f"topics_{TOPICS}_{name}_{figure}": value for figure, value in asked.items()}
    return {name: round(value, 2) for name, value in figures.items()}


@contextlib.contextmanager
def _started(folder: Path) -> Iterator[Pipe]:
    """Run a log alone in a folder, and stop it also after an error."""
    folder.mkdir(exist_ok=True)
    pipe = Pipe(folder, f"log.max_topics={TOPICS + 100}")
    pipe.configure(LOG_ALONE)
    try:
        pipe.start()
        yield pipe
    finally:
        pipe.stop()


def _cpu(pipe: Pipe) -> float:
    assert pipe.process
    return cpu_of_all(pipe.process.pid)


async def _appends(pipe: Pipe, topics: int) -> float:
    """Return us of CPU for each append of one entry; the callers take the topics in turn."""
    requests = [
        pb.AppendRequest(topic=f"topic-{number}", logs=[pb.LogEntry(raw_bytes=b"m" * SIZE)]).SerializeToString()
        for number in range(topics)
    ]
    async with contextlib.AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(pipe.grpc, options=[*OPTIONS, OWN_CONNECTION]))
            for _ in range(CHANNELS)
        ]
        calls: list[grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]] = [
            channel.unary_unary(SERVICE + "AppendLogs") for channel in channels
        ]
        for request in requests:
            await calls[0](request)  # topics are created by their first entry
        done, used, until = 0, _cpu(pipe), time.perf_counter() + SECONDS

        async def append(caller: int) -> None:
            nonlocal done
            while time.perf_counter() < until:
                done += 1
                await calls[caller % CHANNELS](requests[done % topics])

        await asyncio.gather(*map(append, range(max(topics, CALLERS))))
        return (_cpu(pipe) - used) / done * 1e6


def _asked(pipe: Pipe, command: list[str]) -> dict[str, float]:
    used, began = _cpu(pipe) + _of_children(), time.perf_counter()
    whole = [sys.executable, "-m", "penstock.cli.main", *command, *pipe.options]
    done = subprocess.run(whole, env=pipe.environment(), check=False, capture_output=True, text=True)
    # The verdict 1 of a balance: what was written behind the log daemon's back is not accounted for.
    assert done.returncode in (0, 1), done.stderr
    return {"s": time.perf_counter() - began, "cpu_s": _cpu(pipe) + _of_children() - used}


def _of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
