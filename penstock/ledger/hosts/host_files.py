"""The files of registered hosts: one small file for each host, replaced durably.

Invariant: no post replaces a state that could not be read, because sums of former disks exist nowhere else.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from penstock.files.checked_document import read_document, write_document
from penstock.files.errors import DamagedFile, UnknownFormat
from penstock.files.file_system import OS, make_folder, set_aside
from penstock.ledger.posts import BadPost

MAX_HOSTS = 1_000
"""Limit: hosts that may register, because each has a file and a place in memory forever."""
MAX_FORMER_DISKS = 16
"""Limit: former disks of a host that are recognized if they return."""
MAX_NEW_DISKS = 10
"""Limit: new disks of a host within an hour, because each one closes the counts of the disk before."""
HOUR_MS = 3_600_000
_LOGGER = logging.getLogger(__name__)


class Storable(Protocol):
    """The state of a host."""

    def document(self) -> dict[str, Any]:
        """Return the state as a JSON-ready mapping."""


State = TypeVar("State", bound=Storable)


class HostFiles(Generic[State]):
    """The states of hosts by name, in memory and in ``folder``. Threads: the owner's lock.

    ``parse`` returns the state in a document; it raises BadPost, AttributeError, KeyError, TypeError or ValueError for
    an impossible one.
    """

    def __init__(self, folder: Path, parse: Callable[[Mapping[str, Any]], State]) -> None:
        self._folder, self._parse = folder, parse
        self.states: dict[str, State] = {}
        self._unread: set[str] = set()
        for path in sorted(folder.glob("*.json")):
            try:
                self._load(path)
            except (UnknownFormat, OSError) as error:
                self._unread.add(path.stem)
                _LOGGER.error("the counts of host %s cannot be read, so its posts are refused: %s", path.stem, error)

    def _load(self, path: Path) -> None:
        """Read the state of a host, or rename a damaged one. Raises UnknownFormat and OSError."""
        try:
            self.states[path.stem] = self._parse(read_document(path))
        except (DamagedFile, BadPost, KeyError, TypeError, ValueError, AttributeError) as error:
            # The host posts its counts again within seconds; only sums of its former disks are lost.
            renamed = set_aside(path, OS)
            _LOGGER.error("the counts of host %s are set aside as %s: %s", path.stem, renamed.name, error)

    @property
    def has_hosts(self) -> bool:
        """Report whether hosts have registered, also if their files cannot be read."""
        return bool(self.states or self._unread)

    def state_for_post(self, host: str) -> State | None:
        """Return the state that a post of ``host`` changes; None if the post registers the host.

        Raises BadPost if its file cannot be read, which is tried again, or too many hosts are registered.
        """
        if host in self._unread:
            try:
                with contextlib.suppress(FileNotFoundError):
                    self._load(self._folder / f"{host}.json")
            except (UnknownFormat, OSError) as error:
                raise BadPost(f"the stored counts of {host} cannot be read: {error}") from None
            self._unread.remove(host)
        if host not in self.states and len(self.states) + len(self._unread) >= MAX_HOSTS:
            raise BadPost(f"{MAX_HOSTS} hosts are registered already")
        return self.states.get(host)

    def store(self, host: str, state: State) -> None:
        """Store a state durably. Crash: either the former or the new one is complete. Raises OSError."""
        make_folder(self._folder)
        write_document(self._folder / f"{host}.json", state.document(), OS)
        self.states[host] = state


def refuse_former_disk(host: str, disk: str, former_disks: Iterable[str], folder: str) -> None:
    """Refuse the post of a disk whose counts are closed. Raises BadPost."""
    if disk in former_disks:
        raise BadPost(
            f"another machine has registered as {host} since: set relay.host on one of them, or "
            f"{how_to_forget(host, folder)}"
        )


def how_to_forget(host: str, folder: str) -> str:
    """Return how an operator removes the counts of a host."""
    return f"remove {folder}/{host}.json from the data directory of this Penstock"


def with_new_disk(host: str, new_disks_ms: Iterable[int], time_ms: int) -> tuple[int, ...]:
    """Return the times of the new disks of the last hour, with one at ``time_ms``. Raises BadPost at the limit."""
    within_hour = tuple(since_ms for since_ms in new_disks_ms if 0 <= time_ms - since_ms < HOUR_MS)
    if len(within_hour) >= MAX_NEW_DISKS:
        raise BadPost(f"{host} has registered {MAX_NEW_DISKS} new disks within an hour")
    return (*within_hour, time_ms)
