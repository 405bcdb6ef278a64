"""The listeners of a new configuration in the place of the old ones, and what fails before anything changes."""

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
    given = [{"protocol": "udp", "so_rcvbuf": "64KiB", "port": 0, **listener} for listener in listeners]
    return Settings.model_validate({"data_dir": str(folder), "listener": given})


@pytest.fixture
def intakes(tmp_path: Path) -> Iterator[dict[str, ListenerProcesses]]:
    """Two listeners whose processes are not started."""
    before = settings(tmp_path, {"name": "a"}, {"name": "b"})
    before.buffers.mkdir()
    made = {one.name: ListenerProcesses(one, before.buffer, before.buffers) for one in before.listener}
    yield made
    for intake in made.values():
        if intake.sock.fileno() >= 0:
            intake.close()


def test_listeners_that_are_the_same_are_not_touched(intakes: dict[str, ListenerProcesses], tmp_path: Path) -> None:
    swap = ListenerSwap(intakes, settings(tmp_path, {"name": "a"}, {"name": "b"}))
    assert swap.lines == []
    assert swap.carry_out(lambda: None) == intakes


def test_a_full_disk_does_not_stop_what_was_begun(
    intakes: dict[str, ListenerProcesses],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(swap_module, "settle_removed", full)
    found = ListenerSwap(intakes, settings(tmp_path, {"name": "a"})).carry_out(lambda: None)
    assert (list(found), caplog.messages) == (["a"], [f"{tmp_path / 'buffers'}: No space left on device"])


def test_what_becomes_of_which_listener_is_told(intakes: dict[str, ListenerProcesses], tmp_path: Path) -> None:
    swap = ListenerSwap(intakes, settings(tmp_path, {"name": "a", "protocol": "tcp"}, {"name": "c"}))
    assert swap.lines == ["listener 'c' is added", "listener 'b' is removed", "listener 'a' is changed"]
    for intake in swap._opened:
        intake.close()


def test_an_address_that_cannot_be_had_leaves_everything_as_it_was(
    intakes: dict[str, ListenerProcesses], tmp_path: Path
) -> None:
    sockets = {name: intake.sock.fileno() for name, intake in intakes.items()}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        own = {"name": "d", "protocol": "tcp", "port": taken.getsockname()[1]}
        with pytest.raises(CannotListen, match="listener 'd'"):
            ListenerSwap(intakes, settings(tmp_path, {"name": "c"}, own))
    assert {name: intake.sock.fileno() for name, intake in intakes.items()} == sockets


def test_a_listener_that_goes_leaves_its_address_to_one_that_comes(
    intakes: dict[str, ListenerProcesses], tmp_path: Path
) -> None:
    port = intakes["a"].sock.getsockname()[1]
    new = settings(tmp_path, {"name": "renamed", "port": port}, {"name": "b"})
    swap = ListenerSwap(intakes, new)
    started: list[str] = []
    found = swap.carry_out(lambda: started.append("tick"))
    try:
        assert list(found) == ["renamed", "b"]
        assert found["renamed"].sock.getsockname()[1] == port
        assert found["b"] is intakes["b"]
        assert found["renamed"].receiver.pid
        assert intakes["a"].sock.fileno() == -1
    finally:
        for child in found["renamed"].children:
            child.stop()
            child.wait(0)
        found["renamed"].close()


def test_a_listener_that_moves_to_a_host_that_is_not_ours_is_refused_before_it_has_gone(
    intakes: dict[str, ListenerProcesses], tmp_path: Path
) -> None:
    port = intakes["a"].sock.getsockname()[1]
    for host in ("192.0.2.77", "127.0.0..1"):
        with pytest.raises(CannotListen, match="listener 'a'"):
            ListenerSwap(intakes, settings(tmp_path, {"name": "a", "host": host, "port": port}, {"name": "b"}))
    assert intakes["a"].sock.getsockname()[1] == port


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_an_address_that_goes_over_to_another_listener_is_never_free_for_others(protocol: str, tmp_path: Path) -> None:
    intakes = made(settings(tmp_path, {"name": "a", "protocol": protocol}))
    port = intakes["a"].sock.getsockname()[1]
    swap = ListenerSwap(intakes, settings(tmp_path, {"name": "b", "protocol": protocol, "port": port}))
    intakes["a"].sock.close()
    kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
    with socket.socket(type=kind) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
    swap._withdraw()


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_an_address_that_another_program_has_in_part_is_refused_before_anything_changes(
    protocol: str, tmp_path: Path
) -> None:
    intakes = made(settings(tmp_path, {"name": "a", "protocol": protocol}))
    port = intakes["a"].sock.getsockname()[1]
    with socket.socket(type=socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.2", port))
        wide = {"name": "a", "protocol": protocol, "port": port, "host": "0.0.0.0"}
        with pytest.raises(CannotListen, match="listener 'a'"):
            ListenerSwap(intakes, settings(tmp_path, wide))
    assert intakes["a"].sock.getsockname()[1] == port
    intakes["a"].close()


def test_a_swap_that_fails_for_want_of_descriptors_changes_nothing(tmp_path: Path) -> None:
    """For each number of descriptors that are left: it fails with everything as before, or it is carried out."""
    before = settings(tmp_path, {"name": "stays"}, {"name": "goes"}, {"name": "lines", "protocol": "tcp"})
    intakes = made(before)
    ports = {name: one.sock.getsockname()[1] for name, one in intakes.items()}
    forwarded = [{"type": "log"}, {"type": "discard"}, {"type": "discard", "name": "second"}]
    after = settings(
        tmp_path,
        {"name": "stays", "handlers": forwarded},
        {"name": "comes", "port": ports["goes"], "handlers": forwarded},
        {"name": "others", "protocol": "tcp", "port": ports["lines"], "host": "0.0.0.0"},
        {"name": "new", "handlers": forwarded},
    )
    known, failures, told = descriptors(), 0, set()
    while True:
        with few_descriptors(failures):
            try:
                swap = ListenerSwap(intakes, after)
                break
            except CannotListen as error:
                told.add(str(error).rpartition(": ")[2])
        failures += 1
        assert descriptors() == known
    assert told == {"Too many open files"}
    assert failures == 12  # three sockets, eventfds of three logs and six forwarders
    with few_descriptors(0):
        found = swap.carry_out(lambda: None)
    assert list(found) == ["stays", "comes", "others", "new"]
    assert found["comes"].sock.getsockname()[1] == ports["goes"]
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.sendto(b"arrives", ("127.0.0.1", ports["goes"]))
        assert found["comes"].sock.recv(100) == b"arrives"
    with socket.create_connection(("127.0.0.1", ports["lines"])):
        assert found["others"].sock.accept()
    for one in found.values():
        one.close()


def made(of: Settings) -> dict[str, ListenerProcesses]:
    of.buffers.mkdir(exist_ok=True)
    return {one.name: ListenerProcesses(one, of.buffer, of.buffers) for one in of.listener}


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@contextlib.contextmanager
def few_descriptors(count: int) -> Iterator[None]:
    """Leaves this process so many descriptors that it may still open."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    holes = [os.open(os.devnull, os.O_RDONLY) for _ in range(64)]  # where older ones were closed
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
