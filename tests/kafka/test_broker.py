"""The broker for trying out and for tests: real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from penstock.kafka.broker import Broker, CannotStart, answers_metadata

QUICK = ("-XX:TieredStopAtLevel=1",)
COMMAND = [sys.executable, "-m", "penstock.cli.main", "kafka", "start"]


def produce(address: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": address})
    for value in values:
        producer.produce("t", value)
    assert producer.flush(30) == 0


def consume(address: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    found: list[bytes] = []
    until = time.monotonic() + 60
    while len(found) < count and time.monotonic() < until:
        found += [message.value() for message in consumer.consume(count, 0.5) if not message.error()]
    consumer.close()
    return found


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_gone(pid: int, seconds: float = 40.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not gone(pid):
        time.sleep(0.05)
    return gone(pid)


def test_the_command_says_where_it_listens_and_leaves_nothing_on_sigterm(tmp_path: Path) -> None:
    command = [*COMMAND, "--folder", str(tmp_path), "--port", "0", "--memory", "256m"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    line = next(line for line in process.stderr if "bootstrap.servers=" in line)
    address = line.split("bootstrap.servers=")[1].split(",")[0]
    assert answers_metadata(address)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert not answers_metadata(address, 1.0)
    assert "shut down completed" in (tmp_path / "broker.log").read_text()


def test_the_broker_dies_with_the_process_that_started_it_and_starts_again_with_what_it_had(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from penstock.kafka.broker import Broker\n"
        "broker = Broker(Path(sys.argv[1]), memory='256m', options=('-XX:TieredStopAtLevel=1',)); broker.start()\n"
        "print(broker.pid, broker.address, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    pid, address = parent.stdout.readline().split()
    produce(address, b"before")
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert wait_gone(int(pid))
    with Broker(tmp_path, memory="256m", options=QUICK) as broker:
        assert answers_metadata(broker.address)
        produce(broker.address, b"after")
        assert sorted(consume(broker.address, 2)) == [b"after", b"before"]
        assert broker.pid
        again = broker.pid
    assert broker.pid is None
    assert gone(again)


def test_a_port_that_is_taken_is_one_clear_error(kafka_broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=f"port {kafka_broker.port} is in use"):
        Broker(tmp_path, port=kafka_broker.port).start()


def test_a_setting_the_broker_refuses_is_told_in_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"num\.io\.threads"):
        Broker(tmp_path, memory="64m", settings={"num.io.threads": "-1"}, options=QUICK).start()
