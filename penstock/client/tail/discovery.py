"""Finds the files that patterns match, and reports once what cannot be followed."""

from __future__ import annotations

import glob
import logging
import os
import re
import stat
from collections.abc import Sequence

from penstock.client.tail.positions import FileIdentity, FilePosition

_LOGGER = logging.getLogger(__name__)
MAX_SUBJECTS = 1000
"""Limit: subjects that are remembered as reported; after that they are reported again."""
_ROTATION = re.compile(r"[._-](?:\d(?:[\dTZ:._+-]*\d)?|old|bak|orig|prev|save)(?=\.|$)|~$")
_KINDS = {stat.S_IFDIR: "directory", stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket"}


class OnceLogger:
    """Logs a warning about a subject once, although each poll reports it; again after ``clear`` or with a new text."""

    def __init__(self) -> None:
        self._texts: dict[object, str] = {}

    def report(self, subject: object, text: str) -> None:
        if self._texts.get(subject) == text:
            return
        if len(self._texts) >= MAX_SUBJECTS:
            self._texts.clear()
        self._texts[subject] = text
        _LOGGER.warning("%s", text)

    def clear(self, subject: object) -> None:
        self._texts.pop(subject, None)


class Discovery:
    """Finds the files that ``patterns`` match; a file is listed once, also if links or several patterns lead to it."""

    def __init__(self, patterns: Sequence[str], warnings: OnceLogger) -> None:
        self._patterns, self._warnings = patterns, warnings
        self._matched: set[str] = set()

    def find_files(self) -> dict[FileIdentity, list[str]]:
        """Return the names of each regular file that matches, sorted; files in the order of their first names."""
        identities: dict[str, FileIdentity] = {}
        for pattern in self._patterns:
            is_matched = False
            for path in matching_paths(pattern):
                if identity := self._identity_of(path, pattern):
                    identities[os.path.realpath(path)], is_matched = identity, True
            if is_matched:
                self._matched.add(pattern)
            elif pattern not in self._matched:  # later it may match nothing for a moment, while files are rotated
                self._warnings.report(("pattern", pattern), f"{pattern} matches no file")
        names: dict[FileIdentity, list[str]] = {}
        for path in sorted(identities):
            names.setdefault(identities[path], []).append(path)
        return names

    def _identity_of(self, path: str, pattern: str) -> FileIdentity | None:
        try:
            status = os.stat(path)
        except OSError:  # renamed or removed since it was listed, or a link to nothing
            return None
        if stat.S_ISREG(status.st_mode):
            return status.st_dev, status.st_ino
        if path == pattern or not stat.S_ISDIR(status.st_mode):
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "device")
            self._warnings.report(("kind", path), f"{path} is a {kind}, not a file: not followed")
        return None


def matching_paths(pattern: str) -> list[str]:
    """Return the paths that match; a pattern that is also the name of a file, as ``app[1].log``, matches that file."""
    paths = glob.glob(pattern, recursive=True)
    return [*paths, pattern] if pattern not in paths and os.path.lexists(pattern) else paths


def find_by_inode(position: FilePosition) -> str | None:
    """Return the present name of a file in the folder where it was last."""
    try:
        with os.scandir(os.path.dirname(position.path)) as entries:
            for entry in entries:
                if entry.inode() == position.inode and entry.stat().st_dev == position.device:
                    return entry.path
    except OSError:
        return None
    return None


def is_mounted(position: FilePosition) -> bool:
    """Whether the file system of a file is mounted. Only then does a missing file mean that it was removed.

    The position of a file on an absent share must stay; otherwise all of its lines would be appended again.
    """
    folder = os.path.dirname(position.path)
    while True:
        try:
            return os.stat(folder).st_dev == position.device
        except FileNotFoundError:
            folder = os.path.dirname(folder)
        except OSError:
            return False


def name_before_rotation(path: str) -> str:
    """Return a path without what rotation adds: ``app.log`` for ``app.log.1``, ``app-2026-01-01.log``, ``app.log~``."""
    folder, name = os.path.split(path)
    return os.path.join(folder, _ROTATION.sub("", name) or name)
