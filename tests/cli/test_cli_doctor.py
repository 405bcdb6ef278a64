"""What the doctor finds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli import doctor
from penstock.cli.doctor import Finding, receive_buffers
from penstock.config import ListenerConfig, Settings


def settings(so_rcvbuf: int) -> Settings:
    udp = ListenerConfig(name="small", protocol="udp", so_rcvbuf=so_rcvbuf)
    return Settings(listener=(udp, ListenerConfig(name="lines", protocol="tcp", so_rcvbuf=so_rcvbuf)))


def test_a_granted_receive_buffer_is_good_and_only_udp_needs_one() -> None:
    (finding,) = receive_buffers(settings(65_536))
    assert (finding.check, finding.state) == ("receive buffer of listener 'small'", "good")
    assert finding.text == "65,536 bytes granted, about 102 small datagrams"


def test_a_smaller_one_comes_with_the_sysctl_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "granted_buffer", lambda sock: 212_992)  # what a stock kernel grants
    (finding,) = receive_buffers(settings(4 << 20))
    assert finding.state == "warning"
    assert "grants 212,992 of 4,194,304 bytes asked for, about 332 small datagrams" in finding.text
    assert finding.advice == "allow more with: sysctl -w net.core.rmem_max=4194304"


def test_more_than_any_kernel_grants_is_found_without_help() -> None:
    (finding,) = receive_buffers(settings(1 << 30))
    assert (finding.state, finding.advice) == ("warning", "allow more with: sysctl -w net.core.rmem_max=1073741824")


@pytest.mark.parametrize(("asked", "status"), [("64KiB", 0), ("1GiB", 1)])
def test_the_command_prints_findings_and_fails_where_something_is_wrong(
    tmp_path: Path, asked: str, status: int
) -> None:
    names = ("events-udp", "syslog-udp")
    options = [part for name in names for part in ("-o", f"listener.{name}.so_rcvbuf={asked}")]
    command = [sys.executable, "-m", "penstock.cli.main", "doctor", "-o", f"data_dir={tmp_path}", *options]
    done = subprocess.run([*command, "--json"], capture_output=True, check=False)
    findings = [Finding(**finding) for finding in json.loads(done.stdout)]
    buffers = [finding for finding in findings if finding.check.startswith("receive buffer")]
    assert done.returncode >= status
    assert {finding.state for finding in buffers} == {"warning" if status else "good"}
    shown = subprocess.run(command, capture_output=True, check=False, text=True).stdout
    assert all(finding.text in shown for finding in buffers)
