"""What can be wrong with a file beyond what the operating system says."""

from __future__ import annotations

from penstock.errors import PenstockError


class FileError(PenstockError):
    """Base of these errors."""


class UnknownFormat(FileError):
    """The file was written by another version, in a format that this one does not know."""


class DamagedFile(FileError, ValueError):
    """The file is not as it was written, and what it held cannot be had elsewhere."""


class Locked(FileError):
    """Another process has the folder open for writing."""
