"""A file that is to be committed to a table."""

from __future__ import annotations

from typing import Protocol


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
