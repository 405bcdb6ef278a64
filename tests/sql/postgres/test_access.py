"""Rights of a client: asked of the log daemon, again after a second."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from penstock.config import SecurityConfig, Settings
from penstock.proof.posts import ledger_client
from penstock.sql.postgres import access
from penstock.sql.postgres.access import MAX_AGE_S, FollowedTables, Reader, Rights, RightsUnknown, WrongPassword
from tests.server.running import Running
from tests.spark.spark_helpers import append

TOKEN = "a-token-of-16-characters"
TOKENS = {"reader": {"token": TOKEN, "read": ["t"]}}


def settings(running: Running) -> Settings:
    log = {"http": running.bound.http, "grpc": running.bound.grpc}
    return Settings.model_validate({"security": {"tokens": TOKENS}, "log": log})


def test_revoked_token_reads_nothing_after_a_second(tmp_path: Path) -> None:
    append(tmp_path / "topics", "t", [b"x"])
    append(tmp_path / "topics", "other", [b"x"])
    running = Running(tmp_path / "topics", SecurityConfig.model_validate({"tokens": TOKENS}))
    now_s = 0.0
    try:
        rights = Rights(settings(running))
        reader = Reader(rights, TOKEN, lambda: now_s)
        assert reader.topics() == {"t"}
        running.api.guard.replace(SecurityConfig.model_validate({"tokens": {"other": {"token": TOKEN * 2}}}).tokens)
        assert reader.topics() == {"t"}
        now_s = MAX_AGE_S
        with pytest.raises(WrongPassword):
            reader.topics()
        with pytest.raises(WrongPassword):
            rights.readable("a token\nthat is not a header")
    finally:
        running.stop()
    with pytest.raises(RightsUnknown, match="the log daemon does not answer"):
        rights.readable(TOKEN)
    rights.close()


def test_everything_is_readable_without_tokens() -> None:
    rights = Rights(Settings())
    assert not rights.need_token
    assert Reader(rights, "").topics() is None
    rights.close()


def test_silent_daemon_delays_one_query_and_not_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "FOLLOW_INTERVAL_S", 0.0)
    monkeypatch.setattr(ledger_client, "TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        host, port = server.getsockname()
        tables = FollowedTables(Settings.model_validate({"log": {"http": f"{host}:{port}"}}))
        for _ in range(3):
            assert tables.current().pipeline.typed == {}
        tables.close()
        server.accept()[0].close()
        with pytest.raises(TimeoutError):
            server.accept()
