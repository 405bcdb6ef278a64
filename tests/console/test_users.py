"""The password file of the console."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.console import users
from penstock.console.people import Role
from penstock.console.users import (
    NO_PASSWORD,
    BadUsers,
    User,
    edit_users,
    hash_password,
    is_password_of,
    read_users,
    write_users,
)
from penstock.files.errors import UnsafeFile

PASSWORD = "correct horse"


@pytest.fixture(autouse=True)
def cheap_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "N", 1 << 10)


def test_password_belongs_to_its_user_only(tmp_path: Path) -> None:
    ann, bob = (User(name, Role.VIEWER, hash_password(PASSWORD)) for name in ("ann", "bob"))
    assert ann.password_hash != bob.password_hash, "each has a salt of its own"
    write_users(tmp_path / "users", [bob, ann])
    read = read_users(tmp_path / "users")
    assert [*read] == ["ann", "bob"]
    assert is_password_of(read["ann"], PASSWORD)
    assert not is_password_of(read["ann"], PASSWORD + "x")
    assert not is_password_of(None, PASSWORD)
    assert not is_password_of(User("eve", Role.VIEWER, NO_PASSWORD), "")
    assert not is_password_of(User("eve", Role.VIEWER, NO_PASSWORD), NO_PASSWORD)


def test_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "users"
    write_users(path, [User("ann", Role.OPERATOR, NO_PASSWORD)])
    assert path.read_text() == "ann:operator:-\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [*tmp_path.iterdir()] == [path]
    path.chmod(0o644)
    with pytest.raises(UnsafeFile, match="chmod 600"):
        read_users(path)


OTHER_USER, OTHER_GROUP = 12_345, 12_346

if os.geteuid() == 0:  # only root gives files away

    @pytest.mark.parametrize(
        ("folder_owner", "owner", "mode"), [(OTHER_USER, OTHER_USER, 0o600), (0, 0, 0o640)], ids=["account", "root"]
    )
    def test_new_file_of_root_is_readable_by_the_account_of_the_folder(
        tmp_path: Path, folder_owner: int, owner: int, mode: int
    ) -> None:
        path = tmp_path / "users"
        os.chown(tmp_path, folder_owner, OTHER_GROUP)
        tmp_path.chmod(0o750)
        write_users(path, [])
        status = path.stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (owner, OTHER_GROUP, mode)

    @pytest.mark.parametrize(("owner", "mode"), [(OTHER_USER, 0o600), (0, 0o640), (0, 0o440)])
    def test_root_keeps_owner_group_and_readability_of_the_file(tmp_path: Path, owner: int, mode: int) -> None:
        path = tmp_path / "users"
        write_users(path, [])
        os.chown(path, owner, OTHER_GROUP)
        path.chmod(mode)
        if owner:
            os.chown(tmp_path, owner, -1)
        with edit_users(path) as existing:
            existing["ann"] = User("ann", Role.VIEWER, NO_PASSWORD)
        status = path.stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (owner, OTHER_GROUP, mode | 0o200)
        assert [*read_users(path)] == ["ann"]


def test_changes_made_at_once_are_all_written(tmp_path: Path) -> None:
    path = tmp_path / "users"

    def add(name: str) -> None:
        with edit_users(path) as existing:
            existing[name] = User(name, Role.VIEWER, NO_PASSWORD)

    names = [f"user{number}" for number in range(10, 30)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, names))
    assert [*read_users(path)] == names


def test_change_that_fails_leaves_the_file(tmp_path: Path) -> None:
    path = tmp_path / "users"
    write_users(path, [User("ann", Role.VIEWER, NO_PASSWORD)])

    def remove_and_fail() -> None:
        with edit_users(path) as existing:
            existing.clear()
            raise BadUsers("no")

    with pytest.raises(BadUsers):
        remove_and_fail()
    assert [*read_users(path)] == ["ann"]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("ann", "line 2 has no role: viewer or operator"),
        ("ann:admin:-", "line 2 has no role"),
        (":viewer:-", "line 2 does not begin with a name"),
        ("ann:viewer:secret", "line 2 has no hash of scrypt"),
        ("bob:viewer:-\nbob:viewer:-", "line 3 names 'bob' a second time"),
        (f"ann:viewer:scrypt$4194304$8$1${'00' * 16}${'00' * 32}", "line 2 has a hash whose cost is too high"),
        (f"ann:viewer:scrypt$1000$8$1${'00' * 16}${'00' * 32}", "or no power of two"),
    ],
)
def test_wrong_line_is_named(tmp_path: Path, line: str, error: str) -> None:
    path = tmp_path / "users"
    write_users(path, [])
    path.write_text(f"# users\n{line}\n")
    with pytest.raises(BadUsers, match=error):
        read_users(path)


@pytest.mark.parametrize("password", ["", "short", "x" * 1001])
def test_password_of_an_unusual_length_is_refused(password: str) -> None:
    with pytest.raises(BadUsers, match="8 to 1000 characters"):
        hash_password(password)


@given(st.binary(max_size=200))
def test_any_file_is_users_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any-users"
    path.touch(0o600)
    path.write_bytes(content)
    try:
        assert all(isinstance(user, User) for user in read_users(path).values())
    except BadUsers as error:
        assert "line" in str(error)  # noqa: PT017 - both outcomes are right
