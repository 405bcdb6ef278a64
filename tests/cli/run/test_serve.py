"""``penstock serve`` takes slogd's flags, as the documentation has them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import build
from penstock.cli.run import serve
from penstock.config import Settings

PAGE = Path(__file__).parents[3] / "docs" / "coming.md"


def test_serve_accepts_the_flags_of_slogd(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Settings] = []
    monkeypatch.setattr(serve, "run", lambda settings, *_: ran.append(settings))
    (line,) = re.findall(r"^penstock (serve --.*)$", PAGE.read_text(), re.MULTILINE)
    answer = CliRunner().invoke(build(["serve"]), line.split(), catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    (settings,) = ran
    assert (settings.log.http, settings.log.grpc) == ("localhost:8080", "localhost:9090")
    assert settings.data_dir == Path("data")
