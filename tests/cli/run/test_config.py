"""``penstock config explain``: nothing found is said."""

from __future__ import annotations

from typer.testing import CliRunner

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
