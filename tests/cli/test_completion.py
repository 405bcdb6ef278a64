"""Shell completion, called as bash and zsh call it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.cli.commands import COMMANDS
from penstock.cli.completion import typed_words
from penstock.log import Log

SCRIPT = "import sys; sys.argv[0] = 'penstock'; from penstock.cli.main import main; main()"


@pytest.fixture
def offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], list[str]]:
    """Return the completions of a line that ends at the cursor."""
    monkeypatch.chdir(tmp_path)

    def complete(line: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["penstock"])
        monkeypatch.setenv("_PENSTOCK_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        with pytest.raises(SystemExit):
            main.main()
        return capsys.readouterr().out.split()

    return complete


def test_completion_offers_commands_and_options(offered: Callable[[str], list[str]]) -> None:
    assert set(offered("penstock ")) == {*COMMANDS, "version"}
    assert offered("penstock rel") == ["reload"]
    assert offered("penstock config ex") == ["explain"]
    assert {"--follow", "--filter"} <= set(offered("penstock consume --f"))


def test_completion_offers_topics_but_no_deleted_or_internal_ones(
    offered: Callable[[str], list[str]], tmp_path: Path
) -> None:
    log = Log(tmp_path / "here" / "topics")
    for name in ("events", "errors", "gone"):
        log.create(name)
    log.topic("_ledger", create=True, internal=True)
    log.delete("gone")
    log.close()
    assert offered("penstock consume ") == []
    (tmp_path / "penstock.toml").write_text('data_dir = "here"')
    assert offered("penstock consume ") == ["errors", "events"]
    assert offered("penstock consume ev") == ["events"]
    assert offered("penstock topic delete er") == ["errors"]
    assert offered("penstock log verify -o data_dir=elsewhere ") == []
    (tmp_path / "penstock.toml").write_text("unknown = 1")
    assert offered("penstock consume ") == []


def test_completion_offers_keys(offered: Callable[[str], list[str]]) -> None:
    assert offered("penstock config explain log.ht") == ["log.http"]


def test_typed_words_are_read_for_each_shell() -> None:
    assert typed_words({"COMP_WORDS": "penstock topic"}) is None
    assert typed_words({"_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": "penstock topic "}) == ["topic"]
    assert typed_words({"_PENSTOCK_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "penstock "}) == []
    assert typed_words({"_PENSTOCK_COMPLETE": "source_bash"}) == []


def test_completion_prints_a_shell_function() -> None:
    named = {
        **os.environ,
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
    }  # the tests have no shell as their parent
    command = [sys.executable, "-c", SCRIPT, "--show-completion", "bash"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=named)
    assert "_PENSTOCK_COMPLETE=complete_bash" in printed.stdout
    assert subprocess.run(["bash", "-n"], input=printed.stdout, text=True, check=False).returncode == 0
