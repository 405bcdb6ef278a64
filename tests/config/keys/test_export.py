"""Keys of exports."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.config import ConfigError, load
from penstock.config.keys.export import ExportConfig
from penstock.files.errors import UnsafeFile

KEYS: dict[str, Any] = {"name": "copy", "to": "postgresql://penstock@db/shop"}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"to": "mysql://db/shop"}, "is not a target"),
        ({"to": "/srv/copy"}, "is not a target"),
        ({"to": "postgresql:/db"}, "is not an address"),
        ({"to": "postgresql://penstock:hidden-word@db/shop"}, "has a password"),
        ({"to": "postgresql://db/shop?password=hidden-word"}, "has a password"),
        ({"to": "duckdb:///"}, "names no path"),
        ({"to": "delta:/srv/copy", "table": "rows"}, "table is for databases"),
        ({"to": "delta:/srv/copy", "password_env": "X"}, "a password is for"),
        ({"password_file": "a", "password_env": "X"}, "is enough"),
        ({"options": {"a": "b"}}, "options are for a Delta table"),
        ({"source": "clicks"}, "source"),
        ({"table": "a.b.c"}, "table"),
        ({"table": 'a"; drop'}, "table"),
        ({"every": "0s"}, "every"),
    ],
)
def test_wrong_keys_are_refused_without_the_password(wrong: dict[str, Any], reason: str) -> None:
    words = [f"{key}={value!r}" for key, value in {**KEYS, **wrong}.items() if not isinstance(value, dict)]
    words += [f"{key}={{a='b'}}" for key, value in wrong.items() if isinstance(value, dict)]
    with pytest.raises(ConfigError) as refused:
        load(None, [f"export=[{{{', '.join(words)}}}]"], {})
    assert reason in str(refused.value)
    assert "hidden-word" not in str(refused.value)


@pytest.mark.parametrize("second", [{"name": "copy", "to": "duckdb:/a"}, {**KEYS, "name": "other"}])
def test_two_exports_have_two_names_and_two_targets(second: dict[str, str]) -> None:
    exports = ", ".join("{" + ", ".join(f"{k}={v!r}" for k, v in keys.items()) + "}" for keys in (KEYS, second))
    with pytest.raises(ConfigError, match=r"have the (name|same target)"):
        load(None, [f"export=[{exports}]"], {})


def test_paths_of_files_and_folders() -> None:
    for to in ("duckdb:/srv/copy.duckdb", "duckdb:///srv/copy.duckdb"):
        assert ExportConfig(name="copy", to=to).path == "/srv/copy.duckdb"
    assert ExportConfig(name="copy", to="delta:copies/events").path == "copies/events"
    assert ExportConfig(**KEYS).target_table == "events"


def test_password_is_read_from_a_safe_file_or_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "password"
    file.write_text("hidden-word\n")
    file.chmod(0o600)
    assert ExportConfig(**KEYS, password_file=file).password() == "hidden-word"
    monkeypatch.setitem(os.environ, "COPY_PASSWORD", "other-word")
    assert ExportConfig(**KEYS, password_env="COPY_PASSWORD").password() == "other-word"
    file.chmod(0o644)
    with pytest.raises(UnsafeFile):
        ExportConfig(**KEYS, password_file=file).password()
