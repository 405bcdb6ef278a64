"""Local sockets: their files, their senders' credentials, and what the libraries of a host's programs send."""

from __future__ import annotations

import contextlib
import errno
import logging.handlers
import os
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from penstock.config import ListenerConfig
from penstock.counts import open_books
from penstock.handover.paths import slots_file
from penstock.ingest import sockets
from penstock.ingest.local_sockets import QUEUE_LENGTH, bind_file, queue_length, request_credentials, serves_file
from penstock.ingest.plog_commands import Commands
from penstock.ingest.receiver import make_decoder
from penstock.ingest.slots import Slots
from penstock.ingest.sockets import CannotListen, check_listener, open_socket, turn_away
from penstock.ingest.tcp import TcpReceiver
from penstock.ingest.udp import UdpReceiver
from tests.ingest.ingest_life import Life, live

OWN = {"source_pid": str(os.getpid()), "source_uid": str(os.getuid()), "source_gid": str(os.getgid())}
TERM = 2 << 20


def local_listener(path: Path, protocol: str = "unix_datagram", **more: object) -> ListenerConfig:
    keys = {"name": "host", "protocol": protocol, "path": str(path), "annotate_source": True, **more}
    return ListenerConfig.model_validate(keys)


class Receiving:
    """A receiver of a local socket in this process."""

    def __init__(self, folder: Path, listener: ListenerConfig, sock: socket.socket | None = None) -> None:
        self.sock = sock or open_socket(listener)
        self.life: Life = live(folder, listener, TERM)
        decoder = make_decoder(listener)
        commands = Commands(listener, decoder.statistics.as_dict, list)
        common = (self.life.publisher, decoder, commands, lambda: None)
        self.slots = Slots(slots_file(folder, "host"), 64, self.life.publisher.published[0], is_local=True)
        self.receiver: UdpReceiver | TcpReceiver
        if listener.takes_datagrams:
            self.receiver = UdpReceiver(listener, self.sock, self.slots, *common)
        else:
            self.receiver = TcpReceiver(listener, self.sock, *common)

    def messages(self) -> list[tuple[bytes, dict[str, str]]]:
        """Return what has arrived, as payloads and annotations."""
        for _ in range(4):
            self.receiver.receive(0.05)
        return [(row["payload"], dict(row["annotations"])) for row in self.life.rows()]


def send(path: Path, *datagrams: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for datagram in datagrams:
            sender.sendto(datagram, str(path))


def test_datagram_has_its_senders_credentials_and_header_without_host(tmp_path: Path) -> None:
    receiving = Receiving(tmp_path, local_listener(tmp_path / "log"))
    send(tmp_path / "log", b"<13>Oct 11 22:14:15 app[1]: text", b"<30>Oct 11 22:14:15 my tool: ready\n\0")
    (first, second) = receiving.messages()
    assert first[0] == b"<13>Oct 11 22:14:15 app[1]: text"
    assert first[1] | OWN == first[1]
    fields = {name: first[1].get(name) for name in ("facility", "severity", "app_name", "proc_id", "hostname")}
    assert fields == {
        "facility": "user",
        "severity": "notice",
        "app_name": "app",
        "proc_id": "1",
        "hostname": None,
    }
    assert first[1]["timestamp"].endswith("Z")
    assert second[0] == b"<30>Oct 11 22:14:15 my tool: ready"
    assert "hostname" not in second[1]
    assert open_books(receiving.life.totals()) == []


def test_the_first_datagram_has_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def bind_and_send(sock: socket.socket, listener: ListenerConfig) -> None:
        bind_file(sock, listener)
        send(tmp_path / "log", b"<13>app: first")

    monkeypatch.setattr(sockets, "bind_file", bind_and_send)
    receiving = Receiving(tmp_path, local_listener(tmp_path / "log"))
    (first,) = receiving.messages()
    assert first[1] | OWN == first[1]


def test_each_process_has_its_own_credentials_in_one_round(tmp_path: Path) -> None:
    receiving = Receiving(tmp_path, local_listener(tmp_path / "log"))
    program = "import socket,os,sys; s=socket.socket(socket.AF_UNIX,socket.SOCK_DGRAM);"
    program += "s.sendto(b'<13>other: '+str(os.getpid()).encode(), sys.argv[1])"
    send(tmp_path / "log", b"<13>own: 0")
    subprocess.run([sys.executable, "-c", program, tmp_path / "log"], check=True, timeout=60)
    send(tmp_path / "log", b"<13>own: 1")
    messages = receiving.messages()
    assert [annotations["source_pid"] for _, annotations in messages] == [
        OWN["source_pid"],
        messages[1][0].rpartition(b" ")[2].decode(),
        OWN["source_pid"],
    ]


def test_datagram_longer_than_a_slot_is_whole_and_too_long_is_refused(tmp_path: Path) -> None:
    receiving = Receiving(tmp_path, local_listener(tmp_path / "log"))
    longest = b"<13>app: " + b"x" * (65_535 - 9)
    send(tmp_path / "log", longest, longest + b"y", b"<13>app: after")
    assert [payload for payload, _ in receiving.messages()] == [longest, b"<13>app: after"]
    totals = receiving.life.totals()
    assert totals["invalid.overlong"] == 1
    assert open_books(totals) == []


def test_local_senders_are_counted_by_user(tmp_path: Path) -> None:
    receiving = Receiving(tmp_path, local_listener(tmp_path / "log"))
    send(tmp_path / "log", b"<13>text", b"<13>" + b"x" * 70_000)
    receiving.receiver.receive(1)
    assert receiving.life.senders() == {f"uid {os.getuid()}": {"accepted": 1, "overlong": 1}}


def test_file_descriptors_in_a_message_are_dropped(tmp_path: Path) -> None:
    receiving = Receiving(tmp_path, local_listener(tmp_path / "log"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(str(tmp_path / "log"))
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            socket.send_fds(sender, [b"<13>app: with files"], [0, 1, 2])
        assert len(receiving.messages()) == 5
        assert len(os.listdir("/proc/self/fd")) == before
    assert receiving.life.rows()[4]["annotations"][-3:] == list(OWN.items())


def test_killed_receivers_slots_keep_their_credentials(tmp_path: Path) -> None:
    listener = local_listener(tmp_path / "log")
    first = Receiving(tmp_path, listener)
    send(tmp_path / "log", b"<13>app: in a slot")
    assert first.slots.receive(first.sock, 0) == 1
    first.life.end()
    second = Receiving(tmp_path, listener, first.sock)
    second.receiver.take_over()
    ((payload, annotations),) = second.messages()
    assert payload == b"<13>app: in a slot"
    assert annotations | OWN == annotations


def test_command_on_a_local_socket_is_refused_and_counted(tmp_path: Path) -> None:
    receiving = Receiving(tmp_path, local_listener(tmp_path / "log", codec="plog"))
    send(tmp_path / "log", b"\0\0PING", b"message")
    assert [payload for payload, _ in receiving.messages()] == [b"message"]
    assert receiving.life.totals()["invalid.command_refused"] == 1


def test_sender_waits_when_the_queue_is_full_and_nothing_is_lost(tmp_path: Path) -> None:
    receiving = Receiving(tmp_path, local_listener(tmp_path / "log"))
    sent = 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, contextlib.suppress(BlockingIOError):
        sender.setblocking(False)
        sender.connect(str(tmp_path / "log"))
        while sent < 100_000:
            sender.send(b"<13>app: %d" % sent)
            sent += 1
    assert 0 < sent <= queue_length() + 1
    for _ in range(20):
        receiving.receiver.receive(0)
    assert receiving.life.payloads() == [b"<13>app: %d" % number for number in range(sent)]
    receiving.receiver.tick()
    assert "kernel_dropped" not in receiving.life.totals()


def test_queue_length_is_the_kernels() -> None:
    assert queue_length() == int(QUEUE_LENGTH.read_text())


@pytest.mark.parametrize("protocol", ["unix_datagram", "unix_stream"])
def test_pythons_handler_is_received(protocol: str, tmp_path: Path) -> None:
    receiving = Receiving(tmp_path, local_listener(tmp_path / "log", protocol))
    kind = socket.SOCK_DGRAM if protocol == "unix_datagram" else socket.SOCK_STREAM
    handler = logging.handlers.SysLogHandler(str(tmp_path / "log"), facility="local0", socktype=kind)
    handler.ident = "worker: "
    for text in ("one", "two"):
        handler.emit(logging.LogRecord("name", logging.WARNING, "", 0, text, (), None))
    receiving.receiver.receive(0.05)
    handler.close()
    messages = receiving.messages()
    assert [payload for payload, _ in messages] == [b"<132>worker: one", b"<132>worker: two"]
    assert [annotations["app_name"] for _, annotations in messages] == ["worker", "worker"]
    assert all(annotations | OWN == annotations for _, annotations in messages)


def syslog_of_libc(folder: Path) -> bool:
    """Let C's syslog(3) write to ``folder/log``, which it knows as /dev/log, in a name space of its own.

    Return whether this user may make one.
    """
    program = (
        "import ctypes,os,sys\n"
        "libc=ctypes.CDLL(None, use_errno=True)\n"
        "uid,gid=os.getuid(),os.getgid()\n"
        "if libc.unshare(0x10020000 if uid else 0x20000): sys.exit(77)\n"
        "if uid:\n"
        " open('/proc/self/setgroups','w').write('deny')\n"
        " open('/proc/self/uid_map','w').write(f'0 {uid} 1')\n"
        " open('/proc/self/gid_map','w').write(f'0 {gid} 1')\n"
        "if libc.mount(b'none',b'/',None,0x44000,None) or libc.mount(sys.argv[1].encode(),b'/dev',None,4096,None):\n"
        " sys.exit(77)\n"
        "libc.openlog(b'clib',1,8)\n"
        "libc.syslog(14,b'from %s',b'libc')\n"
    )
    outcome = subprocess.run([sys.executable, "-c", program, folder], capture_output=True, check=False, timeout=60)
    return outcome.returncode == 0


FOREIGN: list[tuple[str, Any, bytes, dict[str, str]]] = [
    # Recorded: the same library writes these bytes where it may not be started.
    (
        "libc",
        lambda path: send(path, b"<14>Nov 26 22:20:01 clib[4711]: from libc"),
        b"clib[4711]: from libc",
        {"app_name": "clib", "proc_id": "4711", "severity": "info"},
    ),
    (
        "go",
        lambda path: send(path, b"<28>Nov 26 22:20:01 gotool[4712]: from go\n"),
        b"gotool[4712]: from go",
        {"app_name": "gotool", "proc_id": "4712", "facility": "daemon", "severity": "warning"},
    ),
]
if shutil.which("logger"):
    FOREIGN.append(
        (
            "logger",
            lambda path: subprocess.run(
                ["logger", "-u", path, "-p", "local3.err", "-t", "shell", "from logger"], check=True, timeout=60
            ),
            b"shell: from logger",
            {"app_name": "shell", "facility": "local3", "severity": "err"},
        )
    )


@pytest.mark.parametrize("protocol", ["unix_datagram", "unix_stream"])
@pytest.mark.parametrize(("sender", "ending", "fields"), [row[1:] for row in FOREIGN], ids=[row[0] for row in FOREIGN])
def test_foreign_sender_is_understood(
    sender: Any, ending: bytes, fields: dict[str, str], protocol: str, tmp_path: Path
) -> None:
    if protocol == "unix_stream" and ending != b"shell: from logger":
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as recorder:
            recorder.bind(str(tmp_path / "recorder"))
            sender(tmp_path / "recorder")
            recorded = recorder.recv(1000)
        receiving = Receiving(tmp_path, local_listener(tmp_path / "log", protocol))
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(str(tmp_path / "log"))
            stream.sendall(recorded if recorded.endswith(b"\n") else recorded + b"\0")
    else:
        receiving = Receiving(tmp_path, local_listener(tmp_path / "log", protocol))
        sender(tmp_path / "log")
    ((payload, annotations),) = receiving.messages()
    assert payload.endswith(ending)
    assert annotations | fields == annotations
    assert "hostname" not in annotations


if syslog_of_libc(Path("/tmp")):

    def test_syslog_of_the_c_library_is_received_on_dev_log(tmp_path: Path) -> None:
        (tmp_path / "dev").mkdir()
        receiving = Receiving(tmp_path, local_listener(tmp_path / "dev" / "log"))
        assert syslog_of_libc(tmp_path / "dev")
        ((payload, annotations),) = receiving.messages()
        assert payload.endswith(b": from libc")
        assert (annotations["app_name"], annotations["severity"]) == ("clib", "info")
        assert annotations["proc_id"] == annotations["source_pid"]


def test_file_has_the_configured_mode_and_owner(tmp_path: Path) -> None:
    owner = f"{os.getuid()}:{os.getgid()}"
    with open_socket(local_listener(tmp_path / "log", mode="0620", owner=owner)):
        assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o620
    with pytest.raises(CannotListen, match=r"listener 'host': .*/log: owner: there is no user 'nobody-here'"):
        open_socket(local_listener(tmp_path / "log", owner="nobody-here"))


@pytest.mark.parametrize("protocol", ["unix_datagram", "unix_stream"])
@pytest.mark.parametrize("holder", ["unix_datagram", "unix_stream"])
def test_file_is_replaced_only_if_nobody_listens(protocol: str, holder: str, tmp_path: Path) -> None:
    listener = local_listener(tmp_path / "log", protocol)
    with (
        open_socket(local_listener(tmp_path / "log", holder)),
        pytest.raises(CannotListen, match="a process listens on this socket"),
    ):
        open_socket(listener)
    assert (tmp_path / "log").is_socket()
    with open_socket(listener) as sock:
        assert serves_file(sock, listener)


def test_file_that_is_no_socket_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("precious")
    with pytest.raises(CannotListen, match="the file exists and is not a socket: remove it, or configure another path"):
        open_socket(local_listener(tmp_path / "log"))
    assert (tmp_path / "log").read_text() == "precious"
    with pytest.raises(CannotListen, match="No such file or directory"):
        check_listener(local_listener(tmp_path / "missing" / "log"))


@pytest.mark.parametrize("is_dangling", [True, False])
def test_link_to_journalds_socket_is_refused_with_its_target(is_dangling: bool, tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "dev-log")
    with contextlib.nullcontext() if is_dangling else open_socket(local_listener(tmp_path / "dev-log")):
        text = f"link to {tmp_path}/dev-log, such as journald's: disable systemd-journald-dev-log.socket and remove"
        with pytest.raises(CannotListen, match=text):
            open_socket(local_listener(tmp_path / "log"))
    assert (tmp_path / "log").is_symlink()


def test_full_queue_counts_as_a_process_that_listens(tmp_path: Path) -> None:
    listener = local_listener(tmp_path / "log", "unix_stream")
    with socket.socket(socket.AF_UNIX) as holder:
        bind_file(holder, listener)
        holder.listen(0)
        with socket.socket(socket.AF_UNIX) as waiting:
            waiting.connect(str(tmp_path / "log"))
            with pytest.raises(CannotListen, match="a process listens"):
                open_socket(listener)


def test_check_leaves_no_file(tmp_path: Path) -> None:
    check_listener(local_listener(tmp_path / "log"))
    assert not (tmp_path / "log").exists()


def test_inherited_socket_serves_its_file_by_any_name_while_it_exists(tmp_path: Path) -> None:
    datagrams, stream = local_listener(tmp_path / "log"), local_listener(tmp_path / "log", "unix_stream")
    (tmp_path / "link").symlink_to(tmp_path / "log")
    with open_socket(datagrams) as sock, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unbound:
        request_credentials(sock)
        assert serves_file(sock, datagrams)
        assert serves_file(sock, local_listener(tmp_path / "link"))
        assert not serves_file(sock, stream)
        assert not serves_file(unbound, datagrams)
        assert not serves_file(sock, local_listener(tmp_path / "other"))
        (tmp_path / "log").unlink()
        assert not serves_file(sock, datagrams)


def test_socket_that_is_turned_away_gives_what_it_has_and_refuses_more(tmp_path: Path) -> None:
    with open_socket(local_listener(tmp_path / "log")) as sock:
        send(tmp_path / "log", b"before")
        turn_away(sock)
        assert sock.recv(100) == b"before"
        with pytest.raises(OSError, match="Broken pipe") as refusal:
            send(tmp_path / "log", b"after")
        assert refusal.value.errno == errno.EPIPE


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ({"protocol": "unix_datagram"}, "needs path"),
        ({"protocol": "unix_stream", "path": "log"}, "needs path"),
        ({"protocol": "udp", "path": "/dev/log"}, "path, mode and owner are for"),
        ({"protocol": "unix_stream", "path": "/l", "mode": "0999"}, "mode"),
        ({"protocol": "unix_datagram", "path": "/l", "allow_from": ["10.0.0.0/8"]}, "mode and owner say who may send"),
        ({"protocol": "unix_datagram", "path": "/l", "codec": "forward"}, "codec forward is for"),
        ({"protocol": "unix_datagram", "path": "/l", "receivers": 2}, "receivers is for udp"),
    ],
)
def test_unfitting_keys_are_refused(keys: dict[str, object], error: str) -> None:
    with pytest.raises(ValidationError, match=error):
        ListenerConfig.model_validate({"name": "host", **keys})


def test_codec_defaults_to_syslog_and_can_be_chosen() -> None:
    assert local_listener(Path("/dev/log")).codec == "syslog"
    assert local_listener(Path("/dev/log"), codec="raw").codec == "raw"
