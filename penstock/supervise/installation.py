"""The installation of Penstock that a process runs, and a request to change to another one at a restart.

Invariant: a process runs no Python from a request unless it, or root, wrote the request, and owns that Python.
"""

from __future__ import annotations

import json
import logging
import os
import pwd
import stat
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import penstock
from penstock.config import ConfigError
from penstock.files.file_system import create_like
from penstock.files.json_values import parse_object

_LOGGER = logging.getLogger(__name__)
REQUEST = "restart.json"
"""Name of the file with the requested installation, in the data directory."""
MAX_REQUEST_BYTES = 64 << 10
NEXT_STEP = "stop penstock and start it with the new installation"


@dataclass(frozen=True, slots=True)
class Installation:
    """An installed version: its Python, and the folder of the package ``penstock``."""

    version: str
    package: str
    executable: str

    @classmethod
    def current(cls) -> Installation:
        """Return the installation that this process has loaded."""
        return cls(penstock.__version__, str(Path(penstock.__file__).parent), sys.executable)

    @classmethod
    def from_document(cls, document: Any) -> Installation:
        """Read the fields of an object. Raises ValueError."""
        texts = [document.get(field.name) for field in fields(cls)] if isinstance(document, dict) else [None]
        if not all(isinstance(text, str) and "\0" not in text for text in texts):
            raise ValueError("not an installation")
        return cls(*map(str, texts))

    @property
    def text(self) -> str:
        """Version and folder for users."""
        return f"{self.version} ({self.package})"

    def is_replaced_by(self, other: Installation) -> bool:
        """Report whether a process of ``self`` must change its program to run ``other``.

        A version that was installed in place is loaded by the same program.
        """
        return self._environment() != other._environment()

    def _environment(self) -> tuple[str, str]:
        """Return package and virtual environment, or Python without one; links and ``python3`` make no difference."""
        folder = Path(self.executable).parent.parent
        has_environment = (folder / "pyvenv.cfg").is_file()
        return os.path.realpath(self.package), os.path.realpath(folder if has_environment else self.executable)

    def check_owner(self) -> None:
        """Check that Python and package exist and belong to this user or to root. Raises ConfigError."""
        for path in (self.executable, self.package):
            try:
                link, target = os.lstat(path), os.stat(path)
            except OSError as error:
                raise ConfigError(
                    f"{path}: the running penstock cannot use it: {error.strerror}; {NEXT_STEP}"
                ) from None
            for status in (link, target):
                if status.st_uid not in (0, os.geteuid()):
                    raise ConfigError(
                        f"{path} belongs to {_user_name(status.st_uid)}, and penstock runs as "
                        f"{_user_name(os.geteuid())}: install it as this user or root, or {NEXT_STEP}"
                    )
            if target.st_mode & stat.S_IWOTH:
                raise ConfigError(f"{path} can be written by all users: chmod o-w {path}")


def write_request(data_dir: Path, installation: Installation) -> None:
    """Write a request for the process that runs on ``data_dir``, before its signal. Raises OSError."""
    (data_dir / REQUEST).unlink(missing_ok=True)
    with open(create_like(data_dir / REQUEST, data_dir, os.O_WRONLY), "w") as file:
        json.dump(asdict(installation), file)


def discard_request(data_dir: Path) -> None:
    """Remove a request, so that a restart loads the same installation again. A failure is in the log only."""
    # Invariant: what another user or program has put here neither ends a running process nor stops a start.
    try:
        (data_dir / REQUEST).unlink(missing_ok=True)
    except OSError as error:
        _LOGGER.error("%s cannot be removed: %s", data_dir / REQUEST, error.strerror)


def read_request(data_dir: Path) -> Installation | None:
    """Return the requested installation; None without a request. Raises ConfigError if it must not be run."""
    path = data_dir / REQUEST
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; remove it and try again") from None
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{path} must be a file: remove it and try again")
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigError(f"{path}: other users may write it; remove it and try again")
        try:
            # Limit: a longer file is not a request, and its start is not JSON.
            installation = Installation.from_document(parse_object(file.read(MAX_REQUEST_BYTES)))
        except ValueError:
            raise ConfigError(f"{path}: not a request to restart; remove it and try again") from None
    installation.check_owner()
    return installation


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
