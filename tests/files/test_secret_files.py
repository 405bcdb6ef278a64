"""Files with secrets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.files.errors import UnsafeFile
from penstock.files.secret_files import MAX_SECRET_BYTES, read_secret

OTHER_USER = 12_345


def secret(folder: Path, mode: int, owner: int | None = None) -> Path:
    """Return a file with the text ``secret``."""
    path = folder / "secret"
    path.write_bytes(b"secret")
    path.chmod(mode)
    if owner is not None:
        os.chown(path, owner, -1)
    return path


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_file_of_own_account_is_read(tmp_path: Path, mode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = secret(tmp_path, mode)
    assert read_secret(path) == b"secret"
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid)
    assert read_secret(path) == b"secret"


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o640, 0o620, 0o660, 0o602, 0o601])
def test_file_that_others_can_access_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(UnsafeFile, match=rf"secret has mode {mode:04o}, so that others have access to it: chmod 600 "):
        read_secret(secret(tmp_path, mode))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize(
    ("owner", "mode", "allowed"), [(0, 0o440, True), (0, 0o444, False), (OTHER_USER, 0o400, False)]
)
def test_unprivileged_process_reads_files_of_root_for_its_group_and_none_of_others(
    tmp_path: Path, owner: int, mode: int, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = secret(tmp_path, mode, owner)
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    if allowed:
        assert read_secret(path) == b"secret"
    else:
        with pytest.raises(UnsafeFile, match=r"has mode 0444|belongs to user 12345, not to user 1000 or root"):
            read_secret(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_reads_the_secret_of_the_owner_of_the_folder_only(tmp_path: Path) -> None:
    path = secret(tmp_path, 0o600, OTHER_USER)
    with pytest.raises(UnsafeFile, match="belongs to user 12345"):
        read_secret(path)
    os.chown(tmp_path, OTHER_USER, -1)
    assert read_secret(path) == b"secret"


if os.geteuid() == 0:  # only root gives files away

    def test_root_reads_its_file_that_the_group_of_an_account_can_read(tmp_path: Path) -> None:
        path = secret(tmp_path, 0o640)
        os.chown(path, 0, OTHER_USER)
        assert read_secret(path) == b"secret"
        path.chmod(0o660)
        with pytest.raises(UnsafeFile, match="has mode 0660, so that others have access to it: chmod 640"):
            read_secret(path)


def test_fifo_without_a_writer_does_not_block_and_a_large_file_is_bounded(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    assert read_secret(tmp_path / "fifo") == b""
    (tmp_path / "large").write_bytes(bytes(MAX_SECRET_BYTES + 1))
    (tmp_path / "large").chmod(0o600)
    assert len(read_secret(tmp_path / "large")) == MAX_SECRET_BYTES
