"""The TCP receiver: lines of many connections, whole, in order, counted."""

from __future__ import annotations

import contextlib
import errno
import json
import logging.handlers
import socket
import struct
import zlib
from collections.abc import Iterator
from multiprocessing.connection import wait
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.config import ListenerConfig
from penstock.config.keys.listeners import MultilineConfig
from penstock.counts import open_books
from penstock.ingest.connections import LINES_PER_TURN, Connection
from penstock.ingest.plog_commands import Commands
from penstock.ingest.receiver import make_decoder
from penstock.ingest.sockets import open_socket
from penstock.ingest.tcp import MIN_READ_BYTES, ROUND_BYTES, TcpReceiver
from penstock.ingest.udp import FILL_TIME_S
from penstock.testing import FakeClock
from penstock.wire.framing.line_framing import Lines
from penstock.wire.framing.lines import SETTLE_TIME_S
from tests.ingest.ingest_life import Life, live

LISTENER = ListenerConfig(name="lines", protocol="tcp", port=0, max_line=2000)
TERM = 1 << 19


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with open_socket(LISTENER) as bound:
        yield bound


class Receiving:
    """A TCP receiver in this process."""

    def __init__(self, folder: Path, sock: socket.socket, **more: object) -> None:
        listener = LISTENER.model_copy(update=more)
        self.life: Life = live(folder, listener, TERM)
        decoder = make_decoder(listener)
        commands = Commands(listener, decoder.statistics.as_dict, list)
        self.clock = FakeClock()
        self.receiver = TcpReceiver(
            listener,
            sock,
            self.life.publisher,
            decoder,
            commands,
            lambda: None,
            self.clock.monotonic,
            sleep=lambda seconds: self.sleep(seconds),
        )
        self.sleep = self.clock.advance

    def rounds(self, count: int = 6) -> None:
        for _ in range(count):
            self.receiver.receive(0.02)

    def published(self) -> list[pa.RecordBatch]:
        """The bodies that it publishes from now on."""
        bodies: list[pa.RecordBatch] = []
        publish = self.life.publisher.publish
        self.life.publisher.publish = lambda body, *a, **k: (bodies.append(body), publish(body, *a, **k))  # type: ignore[method-assign]
        return bodies


def connect(sock: socket.socket) -> socket.socket:
    connection = socket.create_connection(sock.getsockname())
    connection.settimeout(2)
    return connection


def test_lines_of_each_connection_keep_their_order(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock)
    connection, two = connect(sock), connect(sock)
    connection.sendall(b"1a\n1b\r\n1")
    two.sendall(b"2a\n")
    receiving.rounds()
    connection.sendall(b"c\n")
    two.sendall(b"2b without newline")
    two.close()
    receiving.rounds()
    payloads = receiving.life.payloads()
    assert [p for p in payloads if p.startswith(b"1")] == [b"1a", b"1b", b"1c"]
    assert [p for p in payloads if p.startswith(b"2")] == [b"2a", b"2b without newline"]
    assert open_books(receiving.life.totals()) == []


def test_lines_that_come_one_by_one_are_taken_together(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock)
    batches, pauses = receiving.published(), list[float]()

    def lines_come(pause: float) -> None:
        pauses.append(pause)
        for _ in range(19 if len(pauses) == 1 else 20):
            connection.sendall(b"line\n")

    receiving.sleep = lines_come
    with connect(sock) as connection:
        receiving.rounds(1)
        connection.sendall(b"line\n")
        for _ in range(100):
            receiving.rounds(1 if len(pauses) < 10 else 0)
        receiving.sleep = receiving.clock.advance
        receiving.rounds()
    assert pauses == [FILL_TIME_S] * 10
    assert len(batches) < 50
    assert len(receiving.life.payloads()) == 200


def test_a_round_that_found_much_or_nothing_is_followed_at_once(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock)
    pauses: list[float] = []
    receiving.sleep = pauses.append
    with connect(sock) as connection:
        connection.sendall(b"line\n" * (MIN_READ_BYTES // 5 + 1))
        receiving.rounds()
    assert not pauses
    assert len(receiving.life.payloads()) == MIN_READ_BYTES // 5 + 1


def test_an_overlong_line_is_dropped_and_the_connection_goes_on(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock)
    with connect(sock) as connection:
        connection.sendall(b"x" * 2000 + b"\n" + b"y" * 2001 + b"\nlast\n")
        receiving.rounds()
    assert receiving.life.payloads() == [b"x" * 2000, b"last"]
    assert receiving.life.totals()["line.overlong"] == 1


def test_a_command_is_answered_on_its_connection(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock)
    with connect(sock) as connection:
        connection.sendall(b"\0\0PING me\n")
        receiving.rounds()
        assert connection.recv(100) == b"PONG me\n"
    assert receiving.life.totals() == {"lines": 1, "line.command": 1}


def test_stat_counts_the_lines_before_it_and_not_itself(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock)
    with connect(sock) as connection:
        connection.sendall(b"one\ntwo\n\0\0PING\n\0\0klil\n\0x\n\0\0STAT\n")
        receiving.rounds()
        pong, stat = connection.recv(65536).splitlines(keepends=True)
    assert pong == b"PONG\n"
    statistics = ("udp_simple_messages", "v0_commands", "unknown_command", "v0_invalid_type")
    assert [json.loads(stat)[name] for name in statistics] == [2, 1, 1, 1]


@pytest.mark.parametrize("framing", ["lf", "auto"])
def test_lines_of_syslog_that_begin_with_nul_are_messages(framing: str, tmp_path: Path, sock: socket.socket) -> None:
    """Commands are plog's: an application that writes one into a line is not answered, and hides nothing."""
    receiving = Receiving(tmp_path, sock, codec="syslog", framing=framing)
    lines = [b"<13>one", b"\0x", b"\0\0STAT", b"\0\0KILL", b"<13>two"]
    with connect(sock) as connection:
        connection.sendall(b"\n".join(lines) + b"\n<13>three\n")
        connection.shutdown(socket.SHUT_WR)
        receiving.rounds()
        assert connection.recv(100) == b""
    assert receiving.life.payloads() == [*lines, b"<13>three"]


def test_a_command_on_the_last_line_without_newline_is_answered(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock)
    with connect(sock) as connection:
        connection.sendall(b"\0\0PING bye")
        connection.shutdown(socket.SHUT_WR)
        receiving.rounds()
        assert connection.recv(100) == b"PONG bye\n"


def test_raw_lines_are_messages_as_they_are(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock, codec="raw")
    with connect(sock) as connection:
        connection.sendall(b"\0\0PING\n")
        receiving.rounds()
    assert receiving.life.payloads() == [b"\0\0PING"]


def test_lines_get_the_address_they_came_from_where_asked(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock, annotate_source=True)
    published = receiving.published()
    with connect(sock) as connection:
        connection.sendall(b"line\n" * 3000)
        receiving.rounds()
    got = [row for body in published for row in body["annotations"].to_pylist()]
    assert got == [[("source_address", "127.0.0.1")]] * 3000
    assert len(published) > 1


def test_ipv4_sender_has_its_own_address_on_a_dual_stack_socket(tmp_path: Path) -> None:
    """syslog-ng/syslog-ng#4674, fluent/fluent-bit#11560: one host had two addresses, depending on the listener."""
    with open_socket(LISTENER.model_copy(update={"host": "::"})) as sock:
        receiving = Receiving(tmp_path, sock, annotate_source=True)
        with socket.create_connection(("127.0.0.1", sock.getsockname()[1])) as connection:
            connection.sendall(b"by IPv4\n")
            receiving.rounds()
    assert [row["annotations"] for row in receiving.life.rows()] == [[("source_address", "127.0.0.1")]]
    assert list(receiving.life.senders()) == ["127.0.0.1"]


def test_more_than_a_frame_holds_becomes_several_frames(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock)
    sent = [b"%d" % number for number in range(3000)]
    with connect(sock) as connection:
        connection.sendall(b"\n".join(sent) + b"\n" + b"z" * 3000 + b"\n")
        receiving.rounds()
    assert receiving.life.payloads() == sent
    assert len(receiving.life.frames()) > 3
    totals = receiving.life.totals()
    assert (totals["lines"], totals["accepted"], totals["line.overlong"]) == (3001, 3000, 1)
    assert open_books(totals) == []
    for payloads, receipt in receiving.life.frames():
        assert receipt.origin.counts.get("accepted", 0) == len(payloads)


def test_unfinished_line_is_published_at_the_end(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock)
    with connect(sock) as connection:
        connection.sendall(b"one\ntwo")
        receiving.rounds(2)
        receiving.receiver.finish()
    assert receiving.life.payloads() == [b"one", b"two"]


def test_all_that_has_arrived_is_published_in_the_end(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock)
    receiving.life.position.position = receiving.life.publication.position
    with connect(sock) as connection:
        connection.settimeout(None)
        connection.setblocking(False)
        sent = 0
        while sent < 400_000:
            try:
                sent += connection.send(b"0123456789\n" * 1000)
            except BlockingIOError:
                break
    receiving.receiver.finish()
    assert receiving.life.totals()["lines"] >= sent // 11


def test_short_of_descriptors_it_waits_with_new_connections(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock)

    class Short:
        def accept(self) -> None:
            raise OSError(errno.EMFILE, "too many")

        def fileno(self) -> int:
            return sock.fileno()

    with connect(sock) as connection:
        receiving.receiver._selector.unregister(sock)
        receiving.receiver._sock = Short()  # type: ignore[assignment]
        receiving.receiver.tick()
        receiving.rounds(2)
        assert not receiving.receiver._selector.get_map()
        receiving.receiver._sock = sock
        receiving.receiver.tick()
        connection.sendall(b"at last\n")
        receiving.rounds()
    assert receiving.life.payloads() == [b"at last"]


@pytest.mark.survives("connections", "peer away")
def test_a_connection_that_is_reset_has_ended_as_others_do(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock)
    with connect(sock) as neighbour:
        reset = connect(sock)
        reset.sendall(b"one\ntwo")
        receiving.rounds()
        reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reset.close()
        receiving.rounds()
        neighbour.sendall(b"three\n")
        receiving.rounds()
    assert receiving.life.payloads() == [b"one", b"two", b"three"]
    assert open_books(receiving.life.totals()) == []


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=60), max_size=8))
def test_any_bytes_close_the_books(tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes]) -> None:
    with open_socket(LISTENER) as sock:
        receiving = Receiving(tmp_path_factory.mktemp("any"), sock)
        with connect(sock) as connection:
            for chunk in chunks:
                connection.sendall(chunk)
        for _ in range(3):
            receiving.receiver.receive(0.001)
        receiving.receiver.finish()
        assert open_books(receiving.life.totals()) == []
        receiving.life.end()


def test_records_that_a_nul_ends_are_a_message_each(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock, codec="syslog")
    handler = logging.handlers.SysLogHandler(sock.getsockname(), socktype=socket.SOCK_STREAM)
    try:
        for text in ("one", "two\n with lines", "three", "four"):
            handler.handle(logging.LogRecord("a", logging.INFO, "", 0, text, (), None))
        receiving.rounds()
    finally:
        handler.close()
    assert receiving.life.payloads() == [b"<14>one", b"<14>two\n with lines", b"<14>three", b"<14>four"]


def test_a_first_message_is_published_after_a_short_silence(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock, codec="syslog")
    with connect(sock) as connection:
        connection.sendall(b"<14>alone\0")
        receiving.rounds()
        receiving.receiver.tick()
        assert receiving.life.payloads() == []
        receiving.clock.advance(SETTLE_TIME_S)
        receiving.receiver.tick()
        assert receiving.life.payloads() == [b"<14>alone"]


def test_a_line_that_begins_with_a_number_hides_and_delays_nothing(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock, codec="syslog")
    sent = [b"<13>h app: start", b"9999999999 y", b"1500 <13>x", b"404 not found"]
    sent += [b"<11>Oct 11 22:14:%02d h sshd: %d" % (i % 60, i) for i in range(300)]
    with connect(sock) as connection:
        connection.sendall(sent[0] + b"\n")
        receiving.rounds()
        receiving.clock.advance(SETTLE_TIME_S)
        receiving.receiver.tick()
        for begin in range(1, len(sent), 10):
            connection.sendall(b"".join(line + b"\n" for line in sent[begin : begin + 10]))
            receiving.rounds(2)
            assert receiving.life.payloads() == sent[: begin + 10]
    assert open_books(receiving.life.totals()) == []


def test_a_sender_that_goes_on_does_not_hold_back_its_first_lines(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock, codec="syslog")
    with connect(sock) as connection:
        for number in range(10):
            connection.sendall(b"<14>first" * (not number) + b"line\n")
            receiving.rounds(2)
            receiving.clock.advance(SETTLE_TIME_S / 5)
            receiving.receiver.tick()
        assert receiving.life.payloads() == [b"<14>firstline"] + [b"line"] * 9


def test_ready_connections_share_the_bytes_of_a_round(
    tmp_path: Path, sock: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiving = Receiving(tmp_path, sock)
    rooms: list[int] = []
    read = TcpReceiver._read

    def read_and_note(self: TcpReceiver, connection: Connection, room: int) -> int:
        rooms.append(room)
        return read(self, connection, room)

    monkeypatch.setattr(TcpReceiver, "_read", read_and_note)
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(sock)) for _ in range(8)]
        receiving.rounds()
        for connection in connections:
            connection.sendall(b"line\n")
        receiving.rounds(1)
    assert rooms == [ROUND_BYTES // 8] * 8


def test_messages_of_others_are_published_before_a_long_turn_goes_on(
    tmp_path: Path, sock: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiving = Receiving(tmp_path, sock, codec="raw")
    published: list[list[bytes]] = []
    feed = Connection.feed

    def feed_and_note(self: Connection, chunk: memoryview) -> Lines:
        if not len(chunk):
            published.append(receiving.life.payloads())
        return feed(self, chunk)

    monkeypatch.setattr(Connection, "feed", feed_and_note)
    with connect(sock) as busy, connect(sock) as other:
        receiving.rounds()
        busy.sendall(b"\n".join([b"x"] * (LINES_PER_TURN + 2)) + b"\n")
        other.sendall(b"from another\n")
        receiving.rounds(2)
    assert [payloads.count(b"from another") for payloads in published] == [1]


def test_a_connection_that_has_to_go_loses_its_unfinished_line_alone(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock, codec="syslog", max_connections=1)
    with connect(sock) as first:
        first.sendall(b"<1>a\nb\nunfinished")
        receiving.rounds()
        with connect(sock):
            receiving.rounds()
    totals = receiving.life.totals()
    assert receiving.life.payloads() == [b"<1>a", b"b"]
    assert (totals["lines"], totals["line.evicted"], open_books(totals)) == (3, 1, [])


def test_lines_that_an_evicted_connection_had_sent_are_read_first(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock, codec="raw", max_connections=1)
    with connect(sock) as first:
        receiving.rounds()
        sent = [b"line %d" % number for number in range(43)]
        first.sendall(b"\n".join(sent) + b"\nunfinished")
        receiving.clock.advance(1)  # the connection that is silent for longer is evicted
        with connect(sock):
            assert wait([sock], 5), "the kernel has the second connection"
            receiving.receiver._accept_waiting()
            receiving.rounds()
    totals = receiving.life.totals()
    assert receiving.life.payloads() == sent
    assert (totals["lines"], totals["line.evicted"], open_books(totals)) == (44, 1, [])


@pytest.mark.parametrize("codec", ["syslog", "gelf", "raw", "plog"])
def test_an_empty_line_is_counted_and_is_no_message_but_for_plog(
    tmp_path: Path, sock: socket.socket, codec: str
) -> None:
    receiving = Receiving(tmp_path, sock, codec=codec)
    end = b"\0" if codec == "gelf" else b"\n"
    with connect(sock) as connection:
        connection.sendall(end + b"{}" + end * 3)
    receiving.rounds()
    totals = receiving.life.totals()
    empty = [] if codec == "plog" else [totals["line.empty"]]
    assert receiving.life.payloads() == ([b"", b"{}", b"", b""] if codec == "plog" else [b"{}"])
    assert (totals["lines"], empty, open_books(totals)) == (4, [] if codec == "plog" else [3], [])


def test_counted_messages_with_newlines_behind_them_give_no_empty_ones(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock, codec="syslog")
    with connect(sock) as connection:
        connection.sendall(b"32 <13>Oct 11 22:14:15 h app: first\r\n33 <13>Oct 11 22:14:16 h app: second\r\n")
    receiving.rounds()
    assert receiving.life.payloads() == [b"<13>Oct 11 22:14:15 h app: first", b"<13>Oct 11 22:14:16 h app: second"]


def test_lines_of_one_message_are_joined_and_counted(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock, codec="syslog", multiline=MultilineConfig(indented=True, wait=1.0))
    with connect(sock) as first, connect(sock) as second:
        first.sendall(b"<1>first\n at a\n<1>second\n")
        receiving.rounds()
        second.sendall(b"<1>other\n\tat b\n")
        first.sendall(b" at c\n")
        receiving.rounds()
        assert receiving.life.payloads() == [b"<1>first\n at a"]
        receiving.clock.advance(1)
        receiving.receiver.tick()
    assert sorted(receiving.life.payloads()) == [b"<1>first\n at a", b"<1>other\n\tat b", b"<1>second\n at c"]
    totals = receiving.life.totals()
    assert (totals["lines"], totals["line.message"], totals["line.joined"]) == (6, 3, 3)
    assert open_books(totals) == []


def test_held_lines_that_had_to_make_room_are_counted(tmp_path: Path, sock: socket.socket) -> None:
    multiline = MultilineConfig(indented=True)
    receiving = Receiving(tmp_path, sock, codec="syslog", multiline=multiline, max_connections=1)
    with connect(sock) as first:
        first.sendall(b"<1>a\n b\n<1>c\n d\nunfinished")
        receiving.rounds()
        with connect(sock):
            receiving.rounds()
    totals = receiving.life.totals()
    assert receiving.life.payloads() == [b"<1>a\n b"]
    assert (totals["lines"], totals["line.evicted"], open_books(totals)) == (5, 3, [])


def test_compressed_messages_over_tcp_are_refused_and_the_books_close(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock, codec="syslog")
    packed = b"z" + zlib.compress(b"<14>packed")
    with connect(sock) as connection:
        connection.sendall(b"".join(b"%d %b" % (len(each), each) for each in (b"<14>a", packed, b"<14>b")))
        receiving.rounds()
    totals = receiving.life.totals()
    assert receiving.life.payloads() == [b"<14>a", b"<14>b"]
    assert (totals["refused.compressed"], totals["accepted"], open_books(totals)) == (1, 2, [])


@pytest.mark.parametrize("end", [b"\n", b"\0"])
def test_gelf_messages_are_separated_by_the_end_that_the_sender_uses(
    tmp_path: Path, sock: socket.socket, end: bytes
) -> None:
    receiving = Receiving(tmp_path, sock, codec="gelf")
    messages = [b'{"host":"h","short_message":"m%d"}' % number for number in range(3)]
    with connect(sock) as connection:
        connection.sendall(messages[0] + end)
        receiving.rounds()
        receiving.clock.advance(SETTLE_TIME_S)
        receiving.receiver.tick()
        assert receiving.life.payloads() == messages[:1]
        connection.sendall(messages[1] + end + messages[2] + end)
        receiving.rounds()
        assert receiving.life.payloads() == messages


def test_each_connections_messages_and_losses_belong_to_its_sender(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock)
    other = socket.create_connection(sock.getsockname(), source_address=("127.0.0.2", 0))
    with connect(sock) as connection, other:
        connection.sendall(b"a\n" + b"y" * 2001 + b"\nb\n")
        other.sendall(b"c\n")
        receiving.rounds()
        connection.sendall(b"d\n")
        receiving.rounds()
    assert receiving.life.senders() == {
        "127.0.0.1": {"accepted": 3, "overlong": 1},
        "127.0.0.2": {"accepted": 1},
    }


def test_lines_behind_a_relay_are_counted_by_the_host_in_their_header(tmp_path: Path, sock: socket.socket) -> None:
    receiving = Receiving(tmp_path, sock, codec="syslog", senders="host")
    with connect(sock) as connection:
        connection.sendall(b"".join(b"<13>Oct 11 22:14:15 %s su: text\n" % host for host in (b"db1", b"db2", b"db1")))
        receiving.rounds()
    assert receiving.life.senders() == {"db1": {"accepted": 2}, "db2": {"accepted": 1}}
