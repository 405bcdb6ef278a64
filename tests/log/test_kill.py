"""A writing process that is killed at any point."""

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from penstock.log import Log, TopicReader
from tests.log.log_helpers import UNSYNCED

WRITER = textwrap.dedent("""
    import itertools, json, os, pathlib, sys, threading
    from penstock.counts import Origin
    from penstock.log import Limits, Log, ProducerSequence, TopicSettings
    from penstock.records import body

    settings = TopicSettings(segment_size_limit=30_000, compression="zstd")
    log = Log(pathlib.Path(sys.argv[1]), settings)
    life = sys.argv[2]
    origin = Origin("s", 60, 1, 2, counts={"accepted": 5})

    def say(**told):
        os.write(1, json.dumps(told).encode() + b"\\n")

    def values(name, number):
        return [b"%s-%d-%d" % (name.encode(), number, k) for k in range(5)]

    def append(name, numbered):
        topic = log.topic("t", create=True)
        for number in itertools.count():
            producer = ProducerSequence(name, number) if numbered else None
            done = topic.append(body(values(name, number)), origin, producer=producer).result()
            if numbered:
                again = topic.append(body(values(name, number)), origin, producer=producer).result()
                assert again.first == done.first
            say(topic="t", first=done.first, name=name, number=number)

    def transact(name):
        for number in itertools.count():
            transaction = log.transactions.begin()
            for topic in ("t", "u"):
                log.transactions.append(transaction, topic, body(values(name, number)), origin)
            if number % 4 == 3:
                log.transactions.abort(transaction)
                continue
            for topic, (done,) in log.transactions.commit(transaction).items():
                say(topic=topic, first=done.first, name=name, number=number)

    def maintain():
        while True:
            log.sweep()

    work = [(append, (f"{life}.a", False)), (append, (f"{life}.b", True)), (transact, (f"{life}.x",)), (maintain, ())]
    for target, arguments in work:
        threading.Thread(target=target, args=arguments).start()
""")


def kill_a_writer(folder, life):
    """Return the answers that a writer got before it was killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(life)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    lines = [process.stdout.readline()]
    time.sleep(random.Random(life).uniform(0.05, 0.6))
    os.kill(process.pid, signal.SIGKILL)
    rest, errors = process.communicate()
    assert lines[0], errors.decode()
    assert errors == b""
    lines += rest.splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def rows(folder, topic):
    batches = [stored.batch for stored in TopicReader(folder / topic).read(0)]
    return [value for batch in batches for value in batch.column("payload").to_pylist()]


def check(folder, answers):
    """Check that acknowledged rows are stored once, requests are complete, and transactions are in both topics or
    in none.
    """
    log = Log(folder, fs=UNSYNCED)
    stored = {name: rows(folder, log.topic(name).name) for name in log.names()}
    assert all(log.topic(name).gaps() == [] and log.topic(name).verify() == [] for name in stored)
    log.close()
    for values in stored.values():
        assert len(set(values)) == len(values)
        for index in range(0, len(values), 5):
            stem = values[index].rpartition(b"-")[0]
            assert values[index : index + 5] == [b"%s-%d" % (stem, k) for k in range(5)]
    for answer in answers:
        assert stored[answer["topic"]][answer["first"]] == f"{answer['name']}-{answer['number']}-0".encode()
    assert {value for value in stored["t"] if b".x-" in value} == set(stored.get("u", []))


def run(folder, lives):
    answers = []
    for life in range(lives):
        answers += kill_a_writer(folder, life)
        check(folder, answers)
    assert {answer["name"].split(".")[1] for answer in answers} == {"a", "b", "x"}


@pytest.mark.survives("log", "SIGKILL")
def test_acknowledged_rows_are_complete_and_stored_once_after_sigkill(tmp_path):
    run(tmp_path, 3)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_fifty_kills_lose_nothing(tmp_path):
    run(tmp_path, 50)
