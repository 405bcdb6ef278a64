"""Publication and subscription equal Aeron's byte by byte."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from penstock.logbuffer import MessageTooLarge, Parameters, Refused, Subscription
from penstock.logbuffer.aeron import Cleaning, ExclusivePublication, FragmentAssembler
from penstock.logbuffer.descriptor import Kind
from tests.logbuffer.logbuffer_golden import MANIFEST, comparable, message, trace, unpacked

POSITIONS = {entry["file"]: (entry["pub_position"], entry.get("pub_positionLimit")) for entry in MANIFEST["files"]}
SCENARIOS = ["excl_basic", "excl_sizes", "excl_pad", "excl_exact", "excl_claim", "excl_bp"]


def publication(path: Path, kind: Kind = Kind.EXCLUSIVE) -> ExclusivePublication:
    parameters = Parameters(65536, 1408, 404496857, 123, 1598247139, kind, correlation_id=2, sparse=True)
    return ExclusivePublication.create(path, parameters, cleaning=Cleaning.CONSUMED, connected=False)


class Replay:
    """A replay of the calls of a trace that compares their return values."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.publication = publication(path)
        self.subscription = Subscription(path)
        self.assembler = FragmentAssembler()
        self.fragments: list[list[int]] = []
        self.assembled: list[list[int]] = []

    def connect(self) -> None:
        self.publication.connected = True
        self.publication.consumed(0)

    def call(self, operation: str) -> int:
        try:
            return self._call(operation)
        except Refused as refused:
            return refused.code

    def _call(self, operation: str) -> int:
        verb, *rest = operation.split()
        arguments = {
            key: int(value) for key, _, value in (word.partition("=") for word in rest) if value.lstrip("-").isdigit()
        }
        if verb == "offer":
            data = message(arguments.get("msg", 0), arguments.get("len", 10))
            return self.publication.offer(data, arguments.get("reserved", 0))
        if verb == "vector":
            return self.publication.offer([message(6, 100), message(7, 2000)])
        if verb == "appendPadding":
            return self.publication.append_padding(int(rest[0]))
        if verb == "tryClaim":
            return self._claim(arguments["msg"], arguments["len"], rest[-1])
        assert verb == "poll"
        return self._poll(arguments["limit"], arguments["image.position"])

    def _claim(self, number: int, length: int, end: str) -> int:
        claim = self.publication.try_claim(length)
        claim.data[:] = message(number, length)
        claim.commit() if end == "commit" else claim.abort()
        return claim.position

    def _poll(self, limit: int, position: int) -> int:
        frames = self.subscription.poll(limit_frames=limit)
        assert self.subscription.position == position
        for frame in frames:
            self.fragments.append(
                [len(frame.data), frame.flags, frame.end, frame.reserved_value, zlib.crc32(frame.data)]
            )
        for complete in self.assembler.push(frames):
            self.assembled.append([len(complete.data), complete.flags, complete.end, zlib.crc32(complete.data)])
        self.publication.consumed(position)
        return len(frames)

    def refuses(self, operation: str) -> None:
        text, _, complaint = operation.partition(": ")
        _, verb, length = text.split()
        call = self.publication.try_claim if verb == "claim" else lambda n: self.publication.offer(bytes(n))
        with pytest.raises(MessageTooLarge) as raised:
            call(int(length))
        assert str(raised.value) == complaint


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_files_and_return_values_equal_aerons(scenario: str, tmp_path: Path) -> None:
    recorded = trace(scenario)
    replay = Replay(tmp_path / "2.logbuffer")
    if scenario != "excl_basic":
        replay.connect()
    for entry in recorded["ops"]:
        operation, result = entry["op"], entry["result"]
        if operation.startswith("DUMP"):
            name = operation.split()[1]
            if name == "excl_basic__02_connected_empty.logbuffer":
                replay.connect()
            assert comparable(replay.path.read_bytes()) == comparable(unpacked(name)), name
            assert (replay.publication.position, replay.publication.position_limit) == POSITIONS[name]
        elif operation.startswith("EXC"):
            replay.refuses(operation)
        else:
            assert replay.call(operation) == result, operation
    expected = [[f[key] for key in ("length", "flags", "position", "reserved", "crc32")] for f in recorded["fragments"]]
    assert replay.fragments == expected
    assert replay.assembled == [
        [f[key] for key in ("length", "flags", "position", "crc32")] for f in recorded["assembled"]
    ]


def test_file_of_a_concurrent_publication_equals_that_of_2023_except_for_new_fields(tmp_path: Path) -> None:
    path = tmp_path / "2.logbuffer"
    publication(path, Kind.CONCURRENT).connected = True
    newer = [0x11C, 0x13C, *range(0x1C0, 0x1E8, 8), 0x1EC, 0x1F4]
    data = bytearray(path.read_bytes())
    for field_offset in newer:
        width = 1 if field_offset == 0x1EC else 4 if field_offset < 0x140 else 8
        data[0x30000 + field_offset : 0x30000 + field_offset + width] = bytes(width)
    data[0x30000 + 0x1ED] = 0  # signal end of stream
    assert bytes(data) == unpacked("concurrent_2023_empty.logbuffer")


def test_first_message_equals_that_of_2023(tmp_path: Path) -> None:
    path = tmp_path / "2.logbuffer"
    writer = publication(path, Kind.CONCURRENT)
    writer.connected = True
    writer.consumed(0)
    assert writer.offer(message(1, 992)) == 1024
    data = path.read_bytes()
    assert data[:32].hex(" ") == (
        "00 04 00 00 00 c0 01 00 00 00 00 00 d9 21 1c 18 7b 00 00 00 e3 50 43 5f 00 00 00 00 00 00 00 00"
    )
    assert data[0x20:0x40] == b"<msg001-part000><msg001-part001>"
    assert data[0x3F0:0x400] == b"<msg001-part061>"
    assert data[0x30000:0x30010].hex(" ") == "00 04 00 00 e3 50 43 5f 00 00 00 00 e1 50 43 5f"


def test_exclusive_differs_from_concurrent_only_in_the_type_byte(tmp_path: Path) -> None:
    publication(tmp_path / "exclusive")
    publication(tmp_path / "concurrent", Kind.CONCURRENT)
    pair = zip((tmp_path / "exclusive").read_bytes(), (tmp_path / "concurrent").read_bytes(), strict=True)
    assert [
        offset for offset, (concurrent_byte, exclusive_byte) in enumerate(pair) if concurrent_byte != exclusive_byte
    ] == [0x30000 + 0x1F1]
