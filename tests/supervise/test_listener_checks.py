"""Listeners and handlers are checked before a start: bad settings stop it, a slow handler does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.config import ConfigError, ListenerConfig, Settings, load
from penstock.supervise import listener_checks
from penstock.supervise.listener_checks import (
    check_console_address,
    check_handlers,
    check_listeners,
    check_ports,
    processor_wait_s,
    warn_of_idle_handlers,
)
from penstock.testing.pipe import wait_until

SITE = Path(__file__).parent.parent / "sinks" / "site"


@pytest.fixture(autouse=True)
def site(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the package with the handlers, here and in child processes."""
    monkeypatch.syspath_prepend(str(SITE))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SITE), *sys.path]))


def listener(*handlers: dict[str, Any]) -> ListenerConfig:
    return ListenerConfig.model_validate({"name": "a", "protocol": "udp", "handlers": handlers})


def slow(folder: Path, seconds: float) -> dict[str, Any]:
    return {"type": "slow", "folder": str(folder), "seconds": seconds}


def test_invalid_handler_settings_stop_the_start() -> None:
    with pytest.raises(ConfigError, match=r"listener\.a\.handlers\.broken\.settings: no"):
        check_handlers([listener({"type": "broken", "reason": "no"})])


def test_interrupt_ends_the_check_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    # At the first instruction of the check: its code is not loaded yet.
    (tmp_path / "sitecustomize.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    check_handlers([listener({"type": "broken", "reason": "no"})])
    assert (caplog.messages, capfd.readouterr().err) == ([], "")


def test_slow_handler_is_started_without_a_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener_checks, "CHECK_TIMEOUT_S", 0.5)
    ticks: list[int] = []
    check_handlers([listener(slow(tmp_path, 3600))], lambda: ticks.append(1))
    assert caplog.messages == ["handlers (slow) are not created after 0.5 s; they are started without a check"]
    assert ticks


def test_invalid_settings_before_a_slow_handler_stop_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def end_time_limit() -> None:
        if (tmp_path / "begun").exists():
            monkeypatch.setattr(listener_checks, "CHECK_TIMEOUT_S", 0.0)

    monkeypatch.setattr(listener_checks, "CHECK_TIMEOUT_S", 300.0)
    with pytest.raises(ConfigError, match=r"handlers\.broken\.settings: no"):
        check_handlers([listener({"type": "broken", "reason": "no"}, slow(tmp_path, 3600))], end_time_limit)


def test_time_without_a_processor_does_not_count() -> None:
    only = {min(os.sched_getaffinity(0))}
    busy = [
        subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, {only})\nwhile True: pass"])
        for _ in range(3)
    ]
    try:
        wait_until(lambda: processor_wait_s(busy[0].pid) > 0.3, what="the process waits for a processor")
    finally:
        for each in busy:
            each.kill()
            each.wait()
    assert processor_wait_s(busy[0].pid) == 0


def test_listener_whose_messages_fit_no_frame_is_refused() -> None:
    large = ListenerConfig.model_validate({"name": "a", "protocol": "tcp", "max_line": "64MiB"})
    with pytest.raises(ConfigError, match=r"buffer\.term_length: .* that listener\.a\.max_line may need"):
        check_listeners(Settings(), [large])


def test_handler_behind_one_that_does_not_propagate_is_named(caplog: pytest.LogCaptureFixture) -> None:
    servers = {"bootstrap.servers": "127.0.0.1:9092"}
    kafka = {"type": "kafka", "default_topic": "t", "producer": servers, "propagate": False}
    handlers = (kafka, {"type": "log"})
    warn_of_idle_handlers(Settings(listener=(listener(*handlers),)))
    assert caplog.messages == ["listener 'a': handler 'log' gets nothing: 'kafka' does not propagate"]


def listeners_at(*addresses: dict[str, object], **more: object) -> Settings:
    named = [{"name": f"l{number}", "port": 7} | address for number, address in enumerate(addresses)]
    return Settings.model_validate({"listener": named, **more})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"protocol": "http"}, {"protocol": "tcp"}),
        ({"protocol": "udp"}, {"protocol": "udp", "codec": "syslog"}),
        ({"protocol": "udp", "receivers": 2}, {"protocol": "udp"}),
        ({"protocol": "unix_stream", "path": "/tmp/s"}, {"protocol": "unix_stream", "path": "/tmp/s"}),
        ({"protocol": "udp", "host": "0.0.0.0"}, {"protocol": "udp"}),
        ({"protocol": "otlp_grpc", "host": "localhost"}, {"protocol": "http"}),
        ({"protocol": "tcp", "host": "::1"}, {"protocol": "tcp", "host": "::"}),
    ],
)
def test_two_listeners_with_one_address_are_refused(first: dict[str, object], second: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"^listener\.l1: listens on .* as 'l0' does: give it another port"):
        check_ports(listeners_at(first, second))


def test_addresses_of_their_own_are_accepted() -> None:
    check_ports(
        listeners_at(
            {"protocol": "udp", "receivers": 3},
            {"protocol": "udp", "receivers": 2, "host": "0.0.0.0"},
            {"protocol": "tcp"},
            {"protocol": "tcp", "host": "127.0.0.2"},
            {"protocol": "tcp", "host": "::1"},
            {"protocol": "udp", "port": 0},
            {"protocol": "udp", "port": 0},
            {"protocol": "udp", "port": 8844},
        )
    )


@pytest.mark.parametrize(
    ("key", "port"),
    [
        ("log.http", 8844),
        ("log.grpc", 8845),
        ("log.flight", 1),
        ("log.kafka", 2),
        ("console.http", 8841),
        ("sql.postgres", 3),
        ("sql.flight_sql", 4),
    ],
)
def test_listener_at_the_address_of_a_server_is_refused(key: str, port: int) -> None:
    servers = {"log": {"flight": "127.0.0.1:1", "kafka": "127.0.0.1:2"}}
    servers["sql"] = {"postgres": "127.0.0.1:3", "flight_sql": "127.0.0.1:4"}
    servers["console"] = {"http": "127.0.0.1:8841"}
    settings = listeners_at({"protocol": "http", "host": "localhost", "port": port}, **servers)
    with pytest.raises(
        ConfigError, match=rf"^listener\.l0: listens on localhost:{port} as {key} does: give it another"
    ):
        check_listeners(settings, ())


def test_default_address_of_the_console_concerns_only_commands_that_start_it() -> None:
    settings = load(None, ["sql.postgres=localhost:8840"], {})
    check_ports(settings)
    with pytest.raises(ConfigError, match=r"console\.http: 127\.0\.0\.1:8840 is the address of sql\.postgres: choose"):
        check_console_address(settings)
    settings = load(None, ["listener.events-tcp.port=8840"], {})
    check_ports(settings)
    with pytest.raises(ConfigError, match=r"console\.http: .* is the address of listener\.events-tcp: choose another"):
        check_console_address(settings)
    check_console_address(load(None, ["listener.events-udp.port=8840"], {}))
