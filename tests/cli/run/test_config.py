"""``penstock config``: write, extend and explain the configuration."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.command_line import build
from penstock.cli.run.config import config


def test_explain_rejects_unknown_key() -> None:
    for more in ([], ["--json"]):
        result = CliRunner().invoke(config, ["explain", "nosuch.key", *more])
        assert (result.exit_code, result.stdout) == (2, "")
        assert "no key contains 'nosuch.key'" in " ".join(result.stderr.split())
    assert "message_size_limit" in CliRunner().invoke(config, ["explain", "message_size"]).stdout


def test_explain_changed_reports_that_nothing_changed() -> None:
    result = CliRunner().invoke(config, ["explain", "message_size", "--changed"])
    assert (result.exit_code, result.stdout) == (0, "every key has its default\n")


def test_init_writes_a_file_that_check_accepts_and_never_replaces_one(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    written = CliRunner().invoke(config, ["init", "--config", str(file)])
    assert (written.exit_code, written.stderr) == (0, "")
    assert CliRunner().invoke(config, ["check", "--config", str(file)]).exit_code == 0
    file.write_text("# mine\n")
    again = CliRunner().invoke(config, ["init", "--config", str(file)])
    assert (again.exit_code, again.stderr.count("\n"), file.read_text()) == (2, 1, "# mine\n")


@pytest.mark.parametrize("command", [["init"], ["add", "listener", "--name", "w", "--protocol", "http", "--port", "1"]])
def test_folder_that_cannot_be_written_is_named(tmp_path: Path, command: list[str]) -> None:
    options = ["--config", str(tmp_path / "nosuch" / "p.toml")]
    outcome = CliRunner().invoke(build(["config", "add"]), ["config", *command, *options])
    cause = f"penstock: {tmp_path}/nosuch: No such file or directory: p.toml cannot be written there; "
    assert (outcome.exit_code, outcome.stderr) == (2, f"{cause}name another file with --config\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root creates files of others")
@pytest.mark.parametrize("first", ["init", "add"])
def test_configuration_that_root_writes_belongs_to_the_account_of_its_folder(tmp_path: Path, first: str) -> None:
    os.chown(tmp_path, 12345, 23456)
    file = tmp_path / "penstock.toml"
    added = ["add", "listener", "--protocol", "http", "--config", str(file)]
    commands = {"init": ["init", "--config", str(file)], "add": [*added, "--name", "a", "--port", "4318"]}
    for command in (commands[first], [*added, "--name", "b", "--port", "4317"]):
        assert CliRunner().invoke(build(["config", "add"]), ["config", *command]).exit_code == 0
        assert (file.stat().st_uid, file.stat().st_gid, file.stat().st_mode & 0o777) == (12345, 23456, 0o640)
    os.chown(file, 0, 23456)
    assert (
        CliRunner().invoke(build(["config", "add"]), ["config", *added, "--name", "c", "--port", "4316"]).exit_code == 0
    )
    assert (file.stat().st_uid, file.stat().st_gid) == (0, 23456)


def test_add_listener_keeps_comments_mode_and_default_listeners(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("# mine\n")
    file.chmod(0o600)
    options = ["--name", "web", "--protocol", "http", "--port", "4318", "--config", str(file)]
    assert CliRunner().invoke(build(["config", "add"]), ["config", "add", "listener", *options]).exit_code == 0
    text = file.read_text()
    assert text.startswith("# mine\n")
    assert file.stat().st_mode & 0o777 == 0o600
    checked = CliRunner().invoke(config, ["check", "--config", str(file)])
    assert "events-udp, events-tcp, syslog-udp, syslog-tcp, web" in " ".join(checked.stdout.split())
    twice = CliRunner().invoke(build(["config", "add"]), ["config", "add", "listener", *options])
    assert (twice.exit_code, file.read_text()) == (2, text)
    assert "two listeners have the name 'web'" in twice.stderr


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        (
            "pipeline.transform=nosuch:change",
            "pipeline.transform = 'nosuch:change' cannot be imported: no module 'nosuch' is installed",
        ),
        ("pipeline.transform=json:nosuch", "pipeline.transform = 'json:nosuch' cannot be imported: AttributeError: "),
        ("pipeline.fixes=['json:dumps','nosuch:mend']", "pipeline.fixes: 'nosuch:mend' cannot be imported: no module "),
        ("pipeline.redact.patterns=['(']", "pipeline.redact.patterns: '(': "),
        ("pipeline.redact={hash=['host'],salt_env='NOSUCH'}", "pipeline.redact: no salt: "),
        ("pipeline.schemas.order='id BIGINT, tags ARRAY<STRNG>'", "'STRNG' is not a type such as"),
        ("console.http=127.0.0.1:8844", "console.http: 127.0.0.1:8844 is the address of log.http"),
        ("listener.events-tcp.port=8844", "listener.events-tcp: listens on 127.0.0.1:8844 as log.http does"),
    ],
)
def test_check_refuses_what_a_start_would_refuse(option: str, complaint: str) -> None:
    checked = CliRunner().invoke(config, ["check", "-o", option])
    assert (checked.exit_code, checked.stdout, checked.stderr.count("\n")) == (2, "", 1)
    assert complaint in checked.stderr


def test_check_accepts_functions_of_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_changes.py").write_text("def change(rows): return rows\ndef mend(payload): return payload\n")
    monkeypatch.chdir(tmp_path)
    options = ["-o", "pipeline.transform=own_changes:change", "-o", "pipeline.fixes=['own_changes:mend']"]
    assert CliRunner().invoke(config, ["check", *options]).exit_code == 0
