"""The programs of docs/kafka.md run, and its picture shows the real behaviour."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import confluent_kafka

from penstock.kafka.broker import Broker
from penstock.kafka.client.consumer_state import ConsumerState
from penstock.kafka.large.assembler import Assembler
from penstock.kafka.large.chunks import encode_chunk
from penstock.kafka.large.record_processor import Committed, Processor
from penstock.kafka.large.safe_offsets import DeliveredOffsets
from penstock.testing.pipe import Pipe

PAGE = (Path(__file__).parents[2] / "docs" / "kafka.md").read_text()
TP = ("topic", 0)
SEGMENTS = {"A1": (1, 0, 3), "B1": (2, 0, 2), "A2": (1, 1, 3), "B2": (2, 1, 2)}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def rows(picture: str) -> dict[str, list[str]]:
    """Return the rows of a picture by name."""
    parted = (re.split(r"\s{2,}", line.strip()) for line in picture.splitlines() if not line.startswith(" "))
    return {name: cells for name, *cells in parted}


def value(record: str) -> bytes:
    if record not in SEGMENTS:
        return b"small"
    number, sequence, count = SEGMENTS[record]
    return encode_chunk(UUID(int=number), sequence, count, 4 * count, record[:1].encode() * 4)


class Reader:
    """A reader that returns the delivered message and the safe offset after each record."""

    def __init__(self) -> None:
        self.committed: dict[tuple[str, int], Committed] = {}
        self.state = self.another()

    def another(self) -> ConsumerState:
        return ConsumerState(Processor(Assembler(), DeliveredOffsets(), self.committed.get))

    def read(self, offset: int, record: str) -> tuple[str, str]:
        message = confluent_kafka.Message(topic="topic", partition=0, offset=offset, value=value(record))
        delivered = self.state.process([message])
        letters = ["m" if m.value() == b"small" else m.value()[:1].decode() for m in delivered]
        return "".join(letters) or "-", str(self.state.safe_offset(TP))


def test_picture_shows_the_real_behaviour() -> None:
    reader = Reader()
    first, last = (rows(block) for block in blocks("text") if block.startswith("offset"))
    assert first["offset"] == [str(number) for number in range(8)]
    steps = [reader.read(offset, record) for offset, record in enumerate(first["record"])]
    assert [delivered for delivered, _ in steps] == first["delivered"]
    assert [safe for _, safe in steps] == first["safe offset"]

    reader.committed |= reader.state.commit([TP], lambda of: 8)
    assert f"has committed `{reader.committed[TP].offset}` with `{reader.committed[TP].metadata}`" in PAGE
    before, reader.state = reader.state, reader.another()
    repeated = [reader.read(offset, record)[0] for offset, record in enumerate(first["record"]) if offset >= 1]
    assert set(repeated) == {"-"}

    reader.state = before
    steps = [reader.read(offset, "m") for offset in range(8, 1003)][-3:]
    assert last["offset"] == ["1000", "1001", "1002"]
    assert [list(row) for row in zip(*steps, strict=True)] == [last["delivered"], last["safe offset"]]
    assert reader.state.snapshot().dropped == {"evicted": 0, "expired": 1}


def test_programs_and_commands_run(pipe: Pipe, kafka_broker: Broker) -> None:
    def here(text: str) -> str:
        return text.replace("127.0.0.1:9092", kafka_broker.address).replace("127.0.0.1:8844", pipe.http)

    def run(*command: str) -> str:
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    films, orders = (run(sys.executable, "-c", here(program)) for program in blocks("python"))
    assert sorted(films.splitlines()[:2]) == ["None 11", "b'casablanca' 5000000"]
    assert "assembled=1" in films
    (command,) = [line for block in blocks("sh") for line in block.splitlines()]
    program, *arguments = command.split()
    assert program == "penstock"
    balance = run(sys.executable, "-m", "penstock.cli.main", *arguments, *pipe.options)
    assert re.search(r"kafka +shop +orders +attempt 100,", balance)
    assert orders == ""
