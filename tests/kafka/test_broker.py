"""The broker for trials and tests, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from penstock.kafka import broker as broker_module
from penstock.kafka.broker import Broker, CannotStart, answers_metadata
from penstock.testing import wait_until

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
    values: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(values) < count and time.monotonic() < deadline:
        values += [message.value() for message in consumer.consume(count, 0.5) if not message.error()]
    consumer.close()
    return values


def has_exited(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_command_prints_its_address_and_leaves_no_process_on_sigterm(tmp_path: Path) -> None:
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


def test_broker_dies_with_its_parent_and_restarts_with_its_topics(tmp_path: Path) -> None:
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
    wait_until(lambda: has_exited(int(pid)), 40)
    with Broker(tmp_path, memory="256m", options=QUICK) as broker:
        assert answers_metadata(broker.address)
        produce(broker.address, b"after")
        assert sorted(consume(broker.address, 2)) == [b"after", b"before"]
        assert broker.pid
        second_pid = broker.pid
    assert broker.pid is None
    assert has_exited(second_pid)


def test_missing_client_library_is_reported_before_java_libraries_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.admin", None)
    monkeypatch.setattr(broker_module, "fetch_all", lambda _: pytest.fail("libraries are fetched"))
    with pytest.raises(ModuleNotFoundError):
        Broker(tmp_path / "broker").start()


def test_port_in_use_is_one_clear_error(kafka_broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=f"port {kafka_broker.port} is in use"):
        Broker(tmp_path, port=kafka_broker.port).start()


def test_setting_that_the_broker_refuses_is_reported_with_its_text(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"num\.io\.threads"):
        Broker(tmp_path, memory="64m", settings={"num.io.threads": "-1"}, options=QUICK).start()
