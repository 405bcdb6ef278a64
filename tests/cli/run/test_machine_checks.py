"""Checks of ``penstock doctor`` on this machine, each with its remedy."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import shutil
import socket
import time
from collections import namedtuple
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.run import machine_checks
from penstock.cli.run.machine_checks import (
    Finding,
    addresses,
    clock,
    clock_jump,
    descriptors,
    disk,
    file_system,
    java,
    memory,
    memory_limit,
)
from penstock.config import Settings
from penstock.java.runtime import Java, NoJava
from penstock.log import Log
from penstock.testing import FakeClock

Usage = namedtuple("Usage", "total used free")
GIB = 1 << 30


def settings(folder: Path, port: int = 0) -> Settings:
    log = {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "flight": ""}
    listeners = [{"name": "a", "protocol": "tcp", "port": port}, {"name": "b", "protocol": "udp", "port": 0}]
    console = {"http": "127.0.0.1:0"}
    return Settings.model_validate({"data_dir": str(folder), "log": log, "listener": listeners, "console": console})


def named(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.check: finding for finding in findings}


def test_address_in_use_is_bad_with_the_command_that_finds_its_process(tmp_path: Path) -> None:
    with socket.socket() as first:
        first.bind(("127.0.0.1", 0))
        first.listen()
        port = first.getsockname()[1]
        findings = named(list(addresses(settings(tmp_path, port))))
    assert {check: finding.state for check, finding in findings.items()} == {
        "address of listener 'a'": "bad",
        "address of listener 'b'": "good",
        "address log.grpc": "good",
        "address log.http": "good",
        "address console.http": "good",
    }
    finding = findings["address of listener 'a'"]
    assert finding.text.startswith(f"cannot listen on tcp 127.0.0.1:{port}: Address already in use by process ")
    assert f"ss -tlpn 'sport = :{port}'" in finding.advice


def test_addresses_of_the_own_penstock_are_good(tmp_path: Path) -> None:
    (tmp_path / "endpoints.json").write_text(json.dumps({"supervisor": os.getpid(), "pids": {}, "listeners": {}}))
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (finding,) = addresses(settings(tmp_path))
    os.close(lock)
    assert (finding.state, finding.text) == ("good", f"penstock runs on this data directory (process {os.getpid()})")
    assert len(list(addresses(settings(tmp_path)))) > 1


@pytest.mark.parametrize(("free", "state"), [(0, "bad"), (GIB, "warning"), (9 * GIB, "good")])
def test_disk_check_counts_log_buffers_and_spare_space(
    free: int, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(9 * GIB, 0, free))
    finding = named(list(disk(settings(tmp_path / "new"))))["disk"]
    assert finding.state == state
    assert f"log buffers take {2 * 3 * (64 << 20):,} more" in finding.text
    assert ("du -xh" in finding.advice) == (state != "good")


def test_read_only_data_directory_is_reported_with_chown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert named(list(disk(settings(tmp_path))))["data_dir"].state == "good"
    monkeypatch.setattr(os, "access", lambda *_: False)
    finding = named(list(disk(settings(tmp_path / "new" / "er"))))["data_dir"]
    assert (finding.state, finding.text) == ("bad", f"{tmp_path} cannot be written by this user")
    assert finding.advice.startswith("sudo chown ")


def test_file_system_is_that_of_the_innermost_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    share = tmp_path / "a share"
    share.mkdir()
    mounts = tmp_path / "mounts"
    escaped = str(share).replace(" ", "\\040")
    mounts.write_text(f"overlay / overlay rw 0 0\nhost:/x {escaped} nfs4 rw 0 0\n")
    assert file_system(share, mounts) == "nfs4"
    assert file_system(tmp_path, mounts) == "overlay"
    assert file_system(tmp_path, tmp_path / "none") == ""
    monkeypatch.setattr(machine_checks, "file_system", lambda _: "nfs4")
    finding = named(list(disk(settings(tmp_path))))["file system"]
    assert (finding.state, "local disk" in finding.advice) == ("bad", True)


def test_java_is_reported_with_its_version_or_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_checks, "find_java", lambda: Java(Path("/java"), 21))
    assert next(java(Settings())) == Finding("Java", "good", "Java 21 in /java")

    def no_java() -> Java:
        raise NoJava("no Java 17 or later on this machine: install one")

    monkeypatch.setattr(machine_checks, "find_java", no_java)
    finding = next(java(Settings()))
    assert (finding.state, finding.text) == ("bad", "no Java 17 or later on this machine")
    assert "apt install" in finding.advice


@pytest.mark.parametrize(("answer", "state"), [(0, "good"), (machine_checks.TIME_ERROR, "warning"), (None, "warning")])
def test_unsynchronised_clock_is_a_warning(answer: int | None, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine_checks.clock_state() in (*range(6), None)
    monkeypatch.setattr(machine_checks, "clock_state", lambda: answer)
    finding = next(clock(Settings()))
    assert (finding.state, bool(finding.advice)) == (state, state != "good")


@pytest.mark.survives("supervisor", "wrong clock")
def test_clock_jump_is_found_from_the_stored_state(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    assert list(clock_jump(settings)) == []
    ahead = FakeClock(time.time() + 30 * 86_400)
    Log(settings.topics, clock=ahead).close()
    (finding,) = clock_jump(settings)
    assert (finding.state, finding.advice) == ("bad", "penstock clock --accept")
    assert "30 days behind what it should say" in finding.text
    Log(settings.topics, clock=FakeClock(time.time())).close()
    (settings.topics / "CLOCK").unlink()
    Log(settings.topics).close()
    assert list(clock_jump(settings)) == []


@pytest.mark.parametrize(("hard", "state"), [(1024, "warning"), (65536, "good"), (resource.RLIM_INFINITY, "good")])
def test_low_limit_of_file_descriptors_is_a_warning(hard: int, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (hard, hard))
    finding = next(descriptors(Settings()))
    assert finding.state == state
    assert ("ulimit" in finding.advice) == (state == "warning")


@pytest.mark.parametrize("layout", ["version 2", "version 1", "container", "no limit", "no groups"])
def test_memory_limit_is_that_of_the_control_group(layout: str, tmp_path: Path) -> None:
    groups, root = tmp_path / "cgroup", tmp_path / "fs"
    if layout != "no groups":
        groups.write_text("4:memory:/a/b\n" if layout == "version 1" else "4:cpu:/a\n0::/a/b\n")
    folder = {"version 2": "a", "version 1": "memory/a/b", "no limit": "a"}.get(layout, ".")
    (root / folder).mkdir(parents=True)
    limit = root / folder / ("memory.limit_in_bytes" if layout == "version 1" else "memory.max")
    limit.write_text("max\n" if layout.startswith("no") else "536870912\n")
    expected = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if layout.startswith("no") else 1 << 29
    assert memory_limit(groups, root) == expected


@pytest.mark.parametrize(("limit", "state"), [(1 << 29, "warning"), (4 << 30, "good")])
def test_too_little_memory_for_spark_is_a_warning(limit: int, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_checks, "memory_limit", lambda: limit)
    (finding,) = memory(Settings())
    assert (finding.state, "penstock up --no-spark" in finding.advice) == (state, state == "warning")


@given(st.binary(max_size=100) | st.lists(st.sampled_from([b"a", b"/", b"ext4", b" ", b"\n", b"\\040"])).map(b"".join))
def test_any_list_of_mounts_is_parsed(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    mounts = tmp_path_factory.mktemp("proc") / "mounts"
    mounts.write_bytes(data)
    assert isinstance(file_system(mounts, mounts), str)
