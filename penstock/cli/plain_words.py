"""Words of the command line that are texts and paths are taken as they are.

Typer has pydantic check every parameter; that takes twice as long to import as all else that a short command needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperGroup

LISTS: dict[Any, type] = {list[str]: str, list[Path]: Path}
ONES = (str, Path)


class PlainCommand(TyperCommand):
    """A command whose parameters take plain words themselves."""

    def get_params(self, ctx: Any) -> Any:
        return _plain(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """Likewise, a group of commands."""

    def get_params(self, ctx: Any) -> Any:
        return _plain(super().get_params(ctx))


def _plain(parameters: list[Any]) -> list[Any]:
    """A Typer that looks elsewhere than in ``_runtime_param`` goes on as it does."""
    for parameter in parameters:
        described = getattr(parameter, "type_descriptor", None)
        parameter._runtime_param = PlainWords(getattr(described, "annotation", None))
    return parameters


@dataclass(frozen=True, slots=True)
class PlainWords:
    """In the place of what Typer makes of an annotation, and asks that for what is no plain word."""

    annotation: Any

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of a parameter, of its word or words, or of its default."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if self.annotation in LISTS and isinstance(value, list | tuple):
            return [LISTS[self.annotation](word) for word in value]
        if self.annotation in ONES and isinstance(value, str):
            return self.annotation(value)
        if type(value) is self.annotation:  # a default
            return value
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)
