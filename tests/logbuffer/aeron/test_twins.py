"""Random calls give the same answers and the same bytes in the real Aeron and in Penstock."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.logbuffer.aeron.inspector import NO_LIMIT, Options, dump
from penstock.testing.pipe import free_ports
from tests.logbuffer.logbuffer_golden import MANIFEST, comparable, unpacked
from tests.logbuffer.logbuffer_scenarios import Call, damaged, next_call, over_udp, setting
from tests.logbuffer.logbuffer_twins import Ours, Real, Setting

pytestmark = pytest.mark.aeron
GOLDEN = [str(entry["file"]) for entry in MANIFEST["files"]]
NO_END = b"\xff" * 7 + b"\x7f"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    running = Real(tmp_path_factory.mktemp("media") / "driver")
    yield running
    running.stop()


class Twins:
    """A stream of the real Aeron, and the same stream of Penstock."""

    def __init__(self, real: Real, setting: Setting, folder: Path) -> None:
        self.real, self.setting, self.folder = real, setting, folder
        registration, self.path = real("open", setting.channel, setting.stream_id, setting.kind.name.lower()).split()
        (folder / "ours").unlink(missing_ok=True)
        self.ours = Ours(folder / "ours", setting, int(registration))

    def call(self, call: Call) -> None:
        theirs, ours = self.real(*call), self.ours(*call)
        if call[0] == "subscribe":
            theirs = theirs.split()[0]
        if call[0] == "block" and theirs.startswith("refused"):
            ours = theirs if ours.startswith("refused") else ours
        assert ours == theirs, (self.setting, call)

    def compare(self) -> None:
        assert comparable(self.ours.path.read_bytes()) == comparable(self.theirs()), self.setting

    def theirs(self) -> bytes:
        self.real("dump", self.path, self.folder / "theirs")
        return (self.folder / "theirs").read_bytes()

    def end(self) -> None:
        """End the stream; the driver stores the end with a delay."""
        self.real("end")
        while self.theirs()[-4096 + 0x80 :][:8] == NO_END:
            self.real("step")
        self.ours("end")

    def __enter__(self) -> Twins:
        return self

    def __exit__(self, *_: object) -> None:
        if self.ours.claimed is not None:
            self.real("abort", 0, 0)
        self.real("reset")
        self.ours.close()


def compare_one_stream(real: Real, seed: int, folder: Path) -> None:
    chance = random.Random(seed)
    with Twins(real, setting(chance), folder) as twins:
        for number in range(chance.choice([30, 150, 400])):
            twins.call(next_call(chance, twins.ours, number))
            if chance.random() < 0.02:
                twins.compare()
        twins.compare()
        twins.end()
        twins.compare()


@pytest.mark.parametrize("first", range(0, 320, 40))
def test_random_calls_give_equal_answers_and_bytes(real: Real, first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 40):
        compare_one_stream(real, seed, tmp_path)


@pytest.mark.soak
def test_many_random_calls_give_equal_answers_and_bytes(real: Real, tmp_path: Path) -> None:
    for seed in range(1000, 6000):
        compare_one_stream(real, seed, tmp_path)


def test_publication_of_a_udp_stream_writes_equal_bytes(real: Real, tmp_path: Path) -> None:
    for seed in range(15):
        chance = random.Random(seed)
        with Twins(real, over_udp(setting(chance), f"127.0.0.1:{free_ports(1)[0]}"), tmp_path) as twins:
            sent_and_received(twins, chance)


def sent_and_received(twins: Twins, chance: random.Random) -> None:
    """Send and receive; the driver's flow control decides the sender's limit, which is copied to ours."""
    real, sent = twins.real, Path(twins.path)
    image = real("subscribe", twins.setting.subscribed, twins.setting.stream_id).split()[1]
    for number in range(300):
        real("poll", 0, chance.choice([1, 10, 100]))
        real("step")
        follow(twins)
        call = next_call(chance, twins.ours, number)
        if call[0] not in ("subscribe", "turn"):
            twins.call(call)
    twins.compare()
    for file in (sent, sent.parents[1] / "images" / f"{image}.logbuffer"):
        copy = Path(shutil.copy(file, twins.folder / "log"))
        compare_inspectors(real, copy, Options(limit=16, scan_over_zeroes=True))
    real("end")


def follow(twins: Twins) -> None:
    limit = int(twins.real("state").split()[1])
    if limit > twins.setting.position:
        twins.ours.publication.connected = True
        twins.ours.publication.consumed(limit - (twins.setting.window or twins.setting.term_length // 2))


def test_inspectors_print_equal_texts_for_damaged_files(real: Real, tmp_path: Path) -> None:
    for seed in range(250):
        chance = random.Random(seed)
        (tmp_path / "log").write_bytes(damaged(chance, unpacked(chance.choice(GOLDEN))))
        options = Options(
            data_format=chance.choice(["hex", "ascii", "us-ascii", "us_ascii"]),
            limit=chance.choice([NO_LIMIT, 0, 1, 16, 20, 1000, 100_000]),
            skip_default_header=chance.random() < 0.3,
            scan_over_zeroes=chance.random() < 0.5,
        )
        compare_inspectors(real, tmp_path / "log", options)


def compare_inspectors(real: Real, file: Path, options: Options) -> None:
    """Compare both inspectors; LogInspector fails on a frame that crosses its term, ours still prints the frames
    before it.
    """
    properties = [f"data.format={options.data_format}"]
    properties += ["skipDefaultHeader=true"] * options.skip_default_header
    properties += ["scanOverZeroes=true"] * options.scan_over_zeroes
    answer = real("inspect", file, options.limit, file.with_suffix(".txt"), *properties)
    theirs = file.with_suffix(".txt").read_bytes().decode().split("\n")
    ours = "\n".join([*dump(file, options), ""]).split("\n")
    if answer != "inspected":
        assert answer.startswith("stopped"), answer
        del theirs[-1], ours[len(theirs) :]
    assert theirs[1].partition(" Inspection ")[2] == ours[1].partition(" Inspection ")[2]
    del theirs[1], ours[1]
    assert ours == theirs, (file, options)
