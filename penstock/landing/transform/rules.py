"""What is configured to happen to rows before they land: ``pipeline.redact``, then ``pipeline.transform``."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.config import PipelineConfig
from penstock.errors import PenstockError
from penstock.landing.event_rules import MessageKind
from penstock.landing.rows.engine import pc
from penstock.landing.transform.checked import CheckedFunction, Function, OfKind
from penstock.landing.transform.redaction import Hashes, Patterns

KEY = "pipeline.transform"


class BadTransform(PenstockError, ValueError):
    """What is configured cannot be used; the text names the key."""


@dataclass(frozen=True, slots=True)
class TransformRules:
    """``function``: ``module:function`` of the user's, RecordBatch to RecordBatch; the rest: ``pipeline.redact``."""

    function: str = ""
    patterns: tuple[str, ...] = ()
    replacement: str = "***"
    fields: tuple[str, ...] = ()
    salt: bytes = field(default=b"", repr=False)

    @classmethod
    def from_config(cls, pipeline: PipelineConfig) -> TransformRules:
        """What the configuration says. Raises BadTransform."""
        redact = pipeline.redact
        try:
            salt = redact.secret()
        except (OSError, KeyError, ValueError) as error:
            raise BadTransform(f"pipeline.redact: no salt: {error}") from None
        return cls(pipeline.transform, redact.patterns, redact.replacement, redact.hash, salt)

    def __bool__(self) -> bool:
        return bool(self.function or self.patterns or self.fields)

    def check(self) -> None:
        """Raises BadTransform."""
        for pattern in self.patterns:
            try:
                pc.match_substring_regex(pa.array([""]), pattern)
            except pa.ArrowInvalid as error:
                text = str(error).partition("\n")[0]
                raise BadTransform(f"pipeline.redact.patterns: {pattern!r}: {text}") from None
        if self.function:
            load(self.function)

    def steps(self) -> list[CheckedFunction]:
        """What is done with rows, in this order. Raises BadTransform."""
        found = []
        if self.patterns:
            found.append(CheckedFunction("pipeline.redact.patterns", Patterns(self.patterns, self.replacement)))
        if self.fields:
            paths = tuple(tuple(field.split(".")) for field in self.fields)
            found.append(CheckedFunction("pipeline.redact.hash", Hashes(paths, self.salt)))
        if self.function:
            found.append(CheckedFunction(KEY, load(self.function)))
        return found


@dataclass(slots=True)
class Transformation:
    """The steps, applied to the rows of a task."""

    steps: list[CheckedFunction]

    def apply(self, parts: Iterable[OfKind]) -> Iterator[OfKind]:
        """Rows (FILE_SCHEMA) by kind."""
        for step in self.steps:
            parts = _applied(step, parts)
        yield from parts

    def failures(self) -> list[str]:
        """What is to be told of the rows that went to quarantine."""
        return [f"{one.name} failed on {one.failed:,} rows: {one.error}" for one in self.steps if one.failed]


def _applied(step: CheckedFunction, parts: Iterable[OfKind]) -> Iterator[OfKind]:
    for kind, rows in parts:
        if kind is MessageKind.DROPPED:
            yield kind, rows
        elif rows.num_rows:
            yield from step.apply(kind, rows)


@cache
def load(name: str) -> Function:
    """The function ``module:function``; modules of the working folder are found, too. Raises BadTransform."""
    module, _, function = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found = getattr(importlib.import_module(module), function)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's module may raise anything
        text = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise BadTransform(f"{KEY} = {name!r} cannot be imported: {text}") from None
    if not callable(found):
        raise BadTransform(f"{KEY} = {name!r} is no function")
    return found  # type: ignore[no-any-return]


def module_source(name: str) -> Path | None:
    """The file or the folder of the module that a function is in, or of the package around it; None for one that is
    built in.
    """
    load(name)
    top: Any = sys.modules[name.partition(":")[0].partition(".")[0]]
    file = getattr(top, "__file__", None)
    if file is None:
        return None
    return Path(file).parent if Path(file).name == "__init__.py" else Path(file)
