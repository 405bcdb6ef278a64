"""The UDP receiver: rounds become frames, in order, and a successor publishes what was left in the slots."""

from __future__ import annotations

import json
import socket
import time
import zlib
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path

import pytest

from penstock.config import ListenerConfig
from penstock.config.keys.listeners import DefragConfig
from penstock.counts import Counts, open_books
from penstock.handover.frames.frame import published
from penstock.handover.paths import slots_file
from penstock.ingest.plog_commands import Commands
from penstock.ingest.receiver import make_decoder
from penstock.ingest.slots import Slots
from penstock.ingest.sockets import open_socket
from penstock.ingest.udp import UdpReceiver
from penstock.wire.plog.cutting import fragment
from tests.ingest.ingest_life import Life, live

LISTENER = ListenerConfig.model_validate(
    {"name": "events", "protocol": "udp", "port": 0, "defrag": {"max_size": 16 << 10}}
)
TERM = 2 << 20
PARTS = fragment(b"m" * 4000, 7, fragment_size=1000)


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with open_socket(LISTENER) as bound:
        yield bound


class Receiving:
    """A UDP receiver in this process."""

    def __init__(self, folder: Path, sock: socket.socket, slots: int = 64, **more: object) -> None:
        listener = LISTENER.model_copy(update=more)
        self.life: Life = live(folder, listener, TERM)
        self.slots = Slots(slots_file(folder, "events"), slots, self.life.publisher.published[0])
        self.woken = 0
        decoder = make_decoder(listener)
        commands = Commands(listener, decoder.statistics.as_dict, list)
        self.receiver = UdpReceiver(listener, sock, self.slots, self.life.publisher, decoder, commands, self._wake)

    def _wake(self) -> None:
        self.woken += 1


def send(sock: socket.socket, *datagrams: bytes) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        for datagram in datagrams:
            sender.sendto(datagram, sock.getsockname())


def test_a_round_is_one_frame_and_wakes_the_reader(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock)
    send(sock, b"one", b"", b"two")
    receiving.receiver.receive(1)
    assert receiving.life.payloads() == [b"one", b"two"]
    assert receiving.life.totals()["empty"] == 1
    assert (receiving.woken, receiving.slots.round, receiving.slots.filled) == (1, 2, 0)


def test_datagrams_of_which_nothing_is_put_together_need_no_room_for_it(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock, codec="syslog", defrag=DefragConfig(max_size=1 << 30))
    send(sock, b"one", b"two", b"three")
    receiving.receiver.receive(1)
    assert len(receiving.life.frames()) == 1


def test_round_larger_than_a_frame_becomes_frames_with_their_own_counts(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock, codec="gelf")
    large = [zlib.compress(json.dumps({"_n": number, "_x": "x" * 16_000}).encode()) for number in range(40)]
    send(sock, b'{"_n":"a"}', *large, b'{"_n":"b"}')
    receiving.receiver.receive(1)
    rows, frames = receiving.life.rows(), receiving.life.frames()
    assert [dict(row["annotations"])["_n"] for row in rows] == ["a", *map(str, range(40)), "b"]
    assert len(frames) > 10
    assert [len(payloads) for payloads, _ in frames] == [receipt.origin.counts["accepted"] for _, receipt in frames]
    assert all(open_books(Counts(receipt.origin.counts)) == [] for _, receipt in frames)
    assert [receipt.slots[1] for _, receipt in frames][-1] == 42


def test_order_is_kept_over_rounds_and_frames(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock)
    sent = [b"%04d" % number + b"x" * (number % 7 * 3000) for number in range(150)]
    for begin in range(0, 150, 30):
        send(sock, *sent[begin : begin + 30])
        receiving.receiver.receive(1)
    assert receiving.life.payloads() == sent
    assert len(receiving.life.frames()) > 5
    assert open_books(receiving.life.totals()) == []


def test_nothing_to_receive_publishes_nothing(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock)
    receiving.receiver.receive(0.01)
    receiving.receiver.tick()
    assert receiving.life.frames() == []


def test_slots_filled_and_not_published_are_published_by_the_successor(tmp_path: Path, sock: socket.socket) -> None:
    first = Receiving(tmp_path, sock)
    send(sock, b"before")
    first.receiver.receive(1)
    send(sock, b"one", b"two")
    first.slots.receive(sock, 0)  # and then it is killed
    first.life.end()
    second = Receiving(tmp_path, sock)
    second.receiver.take_over()
    assert second.life.payloads() == [b"before", b"one", b"two"]
    assert (second.slots.round, second.slots.filled) == (3, 0)


def test_messages_taken_over_are_counted_as_unverified_unless_a_checksum_vouches_for_them(
    tmp_path: Path, sock: socket.socket
) -> None:
    first = Receiving(tmp_path, sock)
    send(sock, b"one", b"two", *PARTS)
    first.slots.receive(sock, 0)  # and then it is killed
    first.life.end()
    second = Receiving(tmp_path, sock)
    second.receiver.take_over()
    assert second.life.payloads() == [b"one", b"two", b"m" * 4000]
    assert (second.life.totals()["unverified"], second.life.totals()["accepted"]) == (2, 3)
    send(sock, b"three")
    second.receiver.receive(1)
    assert second.life.totals()["unverified"] == 2
    assert open_books(second.life.totals()) == []


def test_slots_that_cannot_be_used_are_counted_and_the_books_close(tmp_path: Path, sock: socket.socket) -> None:
    first = Receiving(tmp_path, sock)
    send(sock, b"one", b"two", b"three")
    first.slots.receive(sock, 0)
    first.life.end()
    path = slots_file(tmp_path, "events")
    data = bytearray(path.read_bytes())
    data[4096 + 64 + 59] ^= 1  # the length of the second
    path.write_bytes(data)
    second = Receiving(tmp_path, sock)
    second.receiver.take_over()
    assert second.life.payloads() == [b"one", b"three"]
    assert {"taken": 3, "invalid.slot": 1}.items() <= second.life.totals().items()
    assert open_books(second.life.totals()) == []
    send(sock, b"four")
    second.slots.receive(sock, 0)
    second.life.end()
    data = bytearray(path.read_bytes())
    data[3] ^= 1  # the magic
    path.write_bytes(data)
    third = Receiving(tmp_path, sock)
    third.receiver.take_over()
    assert {"taken": 4, "invalid.slot": 2, "accepted": 2}.items() <= third.life.totals().items()
    assert open_books(third.life.totals()) == []


def test_a_round_whose_frame_is_there_is_not_published_again(tmp_path: Path, sock: socket.socket) -> None:
    first = Receiving(tmp_path, sock)
    send(sock, b"one", b"two")
    first.slots.next_round = lambda: None  # type: ignore[method-assign]  # killed before it
    first.receiver.receive(1)
    first.life.end()
    second = Receiving(tmp_path, sock)
    second.receiver.take_over()
    assert second.life.payloads() == [b"one", b"two"]
    assert second.slots.filled == 0


def test_rest_of_a_partly_published_round_is_published(tmp_path: Path, sock: socket.socket) -> None:
    first = Receiving(tmp_path, sock)
    sent = [b"%d" % number + b"y" * 30_000 for number in range(12)]
    send(sock, *sent)
    publish, calls = first.life.publisher.publish, []

    def killed_after_one(*args: object, **more: object) -> None:
        calls.append(args)
        if len(calls) > 1:
            raise KeyboardInterrupt
        publish(*args, **more)  # type: ignore[arg-type]

    first.life.publisher.publish = killed_after_one  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        first.receiver.receive(1)
    first.life.end()
    assert 0 < len(first.life.payloads()) < 12
    second = Receiving(tmp_path, sock)
    second.receiver.take_over()
    assert second.life.payloads() == sent
    assert open_books(second.life.totals()) == []


def test_open_messages_of_a_killed_receiver_are_incomplete_by_crash(tmp_path: Path, sock: socket.socket) -> None:
    first = Receiving(tmp_path, sock)
    send(sock, *PARTS[:2])
    first.receiver.receive(1)
    first.life.end()
    second = Receiving(tmp_path, sock)
    second.receiver.take_over()
    totals = second.life.totals()
    assert (totals["incomplete.crash"], totals["fragment.discarded"], totals["open"]) == (1, 2, 0)
    assert open_books(totals) == []
    second.life.end()
    third = Receiving(tmp_path, sock)
    third.receiver.take_over()
    assert third.life.totals()["incomplete.crash"] == 1


def test_commands_are_answered_to_their_sender(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock)
    with socket.socket(type=socket.SOCK_DGRAM) as asker:
        asker.settimeout(2)
        asker.sendto(b"\0\0pInG me", sock.getsockname())
        receiving.receiver.receive(1)
        assert asker.recv(100) == b"PONG me"
    assert receiving.life.totals() == {"taken": 1, "command": 1}


def test_stat_counts_all_that_came_before_it_but_not_itself(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock)
    with socket.socket(type=socket.SOCK_DGRAM) as asker:
        asker.settimeout(2)
        for datagram in (b"one", b"\0\0PING", b"\0\0STAT", b"two", b"\0\0STAT"):
            asker.sendto(datagram, sock.getsockname())
        receiving.receiver.receive(1)
        asker.recv(100)
        stats = [json.loads(asker.recv(65536)) for _ in range(2)]
    assert [stat["v0_commands"] for stat in stats] == [1, 2]
    assert [stat["udp_simple_messages"] for stat in stats] == [2, 2]


def test_ipv4_sender_has_its_own_address_on_a_dual_stack_socket(tmp_path: Path) -> None:
    """syslog-ng/syslog-ng#4674, fluent/fluent-bit#11560: one host had two addresses, depending on the listener."""
    listener = LISTENER.model_copy(update={"host": "::"})
    with open_socket(listener) as sock, socket.socket(type=socket.SOCK_DGRAM) as sender:
        receiving = Receiving(tmp_path, sock, annotate_source=True)
        sender.sendto(b"by IPv4", ("127.0.0.1", sock.getsockname()[1]))
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as other:
            other.sendto(b"by IPv6", ("::1", sock.getsockname()[1]))
        receiving.receiver.receive(1)
    annotations = [dict(row["annotations"]) for row in receiving.life.rows()]
    assert annotations == [{"source_address": "127.0.0.1"}, {"source_address": "::1"}]
    assert sorted(receiving.life.senders()) == ["127.0.0.1", "::1"]


def test_messages_get_the_address_they_came_from_where_asked(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock, annotate_source=True)
    published = []
    receiving.life.publisher.publish = lambda body, *_, **__: published.append(body)  # type: ignore[method-assign]
    for host in ("127.0.0.1", "127.0.0.2"):
        with socket.socket(type=socket.SOCK_DGRAM) as sender:
            sender.bind((host, 0))
            for datagram in (
                host.encode(),
                b"\0\0PING",
                *fragment(host.encode() * 10, 1, tags=["a"], fragment_size=50),
            ):
                sender.sendto(datagram, sock.getsockname())
    receiving.receiver.receive(1)
    rows = [(row["payload"], row["annotations"]) for body in published for row in body.to_pylist()]
    assert rows == [
        (host.encode() * times, [*(("tags", "a") for _ in range(times // 10)), ("source_address", host)])
        for host in ("127.0.0.1", "127.0.0.2")
        for times in (1, 10)
    ]


def test_datagrams_from_other_networks_are_only_counted(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock, allow_from=("127.0.0.2",))
    with socket.socket(type=socket.SOCK_DGRAM) as permitted:
        permitted.bind(("127.0.0.2", 0))
        for datagram in (b"one", b"", PARTS[0], b"two"):
            permitted.sendto(datagram, sock.getsockname())
            send(sock, datagram)
        send(sock, b"\x00\x00PING")
        receiving.receiver.receive(1)
        for part in PARTS[1:]:
            permitted.sendto(part, sock.getsockname())
        receiving.receiver.receive(1)
    assert receiving.life.payloads() == [b"one", b"two", b"m" * 4000]
    totals = receiving.life.totals()
    payloads = {name: totals[name] for name in ("taken", "unboxed", "empty", "command", "invalid.network")}
    assert payloads == {"taken": 12, "unboxed": 2, "empty": 1, "command": 0, "invalid.network": 5}
    assert open_books(totals) == []


def test_slots_of_a_killed_receiver_are_checked_for_allowed_networks(tmp_path: Path, sock: socket.socket) -> None:
    before = Receiving(tmp_path, sock, allow_from=("10.0.0.0/8",))
    send(sock, b"from elsewhere")
    assert before.slots.receive(sock, 0) == 1
    before.life.end()
    after = Receiving(tmp_path, sock, allow_from=("10.0.0.0/8",))
    after.receiver.take_over()
    assert (after.life.payloads(), after.life.totals()["invalid.network"]) == ([], 1)
    assert after.life.totals()["unverified"] == 0


def test_frames_say_which_slots_of_which_round_they_hold(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock)
    for _ in range(3):
        send(sock, b"a", b"b")
        receiving.receiver.receive(1)
    last = receiving.life.publication.last_frame()
    assert last
    assert published(last.reserved_value) == (3, 2)


def test_a_round_that_was_begun_to_be_emptied_is_never_filled_again(tmp_path: Path, sock: socket.socket) -> None:
    first = Receiving(tmp_path, sock)
    send(sock, b"one", b"two")
    first.slots.next_round = lambda: first.slots._messages.__setitem__("length", 0xFFFFFFFF)  # type: ignore[method-assign]
    first.receiver.receive(1)  # killed between the lengths and the round's number
    first.life.end()
    second = Receiving(tmp_path, sock)
    second.receiver.take_over()
    send(sock, b"three")
    second.slots.receive(sock, 0)  # and killed again
    second.life.end()
    third = Receiving(tmp_path, sock)
    third.receiver.take_over()
    assert third.life.payloads() == [b"one", b"two", b"three"]


def test_kernel_drops_between_two_receivers_are_counted(tmp_path: Path) -> None:
    small = LISTENER.model_copy(update={"so_rcvbuf": 8192})
    with open_socket(small) as sock:
        first = Receiving(tmp_path, sock)
        first.life.end()
        send(sock, *[b"x" * 1000] * 100)
        second = Receiving(tmp_path, sock)
        second.receiver.take_over()
        second.receiver.receive(1)
        totals = second.life.totals()
    assert totals["kernel_dropped"] + totals["taken"] == 100
    assert totals["kernel_dropped"] > 50


def send_from(address: str, sock: socket.socket, *datagrams: bytes) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.bind((address, 0))
        for datagram in datagrams:
            sender.sendto(datagram, sock.getsockname())


def test_each_sender_has_its_own_messages_and_losses(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock)
    damaged = [part[:-1] + b"x" for part in fragment(b"m" * 3000, 9, fragment_size=1000)]
    send_from("127.0.0.2", sock, b"plain", *PARTS, b"\x09unknown version", b"\0\0nonsense", b"\0\1short")
    send_from("127.0.0.3", sock, *damaged, fragment(b"alone", 10)[0][:-1] + b"x", b"plain", b"plain")
    receiving.receiver.receive(1)
    assert receiving.life.senders() == {
        "127.0.0.2": {"accepted": 2, "invalid": 3},
        "127.0.0.3": {"accepted": 2, "bad_checksum": 2},
    }
    totals = receiving.life.totals()
    assert (totals["accepted"], totals["bad_checksum"]) == (4, 2)


def test_holes_and_incomplete_messages_belong_to_their_sender(tmp_path: Path, sock: socket.socket) -> None:
    defrag = DefragConfig.model_validate({"expire_time": 0.01, "detect_holes": {"ids_per_port": 2}})
    receiving = Receiving(tmp_path, sock, defrag=defrag)
    send_from("127.0.0.2", sock, *(fragment(b"m", number)[0] for number in (1, 2, 5, 6, 7)))
    send_from("127.0.0.3", sock, PARTS[0], b"plain")
    receiving.receiver.receive(1)
    time.sleep(0.02)
    receiving.receiver.tick()
    assert receiving.life.senders() == {
        "127.0.0.2": {"accepted": 5, "hole": 2},
        "127.0.0.3": {"accepted": 1, "incomplete": 1},
    }


def test_refused_datagrams_and_networks_belong_to_their_sender(tmp_path: Path, sock: socket.socket) -> None:
    networks = (ip_network("127.0.0.2/32"),)
    receiving = Receiving(tmp_path, sock, codec="syslog", allow_from=networks)
    send_from("127.0.0.2", sock, b"<13>plain", b"z" + zlib.compress(b"<13>packed" * 9))
    send_from("127.0.0.3", sock, b"<13>foreign")
    receiving.receiver.receive(1)
    assert receiving.life.senders() == {
        "127.0.0.2": {"accepted": 1, "refused": 1},
        "127.0.0.3": {"invalid": 1},
    }


def test_refused_gelf_message_belongs_to_its_sender(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock, codec="gelf")
    send_from("127.0.0.2", sock, b'{"short_message": "a"}', zlib.compress(b"m" * (17 << 10)), b"\x1e\x0fshort")
    receiving.receiver.receive(1)
    assert receiving.life.senders() == {"127.0.0.2": {"accepted": 1, "invalid": 1, "refused": 1}}


def test_senders_behind_a_relay_are_counted_by_the_host_in_their_header(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock, codec="syslog", senders="host")
    line = b"<13>Oct 11 22:14:15 %s su: text"
    send(sock, line % b"db1", line % b"db2", line % b"db1", b"no header", b"z" + zlib.compress(b"<13>packed" * 9))
    receiving.receiver.receive(1)
    assert receiving.life.senders() == {
        "db1": {"accepted": 2},
        "db2": {"accepted": 1},
        "(no host)": {"accepted": 1, "refused": 1},
    }


def test_counts_by_sender_survive_a_kill_before_the_slots_are_free(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock)
    send_from("127.0.0.2", sock, b"one", b"two")
    filled = receiving.slots.receive(sock, 0)  # killed here: the slots are filled, nothing is published
    assert filled == 2
    assert receiving.life.senders() == {}
    receiving.life.end()
    successor = Receiving(tmp_path, sock)
    successor.receiver.take_over()
    assert successor.life.senders() == {"127.0.0.2": {"accepted": 2}}
    successor.life.end()
    third = Receiving(tmp_path, sock)
    third.receiver.take_over()
    assert third.life.senders() == {"127.0.0.2": {"accepted": 2}}
