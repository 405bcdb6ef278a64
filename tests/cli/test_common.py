"""Functions that all commands share."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.common import active_config_file


def test_active_config_file_is_the_named_or_the_existing_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert active_config_file(None) is None
    (tmp_path / "penstock.toml").touch()
    assert active_config_file(None) == Path("penstock.toml")
    assert active_config_file(Path("other.toml")) == Path("other.toml")
