"""Java's own clients, on which Kafka's commands, Connect, Flink and Spark are built."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from penstock.java.jars import KAFKA_BROKER, CannotFetch, fetch_all
from penstock.java.runtime import NoJava, find_java
from tests.server.running import Running

SOURCE = Path(__file__).with_name("Clients.java")


def test_java_clients_produce_consume_and_administrate(endpoint: Running) -> None:
    try:
        jars = os.pathsep.join(map(str, fetch_all(KAFKA_BROKER)))
        java = str(find_java().home / "bin" / "java")
    except (NoJava, CannotFetch) as error:
        pytest.skip(str(error))
    quick = ("-Xmx192m", "-XX:TieredStopAtLevel=1")
    command = [java, *quick, "-cp", jars, str(SOURCE), endpoint.bound.kafka, "t", "3000"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120)
    lines = [line for line in answer.stdout.splitlines() if not line[:1].isdigit()]  # the others are Java's log
    printed = dict(line.split(" ", 1) for line in lines)
    assert "group.protocol=classic" in printed.pop("newer", answer.stderr[-3000:])
    assert printed == {
        "consumed": "3000",
        "partitions": "1",
        "state": "Empty",
        "committed": "3000",
        "end": "3000",
        "nodes": "1",
        "times": "1700000000000 CreateTime 1700000000000 1",
        "groups": "0",
    }, answer.stderr[-3000:]
