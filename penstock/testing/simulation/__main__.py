"""``python -m penstock.testing.simulation``: run many seeds on all cores, and shrink what fails."""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import os
import signal
import sys
import time
from functools import partial
from typing import Any

from penstock.testing.simulation.outcome import Outcome
from penstock.testing.simulation.promises import Broken
from penstock.testing.simulation.run import MESSAGES, STEPS, simulate
from penstock.testing.simulation.shrink import MAX_RUNS, Simulate, shrink

TIMELINE_LINES = 60
PROGRESS_INTERVAL_S = 5.0
MAX_RUN_S = 300
"""Limit for a run, which takes a second or two of CPU: a run that waits for a lock never ends."""

OBJECTS_BEFORE_COLLECTION = 50_000
"""Objects that a run may make before cycles are collected: with Python's 700 that takes a fifteenth of a run."""

MAX_RUNS_OF_PROCESS = 200
"""Limit: what killed processes of a run leave behind, mapped files above all, is freed late."""


def simulate_within_limit(simulate: Simulate, seed: int) -> Outcome:
    """Run a seed in the main thread; a run that takes longer than ``MAX_RUN_S`` fails."""
    signal.signal(signal.SIGALRM, _end_run)
    signal.alarm(MAX_RUN_S)
    try:
        return simulate(seed)
    finally:
        signal.alarm(0)


def _end_run(number: int, frame: Any) -> None:
    raise Broken(f"the run did not end within {MAX_RUN_S} s")


def _prepare_process() -> None:
    logging.disable(logging.CRITICAL)
    gc.freeze()  # what is loaded is never looked at again
    gc.set_threshold(OBJECTS_BEFORE_COLLECTION)


def run_seeds(simulate: Simulate, seeds: range, processes: int) -> list[Outcome]:
    """Run all seeds and report progress; return the failed outcomes."""
    failed: list[Outcome] = []
    begin = last_report = time.monotonic()
    with multiprocessing.Pool(processes, _prepare_process, maxtasksperchild=MAX_RUNS_OF_PROCESS) as pool:
        for number, outcome in enumerate(pool.imap_unordered(partial(simulate_within_limit, simulate), seeds), 1):
            if outcome.broken:
                failed.append(outcome)
                print(f"seed {outcome.seed}: {outcome.broken}", flush=True)
            now = time.monotonic()
            if now - last_report > PROGRESS_INTERVAL_S or number == len(seeds):
                last_report = now
                rate = number / (now - begin)
                print(f"{number} of {len(seeds)} seeds, {len(failed)} failed, {rate:.1f} seeds/s", flush=True)
    return failed


def report(outcome: Outcome, simulate: Simulate, steps: int, messages: int) -> None:
    """Print the shrunk timeline of a failed seed, and the test that repeats it."""
    case = shrink(outcome, MAX_RUNS, simulate, steps, messages)
    shrunk = case.run()
    print(f"\nseed {outcome.seed}, shrunk to {len(case.faults)} faults and {case.messages} messages of each sender:")
    print("\n".join(shrunk.trace[-TIMELINE_LINES:]))
    print(f"broken: {shrunk.broken}\ntest:   {case.as_test()}", flush=True)


def main() -> int:
    """Parse the command line and run; return the exit code."""
    parser = argparse.ArgumentParser("penstock.testing.simulation", description="Simulate the pipe, one run per seed.")
    parser.add_argument("--seeds", type=int, default=100, help="Number of seeds.")
    parser.add_argument("--first", type=int, default=0, help="First seed.")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="Number of processes.")
    parser.add_argument("--trace", action="store_true", help="Print the trace and its hash of each seed.")
    parser.add_argument("--landing", action="store_true", help="Simulate the landing instead of the pipe before it.")
    parser.add_argument("--forwarding", action="store_true", help="Add a forwarder to each listener.")
    parser.add_argument("--groups", action="store_true", help="Add groups of Kafka's protocol and their members.")
    parser.add_argument("--producers", action="store_true", help="Add groups and producers of Kafka's protocol.")
    parser.add_argument("--sockets", action="store_true", help="Simulate receivers with their sockets and senders.")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    run: tuple[Simulate, int, int] = simulate, STEPS, MESSAGES
    if options.landing:
        # Imported late: Spark's client is an extra.
        from penstock.testing.simulation.landing.run import LANDING_MESSAGES, LANDING_STEPS, simulate_landing

        run = simulate_landing, LANDING_STEPS, LANDING_MESSAGES
    elif options.forwarding:
        # Imported late: it prepares its process for a forwarder.
        from penstock.testing.simulation.forwarding import simulate_forwarding

        run = simulate_forwarding, STEPS, MESSAGES
    elif options.groups:
        # Imported late: Kafka's protocol is an extra.
        from penstock.testing.simulation.groups.run import simulate_groups

        run = simulate_groups, STEPS, MESSAGES
    elif options.producers:
        # Imported late: Kafka's protocol is an extra.
        from penstock.testing.simulation.groups.producers import simulate_producers

        run = simulate_producers, STEPS, MESSAGES
    elif options.sockets:
        # Imported late: receivers and codecs, which no other run needs.
        from penstock.testing.simulation.sockets.run import SOCKET_MESSAGES, SOCKET_STEPS, simulate_sockets

        run = simulate_sockets, SOCKET_STEPS, SOCKET_MESSAGES
    seeds = range(options.first, options.first + options.seeds)
    if options.trace:
        for seed in seeds:
            outcome = run[0](seed)
            print("\n".join(outcome.trace))
            print(f"seed {seed}: {outcome.digest}", flush=True)
        return 0
    failed = run_seeds(run[0], seeds, options.processes)
    for outcome in failed[:3]:
        report(outcome, *run)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
