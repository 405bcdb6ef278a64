"""The password file of the console."""

from __future__ import annotations

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
