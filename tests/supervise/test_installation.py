"""The installation that a restart changes to, and who may request it."""

from __future__ import annotations

import os
import sys
import venv
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

import penstock
from penstock.config import ConfigError
from penstock.supervise.installation import REQUEST, Installation, discard_request, read_request, write_request
from tests.fuzzed import json_texts


def test_request_is_read_until_it_is_discarded(tmp_path: Path) -> None:
    installation = Installation.current()
    assert installation == Installation(penstock.__version__, str(Path(penstock.__file__).parent), sys.executable)
    assert read_request(tmp_path) is None
    write_request(tmp_path, installation)
    write_request(tmp_path, installation)
    assert read_request(tmp_path) == installation
    discard_request(tmp_path)
    assert read_request(tmp_path) is None


def test_same_python_and_package_need_no_request() -> None:
    installation = Installation("1", "/a/penstock", "/a/python")
    assert not installation.is_replaced_by(replace(installation, version="2"))
    assert installation.is_replaced_by(replace(installation, package="/b/penstock"))
    assert installation.is_replaced_by(replace(installation, executable="/b/python"))


def test_spellings_of_one_environment_need_no_request(tmp_path: Path) -> None:
    for name in ("old", "other"):
        venv.create(tmp_path / name, with_pip=False)
    (tmp_path / "current").symlink_to("old")
    installation = Installation("1", "/a/penstock", str(tmp_path / "old/bin/python"))
    for spelling in ("old/bin/python3", "current/bin/python"):
        assert not installation.is_replaced_by(replace(installation, executable=str(tmp_path / spelling)))
    assert installation.is_replaced_by(replace(installation, executable=str(tmp_path / "other/bin/python")))


def test_python_that_anyone_may_change_is_not_run(tmp_path: Path) -> None:
    python = tmp_path / "python"
    installation = replace(Installation.current(), executable=str(python))
    write_request(tmp_path, installation)
    with pytest.raises(ConfigError, match=r"python: .*No such file or directory; stop penstock and start it with"):
        read_request(tmp_path)
    python.touch(0o755)
    assert read_request(tmp_path) == installation
    python.chmod(0o757)
    with pytest.raises(ConfigError, match="can be written by all users: chmod o-w"):
        read_request(tmp_path)


def test_python_of_another_user_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.touch(0o755)
    installation = replace(Installation.current(), executable=str(python))
    if os.geteuid() == 0:
        os.chown(python, 65534, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 1)
    with pytest.raises(ConfigError, match=f"{python} belongs to .*, and penstock runs as .*: install it as"):
        installation.check_owner()


@pytest.mark.parametrize("kind", ["link", "FIFO", "writable"])
def test_request_of_another_kind_is_refused(tmp_path: Path, kind: str) -> None:
    write_request(tmp_path, Installation.current())
    path = tmp_path / REQUEST
    if kind == "writable":
        path.chmod(0o662)
    elif kind == "link":
        path.symlink_to(path.rename(tmp_path / "elsewhere"))
    else:
        path.unlink()
        os.mkfifo(path)
    with pytest.raises(ConfigError, match="remove it and try again"):
        read_request(tmp_path)


@given(json_texts("version", "package", "executable"))
def test_any_request_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("data")
    (folder / REQUEST).write_bytes(data)
    with pytest.raises(ConfigError):
        read_request(folder)


def test_request_that_cannot_be_removed_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / REQUEST).mkdir()
    discard_request(tmp_path)
    assert f"{tmp_path / REQUEST} cannot be removed: " in caplog.text
    with pytest.raises(IsADirectoryError):
        write_request(tmp_path, Installation.current())
