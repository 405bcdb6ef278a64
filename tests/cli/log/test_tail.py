"""The command that follows files: which errors it waits for, and which folders it watches."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.command_line import build
from penstock.cli.log import tail
from penstock.cli.log.tail import follow, is_transient, watched_folders
from penstock.cli.progress import Progress
from penstock.client import ClientError, Unavailable
from penstock.client.log.types import Damaged, Exhausted, NoSuchTopic, NotAllowed, Refused, Unsupported
from tests.client.tail.following import Following


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (Exhausted("disk full"), True),
        (Damaged("EIO"), True),
        (ClientError("Internal error"), True),
        (Unavailable("away"), True),
        (OSError(28, "No space left on device"), True),
        (Refused("too large"), False),
        (NotAllowed("token"), False),
        (NoSuchTopic("files"), False),
        (Unsupported("slogd"), False),
    ],
)
def test_transient_errors_are_retried(error: Exception, waits: bool) -> None:
    assert is_transient(error) is waits


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "name the files to follow, or --containers, or --journal"),
        (["a.log", "--unit", "a.service"], "--unit and --since select entries of the journal: add --journal"),
        (["a.log", "--since", "now"], "--unit and --since select entries of the journal: add --journal"),
        (["a.log", "--journal"], "--journal follows the journal alone: "),
        (["--journal", "--from-end"], "--journal follows the journal alone: "),
    ],
)
def test_contradicting_options_are_refused(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(build(["tail"]), ["tail", *arguments])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"penstock: {text}")


def test_missing_journalctl_is_one_line_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = CliRunner().invoke(build(["tail"]), ["tail", "--journal"])
    expected = "penstock: --journal needs journalctl, which is not installed: install the package systemd\n"
    assert (result.exit_code, result.stderr) == (1, expected)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Following]:
    monkeypatch.setattr(tail, "FIRST_RETRY_S", 0.01)
    following = Following(tmp_path, "*.log*")
    yield following
    following.kill()


def follow_once(here: Following) -> None:
    tailer = here.tailer or here.start()
    with Progress("test") as progress:
        follow(tailer, iter([]), threading.Event(), once=True, progress=progress)


def test_failed_append_is_retried(here: Following) -> None:
    here.write(b"one\n")
    here.topic.failure = Exhausted("disk full")
    threading.Timer(0.2, lambda: setattr(here.topic, "failure", None)).start()
    follow_once(here)
    assert here.topic.lines == [b"one"]


def test_refused_append_ends_the_command(here: Following) -> None:
    here.write(b"one\n")
    here.topic.failure = NotAllowed("the token may not write files")
    with pytest.raises(NotAllowed):
        follow_once(here)


def test_once_appends_the_last_line_of_a_rotated_file_and_leaves_that_of_the_current_one(here: Following) -> None:
    here.write(b"one\n")
    follow_once(here)
    here.write(b"last")
    here.path().rename(here.path("a.log.1"))
    here.write(b"two\nbegun")
    follow_once(here)
    assert here.topic.lines == [b"one", b"two", b"last"]


def test_folders_of_patterns_and_of_names_with_brackets_are_watched(tmp_path: Path) -> None:
    for name in ("a1", "a2", "[b]", "c"):
        (tmp_path / name).mkdir()
    patterns = [f"{tmp_path}/a*/x/*.log", f"{tmp_path}/a*/*.log", f"{tmp_path}/[b]/*.log", f"{tmp_path}/**/y.log"]
    assert watched_folders(patterns) == {tmp_path / "a1", tmp_path / "a2", tmp_path / "[b]"}
