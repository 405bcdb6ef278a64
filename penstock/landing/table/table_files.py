"""What a table is to those who write and prove it: a list of files, each brought by a micro-batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from penstock.landing.storage.object_path import TablePath
from penstock.landing.table.table_file import TableFile


class NewFile(Protocol):
    """A file to commit; ``name`` relative to the table's folder, ``statistics`` as Delta has them."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def date(self) -> str: ...

    @property
    def size(self) -> int: ...

    @property
    def statistics(self) -> str: ...


class TableList(Protocol):
    """The files of a table by the micro-batch that brought them, relative to the table's folder."""

    def files(self, from_batch: int = 0) -> Iterator[tuple[int, list[str]]]:
        """For each batch from ``from_batch`` on that the list has, ascending: its files."""

    def newest(self) -> int:
        """The newest batch in the list; -1 for none."""

    def deleted(self) -> int:
        """The number of the last deletion that is done; 0 for none."""

    def active(self) -> list[TableFile]:
        """All files that make up the table now, sorted."""


class Table(TableList, Protocol):
    """A table that can be written, by one process."""

    @property
    def folder(self) -> TablePath:
        """Where files are written, under the names that they are committed with."""

    @property
    def landed(self) -> TablePath:
        """Where files are that were committed."""

    def begin(self) -> None:
        """Make the table where there is none; put in order what a power cut left behind."""

    def commit(self, batch: int, files: Sequence[NewFile]) -> None:
        """Add the files of a batch, all or none, durably. Nothing happens where the list has the batch."""
