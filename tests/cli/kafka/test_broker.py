"""Files through a real broker, by the commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition

from penstock.cli.kafka import files
from penstock.cli.kafka.files import ReadRequest, parse_start, receive_files, send_files
from penstock.kafka import Consumer, Producer
from penstock.kafka.broker import Broker
from penstock.testing.pipe import free_ports
from tests.kafka.kafka_helpers import Topics


def penstock(*arguments: str, status: int = 0, extra: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "penstock.cli.main", "kafka", *arguments]
    process = subprocess.run(command, input=extra, capture_output=True, timeout=120)
    assert process.returncode == status, process.stderr.decode()
    return process


def consumer(broker: Broker, **more: object) -> Consumer:
    extra = {"bootstrap.servers": broker.address, "group.id": "files", "enable.auto.commit": False}
    return Consumer({**extra, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20, **more})


def test_files_pass_through_a_topic_unchanged(kafka_broker: Broker, tmp_path: Path) -> None:
    contents = {"large.bin": os.urandom(5_000_000), "small.txt": b"hello", "empty": b""}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    where = ["--bootstrap", kafka_broker.address]
    files = [str(tmp_path / name) for name in contents]
    process = penstock("produce", "cli-files", *files, str(tmp_path / "missing"), *where, "--json", status=1)
    output = [json.loads(line) for line in process.stdout.splitlines()]
    assert {entry["file"]: entry["bytes"] for entry in output if "error" not in entry} == {
        name: len(content) for name, content in contents.items()
    }
    assert [entry["error"] for entry in output if entry["file"] == "missing"] == [
        "cannot be read: No such file or directory"
    ]
    assert b"3 messages, 5.0 MB in" in process.stderr
    penstock("produce", "cli-files", "-", *where, extra=b"from standard input")
    process = penstock("consume", "cli-files", "--into", str(tmp_path / "out"), *where, "--json")
    files_by_name = {entry["file"]: entry for entry in map(json.loads, process.stdout.splitlines())}
    assert {name: (tmp_path / "out" / name).read_bytes() for name in files_by_name} == contents | {
        "-": b"from standard input"
    }
    assert b"4 messages" in process.stderr


def test_record_with_a_header_name_of_any_bytes_is_a_file(kafka_broker: Broker, tmp_path: Path) -> None:
    cluster = Topics(kafka_broker, "odd-headers")
    topic = cluster.new()
    cluster.with_header_bytes(topic, [(b"\xff", b"1"), (b"file", b"named")])
    penstock("consume", topic, "--into", str(tmp_path / "out"), "--bootstrap", kafka_broker.address)
    assert (tmp_path / "out" / "named").read_bytes() == b"v"


def test_unreachable_broker_is_one_error_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    process = penstock("produce", "t", str(tmp_path / "file"), "--bootstrap", "127.0.0.1:1", status=1)
    assert b"no broker answers at 127.0.0.1:1" in process.stderr
    assert len(process.stderr.splitlines()) == 1
    process = penstock("consume", "t", "--set", "isolation.leel=x", status=1)
    assert b"did you mean 'isolation.level'?" in process.stderr


def test_produce_refuses_to_send_without_acknowledgements(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    process = penstock("produce", "t", str(tmp_path / "file"), "--set", "acks=0", status=1)
    assert b"acks = 0: the broker reports nothing" in process.stderr
    assert process.stdout == b""


def test_broker_that_does_not_answer_is_an_error_before_a_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ANSWER_TIMEOUT_S", 0.1)
    monkeypatch.setattr(files, "_read_file", lambda _: pytest.fail("a file is read"))
    with pytest.raises(KafkaException):
        next(send_files({"bootstrap.servers": "127.0.0.1:1"}, "t", [tmp_path / "file"]))


def test_written_files_stay_in_the_folder_and_overwrite_nothing(kafka_broker: Broker, tmp_path: Path) -> None:
    names = ["../up", "/etc/passwd", "..", "a\0b", "same", "same", "\n", "ä" * 300]
    with Producer({"bootstrap.servers": kafka_broker.address}) as producer:
        for number, name in enumerate(names):
            producer.produce("cli-names", str(number), headers=[("file", name.encode())])
        producer.produce("cli-names", "no name")
    with consumer(kafka_broker) as reader:
        transfers = list(receive_files(reader, ReadRequest("cli-names", tmp_path / "deep" / "out")))
    assert [entry.file for entry in transfers] == [
        *("up", "passwd", "cli-names-0-2", "ab", "same", "cli-names-0-5-same", "cli-names-0-6"),
        *("ä" * 120, "cli-names-0-8"),
    ]
    out = tmp_path / "deep" / "out"
    assert sorted(path.name for path in out.iterdir()) == sorted(entry.file for entry in transfers)
    assert [(out / entry.file).read_text() for entry in transfers] == [*map(str, range(8)), "no name"]
    assert [path.name for path in tmp_path.rglob("*") if path.is_dir()] == ["deep", "out"]


def test_broker_that_is_stopped_by_a_signal_has_not_failed(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "penstock.cli.main", "kafka", "start", "--folder", str(tmp_path / "broker")]
    options = ["--port", str(port), "--memory", "256m"]
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stderr
        line = next(line for line in process.stderr if b"bootstrap.servers=" in line)
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read().decode()
    assert f"127.0.0.1:{port}" in line.decode()
    assert (process.returncode, rest.strip()) == (0, "")


def test_file_is_read_while_at_most_one_other_is_in_flight(
    kafka_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"bootstrap.servers": kafka_broker.address, "linger.ms": 200}
    producers: list[Producer] = []
    in_flight: list[int] = []

    def create(config: dict[str, Any]) -> Producer:
        producers.append(Producer(config))
        return producers[0]

    def read(file: Path) -> bytes:
        in_flight.append(len(producers[0]))
        return file.read_bytes()

    monkeypatch.setattr(files, "Producer", create)
    monkeypatch.setattr(files, "_read_file", read)
    for number in range(4):
        (tmp_path / f"{number}").write_bytes(b"x")
    sent = list(send_files(config, "cli-in-flight", [tmp_path / f"{n}" for n in range(4)]))
    assert [transfer.error for transfer in sent] == [None] * 4
    assert len(in_flight) == 4
    assert max(in_flight) == 1


def test_group_continues_behind_written_files(kafka_broker: Broker, tmp_path: Path) -> None:
    config = {"bootstrap.servers": kafka_broker.address, "large.message.enabled": True, "max.message.segment.bytes": 50}
    for number in range(5):
        (tmp_path / f"{number}").write_bytes(b"%d" % number * 60)
    sent = list(send_files(config, "cli-group", [tmp_path / f"{number}" for number in range(5)]))
    assert [(entry.file, entry.offset, entry.error) for entry in sent] == [(f"{n}", 2 * n + 1, None) for n in range(5)]
    names_of_runs = []
    for most in (2, None):
        with consumer(kafka_broker, **{"group.id": "cli-group"}) as reader:
            request = ReadRequest("cli-group", tmp_path / "out", parse_start("committed"), most, commits=True)
            names_of_runs.append([entry.file for entry in receive_files(reader, request)])
            reader.commit(asynchronous=False)
    assert names_of_runs == [["0", "1"], ["2", "3", "4"]]


def test_follow_writes_new_messages_until_a_signal(kafka_broker: Broker, tmp_path: Path) -> None:
    config = {"bootstrap.servers": kafka_broker.address}
    with Producer(config) as producer, consumer(kafka_broker) as reader:
        producer.produce("cli-follow", "1")
        producer.flush(30)
        offsets = []
        request = ReadRequest("cli-follow", tmp_path, OFFSET_BEGINNING, follow=True)
        for entry in receive_files(reader, request, lambda: len(offsets) == 3):
            offsets.append(entry.offset)
            producer.produce("cli-follow", "more")
            producer.flush(30)
        assert offsets == [0, 1, 2]
        assert reader.assignment() == [TopicPartition("cli-follow", 0)]


def test_parse_start_takes_words_and_offsets() -> None:
    assert parse_start("7") == 7
    with pytest.raises(ValueError, match="'soon' is not earliest, latest, committed or an offset"):
        parse_start("soon")
