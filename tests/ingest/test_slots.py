"""Slots keep what the kernel wrote there for the next process that maps them."""

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


def read_slots(slots: Slots) -> list[bytes]:
    datagrams = slots.datagrams(0, slots.filled)
    payloads: list[bytes] = datagrams.payloads(range(slots.filled)).to_pylist()
    return payloads


@pytest.fixture(params=["recvmmsg", "recvmsg"])
def system_call(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "recvmsg":
        monkeypatch.setattr(slots_module, "_recvmmsg", None)
    return str(request.param)


@pytest.mark.usefixtures("system_call")
def test_datagrams_of_all_sizes_arrive_complete_with_their_sender(tmp_path: Path, sock: socket.socket) -> None:
    sent = [b"", b"a", b"b" * 2048, b"c" * 2049, b"d" * 60_000]
    address = send(sock, *sent)
    slots = Slots(tmp_path / "slots", SLOTS)
    assert slots.receive(sock, 0) == len(sent)
    assert read_slots(slots) == sent
    assert [slots.sender(i) for i in range(len(sent))] == [address] * len(sent)


@pytest.mark.usefixtures("system_call")
def test_empty_socket_gives_nothing_and_full_round_leaves_the_rest(tmp_path: Path, sock: socket.socket) -> None:
    slots = Slots(tmp_path / "slots", SLOTS)
    assert slots.receive(sock, 0) == 0
    send(sock, *(b"%d" % i for i in range(SLOTS + 3)))
    assert slots.receive(sock, 0) == SLOTS
    slots.next_round()
    assert (slots.round, slots.filled) == (2, 0)
    assert slots.receive(sock, 0) == 3
    assert read_slots(slots) == [b"16", b"17", b"18"]


def test_round_is_filled_by_several_reads(tmp_path: Path, sock: socket.socket) -> None:
    slots = Slots(tmp_path / "slots", SLOTS)
    send(sock, b"one", b"two")
    filled = slots.receive(sock, 0)
    send(sock, b"three")
    filled += slots.receive(sock, filled)
    assert (filled, slots.filled, read_slots(slots)) == (3, 3, [b"one", b"two", b"three"])


CHILD = """
import socket, sys, time
from pathlib import Path
from penstock.ingest.slots import Slots
slots = Slots(Path(sys.argv[1]), 16)
print(slots.receive(socket.socket(fileno=int(sys.argv[2])), 0), flush=True)
time.sleep(60)
"""


def test_datagrams_of_a_killed_process_are_read_by_the_next(tmp_path: Path, sock: socket.socket) -> None:
    address = send(sock, b"one", b"two" * 1000)
    command = [sys.executable, "-c", CHILD, str(tmp_path / "slots"), str(sock.fileno())]
    with subprocess.Popen(command, pass_fds=[sock.fileno()], stdout=subprocess.PIPE) as child:
        assert child.stdout
        assert child.stdout.readline() == b"2\n"
        os.kill(child.pid, signal.SIGKILL)
    slots = Slots(tmp_path / "slots", SLOTS)
    assert (slots.round, read_slots(slots), slots.sender(1)) == (1, [b"one", b"two" * 1000], address)


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


def test_ipv6_addresses_have_other_identities_under_another_key(tmp_path: Path) -> None:
    slots = Slots(tmp_path / "slots", SLOTS)
    names = slots.senders(0, 3)
    names["family"] = socket.AF_INET6
    # The second differs from the first in the top bits of both halves: with odd factors alone they cancel each other.
    names["ipv6"][1, [7, 15]] = 0x80
    names["ipv6"][2] = 0xFF
    seen: set[int] = set()
    for key in (1, 2):
        slots.set_address_key(key)
        seen.update(slots.datagrams(0, 3).addresses.tolist())
    assert len(seen) == 6
    slots.set_address_key(1)
    assert set(slots.datagrams(0, 3).addresses.tolist()) < seen


FILLED = [b"one", b"two" * 1000, b"three"]
HEADER = 56
"""Bytes of the header that are used."""


@pytest.fixture
def filled_file(tmp_path: Path, sock: socket.socket) -> Path:
    """The file of a receiver that was killed with three slots filled."""
    send(sock, *FILLED)
    slots = Slots(tmp_path / "slots", SLOTS)
    slots.receive(sock, 0)
    return tmp_path / "slots"


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def unusable_files(path: Path) -> list[Path]:
    return list(path.parent.glob("*.unusable-*"))


@pytest.mark.parametrize("byte", range(HEADER))
def test_flipped_bit_of_the_header_loses_nothing_unreported(
    filled_file: Path, byte: int, caplog: pytest.LogCaptureFixture
) -> None:
    flip(filled_file, 8 * byte + byte % 8)
    slots = Slots(filled_file, SLOTS)
    if unusable_files(filled_file):
        assert (slots.unusable, read_slots(slots), slots.round) == (3, [], 1)
        assert filled_file.name in caplog.messages[0]
    else:
        assert (slots.unusable, read_slots(slots), slots.round) == (0, FILLED, 1)
    assert bool(unusable_files(filled_file)) == (byte < 16 or byte in range(24, 32) or byte >= 48), (
        "the round is stored three times"
    )
    slots.next_round()
    assert Slots(filled_file, SLOTS).round == 2


def test_flipped_bit_of_the_round_is_outvoted(filled_file: Path) -> None:
    written = filled_file.read_bytes()
    for bit in (8 * offset + bit for offset in (16, 32, 40) for bit in range(64)):
        filled_file.write_bytes(written)
        flip(filled_file, bit)
        slots = Slots(filled_file, SLOTS)
        assert (slots.round, slots.filled) == (1, 3)
    assert unusable_files(filled_file) == []


@pytest.mark.parametrize("written_words", [1, 2])
def test_kill_between_the_words_of_a_round_leaves_either_round(filled_file: Path, written_words: int) -> None:
    slots = Slots(filled_file, SLOTS)
    slots._messages["length"] = slots_module.UNFILLED  # as next_round begins
    numbers = [slots._header["round"], slots._header["rounds"][:, 0], slots._header["rounds"][:, 1]]
    for number in numbers[:written_words]:
        number[:] = 2
    reopened = Slots(filled_file, SLOTS)
    assert (reopened.round in (1, 2), reopened.filled, unusable_files(filled_file)) == (True, 0, [])


def test_flipped_bit_of_a_length_invents_no_datagram(filled_file: Path) -> None:
    written = filled_file.read_bytes()
    for slot in (3, 9):
        for bit in range(32):
            filled_file.write_bytes(written)
            flip(filled_file, 8 * (4096 + 64 * slot + 56) + bit)
            slots = Slots(filled_file, SLOTS)
            assert slots.drop_unreadable(0) == 0
            assert read_slots(slots) == FILLED


def test_slot_with_an_impossible_length_is_dropped_alone(filled_file: Path) -> None:
    flip(filled_file, 8 * (4096 + 64 + 56) + 20)
    slots = Slots(filled_file, SLOTS)
    assert slots.drop_unreadable(0) == 1
    assert read_slots(slots) == [b"one", b"", b"three"]


def test_flips_of_the_kernels_structures_are_written_over(filled_file: Path, sock: socket.socket) -> None:
    written = filled_file.read_bytes()
    for bit in range(8 * 4096, 8 * (4096 + 64), 3):
        if bit // 8 - 4096 in range(56, 60):
            continue
        filled_file.write_bytes(written)
        flip(filled_file, bit)
        slots = Slots(filled_file, SLOTS)
        assert read_slots(slots) == FILLED
        slots.next_round()
        send(sock, b"new")
        assert (slots.receive(sock, 0), read_slots(slots)) == (1, [b"new"])


def test_new_file_begins_after_the_round_of_the_last_frame(filled_file: Path) -> None:
    filled_file.write_bytes(b"garbage")
    assert Slots(filled_file, SLOTS, published=41).round == 42


def test_file_with_another_number_of_slots_is_replaced(filled_file: Path) -> None:
    slots = Slots(filled_file, 2 * SLOTS)
    assert (slots.slots, slots.filled, slots.unusable, len(unusable_files(filled_file))) == (32, 0, 3, 1)
    reopened = Slots(filled_file, SLOTS)
    assert (reopened.slots, reopened.unusable, len(unusable_files(filled_file))) == (16, 0, 1)


@pytest.mark.parametrize("length", [1, 4096, 5000, 8192, 100_000])
def test_truncated_file_is_renamed(filled_file: Path, length: int) -> None:
    os.truncate(filled_file, length)
    slots = Slots(filled_file, SLOTS)
    assert slots.filled == 0
    assert len(unusable_files(filled_file)) == 1
    assert slots.unusable == (3 if length > 4096 + 3 * 64 else 0)


def test_zeroed_pages_are_not_a_new_file(filled_file: Path) -> None:
    data = filled_file.read_bytes()
    filled_file.write_bytes(bytes(4096) + data[4096:])
    assert Slots(filled_file, SLOTS).unusable == 3


@given(st.data())
def test_any_bytes_give_no_slot_longer_than_a_datagram(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("buffers") / "slots"
    content = bytearray(Slots(path, 2)._map[:])
    for _ in range(data.draw(st.integers(0, 6))):
        offset, replacement = data.draw(st.integers(0, 3 * 4096)), data.draw(st.binary(min_size=1, max_size=64))
        content[offset : offset + len(replacement)] = replacement
    path.write_bytes(content[: data.draw(st.integers(0, len(content)) | st.just(len(content)))])
    slots = Slots(path, 2)
    slots.drop_unreadable(0)
    assert all(0 <= length <= slots_module.MAX_DATAGRAM_BYTES for length in slots.lengths(0, slots.filled))
    assert len(read_slots(slots)) == slots.filled
    assert 0 < slots.round < slots_module.MAX_ROUNDS + 2
    assert all(len(slots.sender(slot)) == 2 for slot in range(slots.filled))
