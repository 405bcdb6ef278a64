"""Files through a real broker, by the commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from penstock.cli.kafka.files import Reading, parse_start, receive_files, send_files
from penstock.kafka import Consumer, Producer
from penstock.kafka.broker import Broker


def penstock(*arguments: str, status: int = 0, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "penstock.cli.main", "kafka", *arguments]
    done = subprocess.run(command, input=given, capture_output=True, timeout=120)
    assert done.returncode == status, done.stderr.decode()
    return done


def consumer(broker: Broker, **more: object) -> Consumer:
    given = {"bootstrap.servers": broker.address, "group.id": "files", "enable.auto.commit": False}
    return Consumer({**given, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20, **more})


def test_files_go_through_a_topic_and_come_out_the_same(kafka_broker: Broker, tmp_path: Path) -> None:
    contents = {"large.bin": os.urandom(5_000_000), "small.txt": b"hello", "empty": b""}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    where = ["--bootstrap", kafka_broker.address]
    files = [str(tmp_path / name) for name in contents]
    done = penstock("produce", "cli-files", *files, str(tmp_path / "missing"), *where, "--json", status=1)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert {one["file"]: one["bytes"] for one in told if "error" not in one} == {
        name: len(content) for name, content in contents.items()
    }
    assert [one["error"] for one in told if one["file"] == "missing"] == ["cannot be read: No such file or directory"]
    assert b"3 messages, 5.0 MB in" in done.stderr
    penstock("produce", "cli-files", "-", *where, given=b"from standard input")
    done = penstock("consume", "cli-files", "--into", str(tmp_path / "out"), *where, "--json")
    found = {one["file"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert {name: (tmp_path / "out" / name).read_bytes() for name in found} == contents | {"-": b"from standard input"}
    assert b"4 messages" in done.stderr


def test_a_broker_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    done = penstock("produce", "t", str(tmp_path / "file"), "--bootstrap", "127.0.0.1:1", status=1)
    assert b"no broker answers at 127.0.0.1:1" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    done = penstock("consume", "t", "--set", "isolation.leel=x", status=1)
    assert b"did you mean 'isolation.level'?" in done.stderr


def test_names_never_lead_out_of_the_folder_and_nothing_is_overwritten(kafka_broker: Broker, tmp_path: Path) -> None:
    names = ["../up", "/etc/passwd", "..", "a\0b", "same", "same", "\n", "ä" * 300]
    with Producer({"bootstrap.servers": kafka_broker.address}) as producer:
        for number, name in enumerate(names):
            producer.produce("cli-names", str(number), headers=[("file", name.encode())])
        producer.produce("cli-names", "no name")
    with consumer(kafka_broker) as reader:
        moved = list(receive_files(reader, Reading("cli-names", tmp_path / "deep" / "out")))
    assert [one.file for one in moved] == [
        *("up", "passwd", "cli-names-0-2", "ab", "same", "cli-names-0-5-same", "cli-names-0-6"),
        *("ä" * 120, "cli-names-0-8"),
    ]
    out = tmp_path / "deep" / "out"
    assert sorted(path.name for path in out.iterdir()) == sorted(one.file for one in moved)
    assert [(out / one.file).read_text() for one in moved] == [*map(str, range(8)), "no name"]
    assert [path.name for path in tmp_path.rglob("*") if path.is_dir()] == ["deep", "out"]


def test_a_group_goes_on_behind_what_became_files(kafka_broker: Broker, tmp_path: Path) -> None:
    config = {"bootstrap.servers": kafka_broker.address, "large.message.enabled": True, "max.message.segment.bytes": 50}
    for number in range(5):
        (tmp_path / f"{number}").write_bytes(b"%d" % number * 60)
    sent = list(send_files(config, "cli-group", [tmp_path / f"{number}" for number in range(5)]))
    assert [(one.file, one.offset, one.error) for one in sent] == [(f"{n}", 2 * n + 1, None) for n in range(5)]
    told = []
    for most in (2, None):
        with consumer(kafka_broker, **{"group.id": "cli-group"}) as reader:
            reading = Reading("cli-group", tmp_path / "out", parse_start("committed"), most, commits=True)
            told.append([one.file for one in receive_files(reader, reading)])
            reader.commit(asynchronous=False)
    assert told == [["0", "1"], ["2", "3", "4"]]


def test_what_comes_while_following_is_written_until_told_to_stop(kafka_broker: Broker, tmp_path: Path) -> None:
    config = {"bootstrap.servers": kafka_broker.address}
    with Producer(config) as producer, consumer(kafka_broker) as reader:
        producer.produce("cli-follow", "1")
        producer.flush(30)
        found = []
        reading = Reading("cli-follow", tmp_path, OFFSET_BEGINNING, follow=True)
        for one in receive_files(reader, reading, lambda: len(found) == 3):
            found.append(one.offset)
            producer.produce("cli-follow", "more")
            producer.flush(30)
        assert found == [0, 1, 2]
        assert reader.assignment() == [TopicPartition("cli-follow", 0)]


def test_where_to_begin_is_a_word_or_an_offset() -> None:
    assert parse_start("7") == 7
    with pytest.raises(ValueError, match="'soon' is not earliest, latest, committed or an offset"):
        parse_start("soon")
