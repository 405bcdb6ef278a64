"""The password file of the console: names, roles, and scrypt hashes of passwords, one user a line.

A line is ``NAME:ROLE:HASH``; the hash is ``scrypt$N$R$P$SALT$KEY`` (salt and key in hexadecimal), or ``-`` for a user
who logs in at a proxy only.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.console.people import Role
from penstock.errors import PenstockError
from penstock.files.file_system import OS, create_like
from penstock.files.secret_files import read_secret

N, R, P = 1 << 15, 8, 3
"""Cost of a hash as OWASP recommends for scrypt: 32 MiB and about a tenth of a second."""
MAX_N, MAX_R, MAX_P = 1 << 18, 16, 16
"""Limit: a file must not decide that a login takes gigabytes or minutes."""
SALT_BYTES, KEY_BYTES = 16, 32
MIN_PASSWORD_CHARS, MAX_PASSWORD_CHARS = 8, 1_000
NAME = re.compile(r"[A-Za-z0-9_.@+\-]{1,100}")
NO_PASSWORD = "-"  # noqa: S105 - the mark of a user without one
_HASH = re.compile(r"scrypt\$(\d{1,7})\$(\d{1,3})\$(\d{1,3})\$([0-9a-f]{16,128})\$([0-9a-f]{64})")


class BadUsers(PenstockError):
    """The password file, a name or a password cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class User:
    """A line of the password file."""

    name: str
    role: Role
    password_hash: str

    @property
    def line(self) -> str:
        """Return the line of the file."""
        return f"{self.name}:{self.role}:{self.password_hash}"


def read_users(path: Path) -> dict[str, User]:
    """Return the users by name. Raises BadUsers, OSError, UnsafeFile."""
    users: dict[str, User] = {}
    for number, line in enumerate(read_secret(path).decode(errors="replace").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            user = _parse(line.strip())
        except ValueError as error:
            raise BadUsers(f"{path}: line {number} {error}") from None
        if user.name in users:
            raise BadUsers(f"{path}: line {number} names {user.name!r} a second time")
        users[user.name] = user
    return users


def _parse(line: str) -> User:
    name, _, rest = line.partition(":")
    role, _, password_hash = rest.partition(":")
    if not NAME.fullmatch(name):
        raise ValueError("does not begin with a name")
    if role not in [*Role]:
        raise ValueError(f"has no role: {' or '.join(Role)}")
    if password_hash != NO_PASSWORD:
        _parameters(password_hash)
    return User(name, Role(role), password_hash)


def _parameters(password_hash: str) -> tuple[int, int, int, bytes, bytes]:
    match = _HASH.fullmatch(password_hash)
    if match is None:
        raise ValueError("has no hash of scrypt: use penstock users add")
    n, r, p = (int(text) for text in match.group(1, 2, 3))
    if not (1 < n <= MAX_N and n & (n - 1) == 0 and 1 <= r <= MAX_R and 1 <= p <= MAX_P):
        raise ValueError("has a hash whose cost is too high, or no power of two")
    return n, r, p, bytes.fromhex(match[4]), bytes.fromhex(match[5])


def write_users(path: Path, users: Iterable[User]) -> None:
    """Replace the file, readable by its owner only. Raises OSError.

    A file that root writes keeps its owner and group, or takes them from its folder. The group of root's file can read
    it, as it could before or as it can enter the folder: the daemon's account is in this group.
    """
    text = "".join(f"{user.line}\n" for user in sorted(users, key=lambda user: user.name))
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    model = path if path.exists() else path.parent
    status = model.stat()
    is_for_group = os.geteuid() == status.st_uid == 0 != status.st_gid and bool(status.st_mode & 0o050)
    draft.unlink(missing_ok=True)  # of a process that was killed
    try:
        with open(create_like(draft, model, os.O_WRONLY, 0o600), "wb") as file:
            os.fchmod(file.fileno(), 0o640 if is_for_group else 0o600)
            file.write(text.encode())
            file.flush()
            # Order: the content is on the disk before the name refers to it.
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    OS.sync_directory(path.parent)


@contextlib.contextmanager
def edit_users(path: Path) -> Iterator[dict[str, User]]:
    """Yield the users by name, to be changed, and write them unless the block raises. Raises as ``read_users``."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Lock: of the folder, because the file is replaced. Of two commands at once, one would lose its change.
        fcntl.flock(folder, fcntl.LOCK_EX)
        try:
            users = read_users(path)
        except FileNotFoundError:
            users = {}
        yield users
        write_users(path, users.values())
    finally:
        os.close(folder)


def hash_password(password: str) -> str:
    """Return the hash of a new password. Raises BadUsers."""
    if not MIN_PASSWORD_CHARS <= len(password) <= MAX_PASSWORD_CHARS:
        raise BadUsers(f"a password has {MIN_PASSWORD_CHARS} to {MAX_PASSWORD_CHARS} characters")
    salt = secrets.token_bytes(SALT_BYTES)
    return f"scrypt${N}${R}${P}${salt.hex()}${_key(password, N, R, P, salt).hex()}"


_UNKNOWN_USER_HASH = f"scrypt${N}${R}${P}${'00' * SALT_BYTES}${'00' * KEY_BYTES}"


def is_password_of(user: User | None, password: str) -> bool:
    """Report whether a password is the user's. Takes as long for an unknown user (None), so that names stay secret."""
    password_hash = user.password_hash if user else NO_PASSWORD
    has_password = password_hash != NO_PASSWORD
    n, r, p, salt, key = _parameters(password_hash if has_password else _UNKNOWN_USER_HASH)
    return hmac.compare_digest(_key(password[:MAX_PASSWORD_CHARS], n, r, p, salt), key) and has_password


def _key(password: str, n: int, r: int, p: int, salt: bytes) -> bytes:
    text = password.encode(errors="surrogatepass")
    return hashlib.scrypt(text, salt=salt, n=n, r=r, p=p, maxmem=128 * r * (n + p + 2) + (1 << 20), dklen=KEY_BYTES)
