"""Errors of files beyond operating system errors."""

from __future__ import annotations

from penstock.errors import PenstockError


class FileError(PenstockError):
    """Base of the errors of this room."""


class UnknownFormat(FileError):
    """A file in a format that this version does not know."""


class DamagedFile(FileError, ValueError):
    """A damaged file whose content exists nowhere else."""


class Locked(FileError):
    """A folder that another process has open for writing."""


class UnsafeFile(FileError, ValueError):
    """A file with a secret that other accounts can read, write or have planted."""


class NotAFile(UnsafeFile):
    """A folder, FIFO, socket or device under the name of a file."""
