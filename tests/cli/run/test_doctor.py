"""Findings of ``penstock doctor``."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import httpx
import pytest

from penstock.cli.run import doctor
from penstock.cli.run.doctor import receive_buffers
from penstock.cli.run.machine_checks import Finding
from penstock.config import ListenerConfig, Settings, load
from penstock.landing.table_paths import Layout
from penstock.testing.pipe import Pipe, wait_until
from penstock.wire.plog.cutting import fragment


def settings(so_rcvbuf: int) -> Settings:
    udp = ListenerConfig(name="small", protocol="udp", so_rcvbuf=so_rcvbuf)
    return Settings(listener=(udp, ListenerConfig(name="lines", protocol="tcp", so_rcvbuf=so_rcvbuf)))


def test_granted_receive_buffer_of_udp_listener_is_good() -> None:
    (finding,) = receive_buffers(settings(65_536))
    assert (finding.check, finding.state) == ("receive buffer of listener 'small'", "good")
    assert finding.text == "65,536 bytes granted, about 102 small datagrams"


def test_smaller_receive_buffer_is_a_warning_with_sysctl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "granted_buffer", lambda sock: 212_992)  # what a stock kernel grants
    (finding,) = receive_buffers(settings(4 << 20))
    assert finding.state == "warning"
    assert "grants 212,992 of 4,194,304 requested bytes, about 332 small datagrams" in finding.text
    assert finding.advice == "allow more: sysctl -w net.core.rmem_max=4194304"


def test_excessive_receive_buffer_is_a_warning() -> None:
    (finding,) = receive_buffers(settings(1 << 30))
    assert (finding.state, finding.advice) == ("warning", "allow more: sysctl -w net.core.rmem_max=1073741824")


@pytest.mark.parametrize(("requested", "status"), [("64KiB", 0), ("1GiB", 1)])
def test_doctor_prints_findings_and_exits_with_status(
    tmp_path: Path, requested: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "CHECKS", (receive_buffers,))
    names = ("events-udp", "syslog-udp")
    options = [f"data_dir={tmp_path}", *(f"listener.{name}.so_rcvbuf={requested}" for name in names)]
    with pytest.raises(SystemExit) as exit_info:
        doctor.doctor(load(overrides=options, environment={}), as_json=True)
    findings = [Finding(**finding) for finding in json.loads(capsys.readouterr().out)]
    assert exit_info.value.code == status
    assert {finding.state for finding in findings} == {"warning" if status else "good"}
    with pytest.raises(SystemExit):
        doctor.doctor(load(overrides=options, environment={}), as_json=False)
    printed = capsys.readouterr().out
    assert all(finding.text in printed and finding.advice in printed for finding in findings)


def test_doctor_runs_every_check(tmp_path: Path) -> None:
    options = [f"data_dir={tmp_path}", *(f"listener.{x}.port=0" for x in ("events-udp", "syslog-tcp"))]
    command = [sys.executable, "-m", "penstock.cli.main", "doctor", "--json", *(p for o in options for p in ("-o", o))]
    process = subprocess.run(command, capture_output=True, check=False, text=True)
    findings = {finding["check"]: finding for finding in json.loads(process.stdout)}
    expected = {"data_dir", "disk", "file system", "Java", "clock", "file descriptors", "address log.http"}
    assert expected <= findings.keys(), process.stderr
    problems = [finding for finding in findings.values() if finding["state"] != "good"]
    assert all(finding["advice"] for finding in problems)
    assert process.returncode == (1 if problems else 0)


def test_causes_of_recent_losses_are_named_with_their_remedy(tmp_path: Path) -> None:
    pipe = Pipe(
        tmp_path,
        "alarms.command=/bin/false",
        "alarms.every=300ms",
        "alarms.retry_for=0s",
        "listener.events-udp.so_rcvbuf=64KiB",
        "listener.events-udp.defrag.expire_time=1s",
    )
    pipe.start()
    try:
        parts = fragment(b"x" * 4000, 1)
        pipe.datagrams(*parts[:-1])  # a missing fragment
        pipe.datagrams(*(part[:-1] + b"y" for part in fragment(b"x" * 4000, 2)))  # a bad checksum
        wait_until(lambda: pipe.counts("events-udp")["incomplete.expired"], what="the message expires")
        with pipe.paused("receiver events-udp"):
            pipe.datagrams(*[b"x" * 1000] * 2000)
            wait_until(
                lambda: pipe.get("/stat")["listeners"]["events-udp"]["silent_s"] > 3.2, what="it counts as stopped"
            )
            (stopped,) = [f for f in findings_of(pipe) if "receiver stopped for" in f["text"]]
            assert stopped["advice"].startswith(f"continue it: kill -CONT {pipe.pid('receiver events-udp')}")
        wait_until(lambda: pipe.counts("events-udp")["kernel_dropped"], what="drops are counted")
        wait_until(lambda: 'result="failed"} 0' not in metrics(pipe), what="an alarm fails")
        wait_until(lambda: any("was stopped for" in f["text"] for f in findings_of(pipe)), what="the cause is known")
        found = {f["text"]: f["advice"] for f in findings_of(pipe)}
        (drops,) = [text for text in found if "kernel dropped" in text and text.startswith("events-udp")]
        assert "the receive buffer holds 65,536 bytes, net.core.rmem_max is " in drops
        assert found[drops].startswith("find what stopped the receiver")
        (fragments,) = [text for text in found if "fragment" in text]
        assert "check the network for loss" in found[fragments]
        (checksum,) = [text for text in found if "checksum" in text]
        assert "check the sender and the network" in found[checksum]
        (alarms,) = [text for text in found if "failed since the daemon's start" in text]
        assert "does not accept alarms" in found[alarms]
    finally:
        pipe.stop()


def metrics(pipe: Pipe) -> str:
    return httpx.get(f"http://{pipe.http}/metrics", timeout=30).text


def findings_of(pipe: Pipe) -> list[dict[str, str]]:
    settings = load(overrides=pipe.overrides, environment={})
    return [asdict(finding) for finding in doctor.last_hour(settings) if finding.state != "good"]


def test_list_of_damaged_files_that_cannot_be_read_is_a_warning(tmp_path: Path) -> None:
    loaded = load(overrides=[f"data_dir={tmp_path}"], environment={})
    Layout.for_tables(loaded.tables).damaged.mkdir(parents=True)
    (finding,) = doctor.tables(loaded)
    assert (finding.check, finding.state) == ("tables", "warning")
    assert "cannot be read: " in finding.text
