"""A writing process that is killed, in the middle of everything it can do."""

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
    """What a writer was told before it was killed."""
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


def check(folder, told):
    """All that was told is there, nothing twice, requests are whole, transactions are in both topics or in none."""
    log = Log(folder, fs=UNSYNCED)
    found = {name: rows(folder, log.topic(name).name) for name in log.names()}
    assert all(log.topic(name).gaps() == [] and log.topic(name).verify() == [] for name in found)
    log.close()
    for values in found.values():
        assert len(set(values)) == len(values)
        for at in range(0, len(values), 5):
            stem = values[at].rpartition(b"-")[0]
            assert values[at : at + 5] == [b"%s-%d" % (stem, k) for k in range(5)]
    for one in told:
        assert found[one["topic"]][one["first"]] == f"{one['name']}-{one['number']}-0".encode()
    assert {value for value in found["t"] if b".x-" in value} == set(found.get("u", []))


def run(folder, lives):
    told = []
    for life in range(lives):
        told += kill_a_writer(folder, life)
        check(folder, told)
    assert {one["name"].split(".")[1] for one in told} == {"a", "b", "x"}


def test_after_sigkill_everything_acknowledged_is_there_whole_and_once(tmp_path):
    run(tmp_path, 3)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_the_same_fifty_times(tmp_path):
    run(tmp_path, 50)
