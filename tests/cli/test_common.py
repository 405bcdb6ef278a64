"""What all commands share."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.common import file_of


def test_the_file_in_force_is_the_one_named_or_the_one_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert file_of(None) is None
    (tmp_path / "penstock.toml").touch()
    assert file_of(None) == Path("penstock.toml")
    assert file_of(Path("other.toml")) == Path("other.toml")
