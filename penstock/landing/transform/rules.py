"""Configured changes of rows before they land: ``pipeline.redact``, then ``pipeline.transform``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.config import PipelineConfig
from penstock.config.syntax.json_path import parse_path
from penstock.errors import PenstockError
from penstock.landing.event_rules import MessageKind
from penstock.landing.rows.engine import pc
from penstock.landing.transform.checked import CheckedFunction, Function, OfKind
from penstock.landing.transform.redaction import Hashes, Patterns
from penstock.process.module_search import add_working_folder

KEY = "pipeline.transform"


class BadTransform(PenstockError, ValueError):
    """A configuration that cannot be used; the text names the key."""


@dataclass(frozen=True, slots=True)
class TransformRules:
    """The user's function (``module:function``, RecordBatch to RecordBatch), and ``pipeline.redact``.

    Sent to tasks, which import the function themselves.
    """

    function: str = ""
    patterns: tuple[str, ...] = ()
    replacement: str = "***"
    fields: tuple[str, ...] = ()
    salt: bytes = field(default=b"", repr=False)

    @classmethod
    def from_config(cls, pipeline: PipelineConfig) -> TransformRules:
        """Read the configuration. Raises BadTransform."""
        redact = pipeline.redact
        try:
            salt = redact.secret()
        except (OSError, KeyError, ValueError) as error:
            raise BadTransform(f"pipeline.redact: no salt: {error}") from None
        return cls(pipeline.transform, redact.patterns, redact.replacement, redact.hash, salt)

    def __bool__(self) -> bool:
        return bool(self.function or self.patterns or self.fields)

    def check(self) -> None:
        """Raise BadTransform if a pattern or the function cannot be used."""
        for pattern in self.patterns:
            try:
                pc.match_substring_regex(pa.array([""]), pattern)
            except pa.ArrowInvalid as error:
                text = str(error).partition("\n")[0]
                raise BadTransform(f"pipeline.redact.patterns: {pattern!r}: {text}") from None
        if self.function:
            load(self.function)

    def steps(self) -> list[CheckedFunction]:
        """Return the changes of rows, in their order. Raises BadTransform."""
        # Order: redaction first, so that the user's function gets redacted rows.
        steps = []
        if self.patterns:
            steps.append(CheckedFunction("pipeline.redact.patterns", Patterns(self.patterns, self.replacement)))
        if self.fields:
            paths = tuple(map(parse_path, self.fields))
            steps.append(CheckedFunction("pipeline.redact.hash", Hashes(paths, self.salt)))
        if self.function:
            steps.append(CheckedFunction(KEY, load(self.function)))
        return steps


@dataclass(slots=True)
class Transformation:
    """The steps for the rows of a task."""

    steps: list[CheckedFunction]

    def apply(self, parts: Iterable[OfKind]) -> Iterator[OfKind]:
        """Yield changed rows (FILE_SCHEMA) by kind."""
        for step in self.steps:
            parts = _apply_step(step, parts)
        yield from parts

    def failures(self) -> list[str]:
        """Return a text for each step that failed on rows, which are in quarantine."""
        return [f"{step.name} failed on {step.failed:,} rows: {step.error}" for step in self.steps if step.failed]


def _apply_step(step: CheckedFunction, parts: Iterable[OfKind]) -> Iterator[OfKind]:
    for kind, rows in parts:
        if kind is MessageKind.DROPPED:
            yield kind, rows
        elif rows.num_rows:
            yield from step.apply(kind, rows)


@cache
def load(name: str) -> Function:
    """Import the function ``module:function``, also from the working folder. Raises BadTransform."""
    loaded: Function = import_function(name, f"{KEY} = {name!r}", BadTransform)
    return loaded


def import_function(name: str, described_as: str, error_class: type[PenstockError]) -> Any:
    """Import ``module:function``, also from the working folder. Raises ``error_class``; its text names the setting."""
    module, _, function = name.partition(":")
    add_working_folder()
    try:
        loaded = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        step = "start this command in the folder of the module, or name that folder in PYTHONPATH"
        raise error_class(
            f"{described_as} cannot be imported: no module {error.name!r} is installed or here; {step}"
        ) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's module may raise anything
        text = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise error_class(f"{described_as} cannot be imported: {text}") from None
    if not callable(loaded):
        raise error_class(f"{described_as} is not a function")
    return loaded


def module_source(name: str) -> Path | None:
    """Return the file or folder of the top-level module of a function; None for a built-in one."""
    load(name)
    top: Any = sys.modules[name.partition(":")[0].partition(".")[0]]
    file = getattr(top, "__file__", None)
    if file is None:
        return None
    return Path(file).parent if Path(file).name == "__init__.py" else Path(file)
