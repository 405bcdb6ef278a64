"""Buffers of the real Aeron are read by Penstock, and buffers of Penstock by the real Aeron."""

from __future__ import annotations

import shutil
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from penstock.logbuffer import AdminAction, Frame, Lapped, NotALogBuffer, Parameters
from penstock.logbuffer.aeron import ExclusivePublication, FragmentAssembler, Image
from penstock.logbuffer.aeron.inspector import Options, dump, problem
from penstock.logbuffer.mapped import LogFile
from penstock.testing.pipe import wait_until
from tests.logbuffer.logbuffer_aeron import Driver, run

pytestmark = pytest.mark.aeron
COUNT, LONGEST = 2000, 2000
BUFFER = 3 * (64 << 10)
IPC, UDP = "aeron:ipc?term-length=64k|mtu=1408", "aeron:udp?endpoint=localhost:0"
INSPECTIONS = [
    (Options(), []),
    (Options(data_format="ascii", limit=50), ["data.format=ascii"]),
    (
        Options(data_format="us-ascii", limit=20, skip_default_header=True),
        ["data.format=us-ascii", "skipDefaultHeader=true"],
    ),
    (Options(limit=8, scan_over_zeroes=True), ["scanOverZeroes=true"]),
]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    running = Driver(tmp_path_factory.mktemp("media") / "driver")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def driver_files() -> list[Path]:
    """Copies of all files that the driver wrote."""
    return []


class Follower:
    """A reader of a stream that is being written; checks each message."""

    def __init__(self, path: Path, position: int) -> None:
        self.subscription = Image(path, position)
        self.assembler = FragmentAssembler()
        self.expected = 0

    def read(self) -> int:
        for message in self.assembler.push(self.subscription.poll(10_000)):
            self.check(message)
            del message
        return self.subscription.position

    def check(self, message: Frame) -> None:
        number = self.expected
        size = 4 + number * 37 % (LONGEST - 3)
        assert bytes(message.data) == number.to_bytes(4, "little") + bytes([number % 256]) * (size - 4)
        self.expected += 1


@pytest.mark.parametrize("kind", ["exclusive", "concurrent"])
@pytest.mark.parametrize("channel", [IPC, UDP], ids=["ipc", "udp"])
def test_stream_of_a_real_publication_is_read_live(
    driver: Driver, driver_files: list[Path], channel: str, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Over UDP, the buffers of the publication and of the image; the driver's flow control waits for the reader."""
    driver.send("open", channel, 7, kind)
    _, start, *paths = driver.answer()
    followers = [Follower(Path(path), int(start)) for path in dict.fromkeys(paths)]
    driver.send("stream", 0, COUNT, LONGEST)
    deadline = time.monotonic() + 30
    while min(follower.expected for follower in followers) < COUNT and time.monotonic() < deadline:
        driver.send("consumed", min(follower.read() for follower in followers))
    assert [follower.expected for follower in followers] == [COUNT] * len(followers)
    assert driver.answer() == ["streamed", str(followers[0].subscription.position)]
    folder = tmp_path_factory.mktemp("kept")
    for path in dict.fromkeys(paths):
        driver_files.append(Path(shutil.copy(path, folder / f"{Path(path).parent.name}.logbuffer")))
    driver.send("close")
    assert driver.answer() == ["closed"]


@pytest.mark.parametrize("kind", ["exclusive", "concurrent"])
@pytest.mark.parametrize("channel", [IPC, UDP], ids=["ipc", "udp"])
def test_follower_that_the_driver_does_not_wait_for_is_lapped(driver: Driver, channel: str, kind: str) -> None:
    driver.send("open", channel, 8, kind)
    _, start, *paths = driver.answer()
    driver.send("consumed", 1 << 40)
    driver.send("stream", 0, 5 * COUNT, LONGEST)
    followers = [Image(path, int(start), patience=0.3) for path in dict.fromkeys(paths)]
    wait_until(lambda: all(follower.tail() - follower.position > BUFFER for follower in followers))
    lapped = [count_overtaken(follower) for follower in followers]
    final = int(driver.answer()[1])
    deadline = time.monotonic() + 20
    while any(follower.position < final for follower in followers) and time.monotonic() < deadline:
        lapped = [count + count_overtaken(follower) for count, follower in zip(lapped, followers, strict=True)]
    assert [follower.position for follower in followers] == [final] * len(followers)
    assert all(lapped)
    driver.send("close")
    assert driver.answer() == ["closed"]


def count_overtaken(follower: Image) -> int:
    """Read the available frames, or continue at the oldest frame if overtaken; return how often that happened."""
    try:
        while follower.poll():
            pass
    except Lapped:
        oldest = follower.oldest()
        follower.position = follower.tail() if oldest is None else oldest
        return 1
    return 0


def our_file(path: Path) -> ExclusivePublication:
    """Write messages of all sizes, fragments, padding, committed and aborted claims, and a batch, over several
    terms.
    """
    parameters = Parameters(65536, mtu=1408, session_id=-77, stream_id=5, initial_term_id=2**31 - 2)
    publication = ExclusivePublication.create(path, parameters)
    for number in range(120):
        publication.consumed(publication.position)
        try:
            offer_something(publication, number)
        except AdminAction:
            offer_something(publication, number)
    return publication


def offer_something(publication: ExclusivePublication, number: int) -> None:
    data = bytes([number % 256]) * (number * 61 % 4000)
    if number % 10 == 3:
        publication.append_padding(number)
    elif number % 10 == 5:
        claim = publication.try_claim(number)
        claim.data[:] = bytes([number]) * number
        claim.abort() if number % 20 == 5 else claim.commit()
        del claim
    elif number % 10 == 7:
        publication.offer_batch(bytes(range(100)), np.arange(0, 101, 10), number)
    else:
        publication.offer(data, -number)


def test_real_classes_read_our_file(tmp_path: Path) -> None:
    publication = our_file(tmp_path / "log")
    expected = []
    with Image.follow(tmp_path / "log", from_oldest=True) as subscription:
        oldest = subscription.position
        while subscription.position < publication.position:
            frames = subscription.poll()
            expected += [[f.begin, len(f.data) + 32, f.flags, f.reserved_value, zlib.crc32(f.data)] for f in frames]
            del frames
    lines = [
        [int(word) for word in line.split()]
        for line in run("read", str(tmp_path / "log"), str(oldest)).split("\n")[:-1]
    ]
    assert {(session, stream) for _, _, _, _, session, stream, _, _ in lines} == {(-77, 5)}
    assert [
        [position, size, flags, reserved, crc] for position, size, flags, kind, _, _, reserved, crc in lines if kind
    ] == expected
    assert lines[-1][0] + (lines[-1][1] + 31) // 32 * 32 == publication.position


@pytest.mark.parametrize(("options", "properties"), INSPECTIONS, ids=["hex", "ascii", "skip", "scan"])
def test_real_inspector_prints_the_same_text(
    driver_files: list[Path], options: Options, properties: list[str], tmp_path: Path
) -> None:
    """Our own file, and the publications and images of the driver."""
    our_file(tmp_path / "ours.logbuffer").close()
    files = [tmp_path / "ours.logbuffer", *driver_files]
    options_of_inspector = [f"aeron.log.inspector.{name}" for name in properties]
    text = run("inspect", str(options.limit), *map(str, files), properties=options_of_inspector)
    for file in files:
        printed, _, text = text.partition(f"---- end of {file}\n")
        theirs, ours = printed.split("\n"), "\n".join([*dump(file, options), ""]).split("\n")
        assert theirs[1].endswith(f"Inspection dump for {file}")
        assert ours[1].endswith(f"Inspection dump for {file}")
        del theirs[1], ours[1]
        assert theirs == ours


METADATA = 3 * 65536
DAMAGED_METADATA: dict[str, tuple[int, bytes]] = {
    "default header all zero": (0x140, bytes(32)),
    "default header of length 0": (0x10C, struct.pack("<i", 0)),
    "default header of length 64": (0x10C, struct.pack("<i", 64)),
    "default header of type 0": (0x146, struct.pack("<H", 0)),
    "default header of version 3": (0x144, b"\3"),
    "MTU 0": (0x110, struct.pack("<i", 0)),
    "MTU 1407": (0x110, struct.pack("<i", 1407)),
    "MTU over the term length": (0x110, struct.pack("<i", 1 << 20)),
    "negative MTU": (0x110, struct.pack("<i", -1)),
    "page size 8192": (0x118, struct.pack("<i", 8192)),
    "page size 1 GiB": (0x118, struct.pack("<i", 1 << 30)),
    "another initial term id": (0x108, struct.pack("<i", 7)),
    "unknown type": (0x1F1, b"\x63"),
    "publication window over the term length": (0x11C, struct.pack("<i", 1 << 20)),
    "negative publication window": (0x11C, struct.pack("<i", -1)),
}


def test_damaged_metadata_are_shown_as_log_inspector_shows_them(tmp_path: Path) -> None:
    our_file(tmp_path / "sound").close()
    sound = (tmp_path / "sound").read_bytes()
    paths = {}
    for number, (damage, (offset, replacement)) in enumerate(DAMAGED_METADATA.items()):
        damaged = bytearray(sound)
        damaged[METADATA + offset : METADATA + offset + len(replacement)] = replacement
        paths[damage] = tmp_path / f"{number}.logbuffer"
        paths[damage].write_bytes(damaged)
    text = run("inspect", "16", *map(str, paths.values()))
    for damage, path in paths.items():
        printed, _, text = text.partition(f"---- end of {path}\n")
        theirs, ours = printed.split("\n"), [*dump(path, Options(limit=16)), ""]
        del theirs[1], ours[1]
        assert ours == theirs, damage
        assert problem(path), damage
        with pytest.raises(NotALogBuffer):
            LogFile(path)
