"""Now and history in one answer: query after query during kills, while batches commit and files are merged.

What was acknowledged before a query began is in its answer, each number once, none missing. The long one gives as many
answers as ``CAMPAIGN_ANSWERS`` says:

    CAMPAIGN_ANSWERS=10000 python -m pytest -s -m soak tests/system/test_sql_campaign.py
"""

from __future__ import annotations

import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock.client import ClientError, Log
from penstock.landing.table_paths import Layout
from penstock.landing.topics.from_folder import FolderStore
from penstock.sql.query import Query
from penstock.sql.tables import Tables
from penstock.testing.pipe import Pipe, wait_until
from tests.spark.spark_helpers import event
from tests.system.landing import Driver

ANSWERS = int(os.environ.get("CAMPAIGN_ANSWERS", "10_000"))
RATE, TOGETHER = 60, 6
AGAIN = 25
"""Each such number comes a second time."""
QUERY = """select count(*), count(distinct uuid), coalesce(max(substr(uuid, 2)::int), -1), count(landed_at)
from events"""
OPTIONS = (
    "pipeline.merge_files_every=3s",
    "log.topic_defaults.segment_size_limit=64KiB",
    "log.topic_defaults.compression=zstd",
)


class Numbers(threading.Thread):
    """A producer of numbered events; all up to ``acknowledged`` are stored."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._address, self._stopping = address, threading.Event()
        self.acknowledged = -1

    def run(self) -> None:
        with Log(self._address, retry_for=300) as log:
            while not self._stopping.wait(TOGETHER / RATE):
                first = self.acknowledged + 1
                numbers = range(first, first + TOGETHER)
                repeated = [number for number in numbers if number % AGAIN == 0]
                log.append("events", [event(number) for number in [*numbers, *repeated]])
                self.acknowledged = numbers[-1]

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)


class Asker(threading.Thread):
    """A client that queries until all clients together have ``enough`` answers."""

    def __init__(self, pipe: Pipe, numbers: Numbers, answers: list[float], enough: int) -> None:
        super().__init__(daemon=True)
        self._tables = Tables(Layout.for_tables(pipe.data_dir / "tables"), FolderStore(pipe.data_dir / "topics"))
        self._numbers, self._answers, self._enough = numbers, answers, enough
        self.wrong: list[Any] = []
        self.joined = 0
        """Answers of which a part had landed, and a part had not."""

    def run(self) -> None:
        while len(self._answers) < self._enough and not self.wrong:
            floor, began = self._numbers.acknowledged, time.monotonic()
            try:
                rows, different, newest, landed = self._query()
            except Exception as error:  # noqa: BLE001  the test says what it was
                self.wrong.append(error)
                return
            if not rows == different == newest + 1 > floor:
                self.wrong.append(f"{rows} rows, {different} uuids up to {newest}; {floor} was acknowledged")
            self.joined += 0 < landed < rows
            self._answers.append(time.monotonic() - began)

    def _query(self) -> tuple[int, ...]:
        with Query(self._tables, QUERY) as query:
            (row,) = query.answer().to_pylist()
        return tuple(row.values())


@contextmanager
def compacted(pipe: Pipe) -> Iterator[list[int]]:
    """Compact the topic's segments repeatedly; yields the saved bytes."""
    stopping, saved = threading.Event(), []

    def compact() -> None:
        with Log(pipe.grpc, retry_for=300) as log:
            while not stopping.wait(2):
                try:
                    compaction = log.compact("events")
                except ClientError:  # killed meanwhile, or there is no topic yet
                    continue
                saved.append(compaction.before - compaction.after)

    thread = threading.Thread(target=compact, daemon=True)
    thread.start()
    try:
        yield saved
    finally:
        stopping.set()
        thread.join(60)


def merges(pipe: Pipe) -> int:
    """Return the number of commits that removed files from the table."""
    log = Layout.for_tables(pipe.data_dir / "tables").landed / "_delta_log"
    return sum('"remove"' in path.read_text() for path in log.glob("*.json"))


def campaign(pipe: Pipe, driver: Driver, enough: int, dice: random.Random) -> list[float]:
    """Return the seconds that each of ``enough`` answers took."""
    numbers, answers, kills = Numbers(pipe.grpc), list[float](), 0
    numbers.start()
    driver.start()
    wait_until(lambda: numbers.acknowledged > 0, what="events are stored")
    wait_until(lambda: pipe.fates("events")["landed.event"], 400, "events land")
    askers = [Asker(pipe, numbers, answers, enough) for _ in range(2)]
    with compacted(pipe) as saved:
        for asker in askers:
            asker.start()
        while any(asker.is_alive() for asker in askers) or not (merges(pipe) and kills > 2):
            time.sleep(dice.uniform(2, 10))
            kills += 1
            if kills % 3:
                pipe.kill("log daemon")
            else:
                driver.kill()
                driver.start()
                time.sleep(dice.uniform(5, 30))
    numbers.stop()
    print(
        f"{len(answers)} answers, {sum(asker.joined for asker in askers)} of table and log; "
        f"median {statistics.median(answers):.3f} s, longest {max(answers):.3f} s; "
        f"{numbers.acknowledged + 1} events, {kills} kills, {merges(pipe)} merges, {len(saved)} compactions"
    )
    assert [wrong for asker in askers for wrong in asker.wrong] == []
    assert sum(asker.joined for asker in askers) > 0
    assert max(saved, default=0) > 0
    return answers


@pytest.mark.survives("SQL", "SIGKILL")
@pytest.mark.spark
@pytest.mark.parametrize(
    "enough",
    [
        pytest.param(150, marks=pytest.mark.timeout(900)),
        pytest.param(ANSWERS, marks=[pytest.mark.soak, pytest.mark.timeout(4 * 3600)]),
    ],
)
def test_each_answer_has_each_event_once_during_kills_commits_and_merges(
    pipes: Callable[..., Pipe], enough: int
) -> None:
    pipe = pipes(*OPTIONS)
    driver = Driver(pipe)
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")
    try:
        assert len(campaign(pipe, driver, enough, random.Random(seed))) >= enough
    finally:
        driver.kill()  # what it has not landed by now is of no interest
