"""Replacement of listeners, and failures before anything changes."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.config import Settings
from penstock.ingest.sockets import CannotListen
from penstock.supervise import listener_swap as swap_module
from penstock.supervise.listener_processes import ListenerProcesses
from penstock.supervise.listener_swap import ListenerSwap


def settings(folder: Path, *listeners: dict[str, Any]) -> Settings:
    documents = [{"protocol": "udp", "so_rcvbuf": "64KiB", "port": 0, **listener} for listener in listeners]
    return Settings.model_validate({"data_dir": str(folder), "listener": documents})


@pytest.fixture
def intakes(tmp_path: Path) -> Iterator[dict[str, ListenerProcesses]]:
    """Return two listeners whose processes are not started."""
    before = settings(tmp_path, {"name": "a"}, {"name": "b"})
    before.buffers.mkdir()
    processes_by_name = {
        listener.name: ListenerProcesses(listener, before.buffer, before.buffers) for listener in before.listener
    }
    yield processes_by_name
    for intake in processes_by_name.values():
        if intake.sock.fileno() >= 0:
            intake.close()


def test_unchanged_listeners_are_not_touched(intakes: dict[str, ListenerProcesses], tmp_path: Path) -> None:
    swap = ListenerSwap(intakes, settings(tmp_path, {"name": "a"}, {"name": "b"}))
    assert swap.lines == []
    assert swap.carry_out(lambda: None) == intakes


@pytest.mark.survives("supervisor", "full disk")
def test_full_disk_does_not_stop_a_swap(
    intakes: dict[str, ListenerProcesses],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(swap_module, "settle_removed_handlers", full)
    new_intakes = ListenerSwap(intakes, settings(tmp_path, {"name": "a"})).carry_out(lambda: None)
    assert (list(new_intakes), caplog.messages) == (["a"], [f"{tmp_path / 'buffers'}: No space left on device"])


def test_lines_describe_the_change_of_each_listener(intakes: dict[str, ListenerProcesses], tmp_path: Path) -> None:
    swap = ListenerSwap(intakes, settings(tmp_path, {"name": "a", "protocol": "tcp"}, {"name": "c"}))
    assert swap.lines == ["listener 'c' is added", "listener 'b' is removed", "listener 'a' is changed"]
    for intake in swap._opened:
        intake.close()


def test_unavailable_address_changes_nothing(intakes: dict[str, ListenerProcesses], tmp_path: Path) -> None:
    sockets = {name: intake.sock.fileno() for name, intake in intakes.items()}
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        occupied = {"name": "d", "protocol": "tcp", "port": holder.getsockname()[1]}
        with pytest.raises(CannotListen, match="listener 'd'"):
            ListenerSwap(intakes, settings(tmp_path, {"name": "c"}, occupied))
    assert {name: intake.sock.fileno() for name, intake in intakes.items()} == sockets


def test_new_listener_takes_over_the_address_of_a_removed_one(
    intakes: dict[str, ListenerProcesses], tmp_path: Path
) -> None:
    port = intakes["a"].sock.getsockname()[1]
    new = settings(tmp_path, {"name": "renamed", "port": port}, {"name": "b"})
    swap = ListenerSwap(intakes, new)
    started: list[str] = []
    new_intakes = swap.carry_out(lambda: started.append("tick"))
    try:
        assert list(new_intakes) == ["renamed", "b"]
        assert new_intakes["renamed"].sock.getsockname()[1] == port
        assert new_intakes["b"] is intakes["b"]
        assert new_intakes["renamed"].receiver.pid
        assert intakes["a"].sock.fileno() == -1
    finally:
        for child in new_intakes["renamed"].children:
            child.stop()
            child.wait(0)
        new_intakes["renamed"].close()


def test_move_to_a_foreign_host_is_refused_before_anything_changes(
    intakes: dict[str, ListenerProcesses], tmp_path: Path
) -> None:
    port = intakes["a"].sock.getsockname()[1]
    for host in ("192.0.2.77", "127.0.0..1"):
        with pytest.raises(CannotListen, match="listener 'a'"):
            ListenerSwap(intakes, settings(tmp_path, {"name": "a", "host": host, "port": port}, {"name": "b"}))
    assert intakes["a"].sock.getsockname()[1] == port


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_address_is_never_free_while_it_changes_its_listener(protocol: str, tmp_path: Path) -> None:
    intakes = create_intakes(settings(tmp_path, {"name": "a", "protocol": protocol}))
    port = intakes["a"].sock.getsockname()[1]
    swap = ListenerSwap(intakes, settings(tmp_path, {"name": "b", "protocol": protocol, "port": port}))
    intakes["a"].sock.close()
    kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
    with socket.socket(type=kind) as competitor:
        competitor.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            competitor.bind(("127.0.0.1", port))
    swap._withdraw()


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_partly_occupied_address_is_refused_before_anything_changes(protocol: str, tmp_path: Path) -> None:
    intakes = create_intakes(settings(tmp_path, {"name": "a", "protocol": protocol}))
    port = intakes["a"].sock.getsockname()[1]
    with socket.socket(type=socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM) as holder:
        holder.bind(("127.0.0.2", port))
        wide = {"name": "a", "protocol": protocol, "port": port, "host": "0.0.0.0"}
        with pytest.raises(CannotListen, match="listener 'a'"):
            ListenerSwap(intakes, settings(tmp_path, wide))
    assert intakes["a"].sock.getsockname()[1] == port
    intakes["a"].close()


def test_swap_without_enough_descriptors_changes_nothing(tmp_path: Path) -> None:
    """For each number of free descriptors the swap fails without a change, or is carried out."""
    before = settings(tmp_path, {"name": "stays"}, {"name": "goes"}, {"name": "lines", "protocol": "tcp"})
    intakes = create_intakes(before)
    ports = {name: intake.sock.getsockname()[1] for name, intake in intakes.items()}
    forwarded = [{"type": "log"}, {"type": "discard"}, {"type": "discard", "name": "second"}]
    after = settings(
        tmp_path,
        {"name": "stays", "handlers": forwarded},
        {"name": "comes", "port": ports["goes"], "handlers": forwarded},
        {"name": "others", "protocol": "tcp", "port": ports["lines"], "host": "0.0.0.0"},
        {"name": "new", "handlers": forwarded},
    )
    open_descriptors, failures, reasons = descriptors(), 0, set()
    while True:
        with few_descriptors(failures):
            try:
                swap = ListenerSwap(intakes, after)
                break
            except CannotListen as error:
                reasons.add(str(error).rpartition(": ")[2])
        failures += 1
        assert descriptors() == open_descriptors
    assert reasons == {"Too many open files"}
    assert failures == 12  # three sockets, eventfds of three logs and six forwarders
    with few_descriptors(0):
        new_intakes = swap.carry_out(lambda: None)
    assert list(new_intakes) == ["stays", "comes", "others", "new"]
    assert new_intakes["comes"].sock.getsockname()[1] == ports["goes"]
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.sendto(b"arrives", ("127.0.0.1", ports["goes"]))
        assert new_intakes["comes"].sock.recv(100) == b"arrives"
    assert new_intakes["others"].sock.getsockname() == ("0.0.0.0", ports["lines"])  # its receiver listens
    for intake in new_intakes.values():
        intake.close()


def create_intakes(config: Settings) -> dict[str, ListenerProcesses]:
    config.buffers.mkdir(exist_ok=True)
    return {listener.name: ListenerProcesses(listener, config.buffer, config.buffers) for listener in config.listener}


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@contextlib.contextmanager
def few_descriptors(count: int) -> Iterator[None]:
    """Leave this process ``count`` descriptors that it can still open."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    holes = [os.open(os.devnull, os.O_RDONLY) for _ in range(64)]  # numbers that earlier descriptors had
    highest = max(holes) + 1
    for hole in holes[len(holes) - count :]:
        os.close(hole)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for hole in holes[: len(holes) - count]:
            os.close(hole)


def test_local_socket_changes_its_mode_keeps_its_listener_and_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    local = {"name": "host", "protocol": "unix_datagram", "path": str(path)}
    intakes = create_intakes(settings(tmp_path, local, {"name": "stays"}))
    sock = intakes["host"].sock
    for change in ({"name": "renamed"}, {"protocol": "unix_stream"}):
        with pytest.raises(CannotListen, match="'host' has it as unix_datagram; stop penstock and start it"):
            ListenerSwap(intakes, settings(tmp_path, local | change, {"name": "stays"}))
        assert path.is_socket()
    changed = ListenerSwap(intakes, settings(tmp_path, {**local, "mode": "0600"}, {"name": "stays"}))
    intakes = changed.carry_out(lambda: None)
    try:
        assert intakes["host"].sock is sock
        assert path.stat().st_mode & 0o777 == 0o600
        removed = ListenerSwap(intakes, settings(tmp_path, {"name": "stays"}))
        assert removed.lines == ["listener 'host' is removed"]
        intakes = removed.carry_out(lambda: None)
        assert sock.fileno() == -1
    finally:
        for intake in intakes.values():
            for child in intake.children:
                child.stop()
                child.wait(0)
            intake.close()
