"""The slots: what the kernel put there is there for whoever maps them next."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.ingest import slots as slots_module
from penstock.ingest.slots import Slots

SLOTS = 16


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound


def send(to: socket.socket, *datagrams: bytes) -> tuple[str, int]:
    with socket.socket(to.family, socket.SOCK_DGRAM) as sender:
        for datagram in datagrams:
            sender.sendto(datagram, to.getsockname())
        address: tuple[str, int] = sender.getsockname()
        return "127.0.0.1", address[1]


def held(slots: Slots) -> list[bytes]:
    datagrams = slots.datagrams(0, slots.filled)
    payloads: list[bytes] = datagrams.payloads(range(slots.filled)).to_pylist()
    return payloads


@pytest.fixture(params=["recvmmsg", "recvmsg"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "recvmsg":
        monkeypatch.setattr(slots_module, "_recvmmsg", None)
    return str(request.param)


@pytest.mark.usefixtures("way")
def test_datagrams_of_all_sizes_arrive_whole_with_their_sender(tmp_path: Path, sock: socket.socket) -> None:
    sent = [b"", b"a", b"b" * 2048, b"c" * 2049, b"d" * 60_000]
    address = send(sock, *sent)
    slots = Slots(tmp_path / "slots", SLOTS)
    assert slots.receive(sock, 0) == len(sent)
    assert held(slots) == sent
    assert [slots.sender(i) for i in range(len(sent))] == [address] * len(sent)


@pytest.mark.usefixtures("way")
def test_an_empty_socket_gives_nothing_and_a_full_round_leaves_the_rest(tmp_path: Path, sock: socket.socket) -> None:
    slots = Slots(tmp_path / "slots", SLOTS)
    assert slots.receive(sock, 0) == 0
    send(sock, *(b"%d" % i for i in range(SLOTS + 3)))
    assert slots.receive(sock, 0) == SLOTS
    slots.next_round()
    assert (slots.round, slots.filled) == (2, 0)
    assert slots.receive(sock, 0) == 3
    assert held(slots) == [b"16", b"17", b"18"]


def test_a_round_is_filled_by_several_reads(tmp_path: Path, sock: socket.socket) -> None:
    slots = Slots(tmp_path / "slots", SLOTS)
    send(sock, b"one", b"two")
    filled = slots.receive(sock, 0)
    send(sock, b"three")
    filled += slots.receive(sock, filled)
    assert (filled, slots.filled, held(slots)) == (3, 3, [b"one", b"two", b"three"])


CHILD = """
import socket, sys, time
from pathlib import Path
from penstock.ingest.slots import Slots
slots = Slots(Path(sys.argv[1]), 16)
print(slots.receive(socket.socket(fileno=int(sys.argv[2])), 0), flush=True)
time.sleep(60)
"""


def test_what_a_killed_process_received_is_there_for_the_next(tmp_path: Path, sock: socket.socket) -> None:
    address = send(sock, b"one", b"two" * 1000)
    command = [sys.executable, "-c", CHILD, str(tmp_path / "slots"), str(sock.fileno())]
    with subprocess.Popen(command, pass_fds=[sock.fileno()], stdout=subprocess.PIPE) as child:
        assert child.stdout
        assert child.stdout.readline() == b"2\n"
        os.kill(child.pid, signal.SIGKILL)
    slots = Slots(tmp_path / "slots", SLOTS)
    assert (slots.round, held(slots), slots.sender(1)) == (1, [b"one", b"two" * 1000], address)


def test_ipv6_senders_are_known(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
        try:
            sock.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6 loopback")
        send(sock, b"six")
        time.sleep(0.01)
        slots = Slots(tmp_path / "slots", SLOTS)
        assert slots.receive(sock, 0) == 1
        assert slots.sender(0)[0] == "::1"
        assert int(slots.datagrams(0, 1).addresses[0]) != 0


FILLED = [b"one", b"two" * 1000, b"three"]
HEADER = 56
"""Bytes of the header that are used."""


@pytest.fixture
def left(tmp_path: Path, sock: socket.socket) -> Path:
    """The file of a receiver that was killed with three slots filled."""
    send(sock, *FILLED)
    slots = Slots(tmp_path / "slots", SLOTS)
    slots.receive(sock, 0)
    return tmp_path / "slots"


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def aside(path: Path) -> list[Path]:
    return list(path.parent.glob("*.unusable-*"))


@pytest.mark.parametrize("byte", range(HEADER))
def test_a_flipped_bit_of_the_header_loses_nothing_unnamed(
    left: Path, byte: int, caplog: pytest.LogCaptureFixture
) -> None:
    flip(left, 8 * byte + byte % 8)
    slots = Slots(left, SLOTS)
    if aside(left):
        assert (slots.unusable, held(slots), slots.round) == (3, [], 1)
        assert left.name in caplog.messages[0]
    else:
        assert (slots.unusable, held(slots), slots.round) == (0, FILLED, 1)
    assert bool(aside(left)) == (byte < 16 or byte in range(24, 32) or byte >= 48), "the round stands there three times"
    slots.next_round()
    assert Slots(left, SLOTS).round == 2


def test_every_flipped_bit_of_a_round_is_outvoted(left: Path) -> None:
    written = left.read_bytes()
    for bit in (8 * at + bit for at in (16, 32, 40) for bit in range(64)):
        left.write_bytes(written)
        flip(left, bit)
        slots = Slots(left, SLOTS)
        assert (slots.round, slots.filled) == (1, 3)
    assert aside(left) == []


@pytest.mark.parametrize("done", [1, 2])
def test_a_kill_between_the_words_of_a_round_leaves_one_of_the_two(left: Path, done: int) -> None:
    slots = Slots(left, SLOTS)
    slots._messages["length"] = slots_module.UNFILLED  # as next_round begins
    numbers = [slots._header["round"], slots._header["rounds"][:, 0], slots._header["rounds"][:, 1]]
    for number in numbers[:done]:
        number[:] = 2
    again = Slots(left, SLOTS)
    assert (again.round in (1, 2), again.filled, aside(left)) == (True, 0, [])


def test_a_flipped_bit_of_a_length_invents_no_datagram(left: Path) -> None:
    written = left.read_bytes()
    for slot in (3, 9):
        for bit in range(32):
            left.write_bytes(written)
            flip(left, 8 * (4096 + 64 * slot + 56) + bit)
            slots = Slots(left, SLOTS)
            assert slots.drop_unreadable(0) == 0
            assert held(slots) == FILLED


def test_a_slot_whose_length_cannot_be_is_dropped_and_those_behind_it_are_not(left: Path) -> None:
    flip(left, 8 * (4096 + 64 + 56) + 20)
    slots = Slots(left, SLOTS)
    assert slots.drop_unreadable(0) == 1
    assert held(slots) == [b"one", b"", b"three"]


def test_flips_of_the_kernels_structures_are_written_over(left: Path, sock: socket.socket) -> None:
    written = left.read_bytes()
    for bit in range(8 * 4096, 8 * (4096 + 64), 3):
        if bit // 8 - 4096 in range(56, 60):
            continue
        left.write_bytes(written)
        flip(left, bit)
        slots = Slots(left, SLOTS)
        assert held(slots) == FILLED
        slots.next_round()
        send(sock, b"new")
        assert (slots.receive(sock, 0), held(slots)) == (1, [b"new"])


def test_a_file_made_anew_begins_behind_the_round_of_the_last_frame(left: Path) -> None:
    left.write_bytes(b"garbage")
    assert Slots(left, SLOTS, published=41).round == 42


def test_a_file_for_another_number_of_slots_is_made_anew_unless_it_holds_datagrams(left: Path) -> None:
    slots = Slots(left, 2 * SLOTS)
    assert (slots.slots, slots.filled, slots.unusable, len(aside(left))) == (32, 0, 3, 1)
    again = Slots(left, SLOTS)
    assert (again.slots, again.unusable, len(aside(left))) == (16, 0, 1)


@pytest.mark.parametrize("length", [1, 4096, 5000, 8192, 100_000])
def test_a_cut_file_is_put_aside(left: Path, length: int) -> None:
    os.truncate(left, length)
    slots = Slots(left, SLOTS)
    assert slots.filled == 0
    assert len(aside(left)) == 1
    assert slots.unusable == (3 if length > 4096 + 3 * 64 else 0)


def test_zeroed_pages_are_no_new_file(left: Path) -> None:
    data = left.read_bytes()
    left.write_bytes(bytes(4096) + data[4096:])
    assert Slots(left, SLOTS).unusable == 3


def test_a_file_of_before_is_taken_over(left: Path) -> None:
    data = left.read_bytes()
    left.write_bytes(b"PSTKSLT2" + data[8:32] + bytes(4096 - 32) + data[4096:])
    slots = Slots(left, SLOTS)
    assert (slots.round, held(slots), aside(left)) == (1, FILLED, [])
    assert left.read_bytes()[:8] == b"PSTKSLT3"


@given(st.data())
def test_of_a_file_of_any_bytes_no_slot_is_longer_than_a_datagram(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("buffers") / "slots"
    whole = bytearray(Slots(path, 2)._map[:])
    for _ in range(data.draw(st.integers(0, 6))):
        at, found = data.draw(st.integers(0, 3 * 4096)), data.draw(st.binary(min_size=1, max_size=64))
        whole[at : at + len(found)] = found
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)) | st.just(len(whole)))])
    slots = Slots(path, 2)
    slots.drop_unreadable(0)
    assert all(0 <= length <= slots_module.MAX_DATAGRAM_BYTES for length in slots.lengths(0, slots.filled))
    assert len(held(slots)) == slots.filled
    assert 0 < slots.round < slots_module.MAX_ROUNDS + 2
    assert all(len(slots.sender(slot)) == 2 for slot in range(slots.filled))
