"""The page of Python's public names, from their signatures and docstrings."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from types import ModuleType
from typing import Any

ROOMS = {
    "penstock.client": "Senders, the logging handler, the clients of the log",
    "penstock.tables": "The tables, without Spark (`pip install 'penstock-pipe[sql]'`)",
    "penstock.spark": "The tables and the topics in Spark (`pip install 'penstock-pipe[spark]'`)",
    "penstock.kafka": "Messages of any size over Kafka (`pip install 'penstock-pipe[kafka]'`)",
    "penstock.kafka.auditing": "Auditors of Kafka clients",
    "penstock.sinks": "What a handler of one's own is",
    "penstock.log": "Topics in a folder, without a daemon",
    "penstock.config": "Settings, and how they are loaded",
    "penstock.testing": "For tests of programs around Penstock: see [testing](testing.md)",
    "penstock.records": "The schema of messages",
    "penstock.counts": "The names of counts, and where a batch comes from",
    "penstock.errors": "The error that all others are",
}
"""What is public, and what it is for."""
CHOSEN = {
    "penstock.records": ["SCHEMA", "BODY", "body"],
    "penstock.counts": ["Name", "Counts", "Origin"],
    "penstock.errors": ["PenstockError"],
    "penstock.tables": ["open", "NoSuchView"],
}
"""Of modules without ``__all__``."""
INTRODUCTION = """# Python

The public names, with what they say of themselves. What is not here may move in any version: see
[compatibility](compatibility.md#python). Everything is typed (`py.typed`). Every error that Penstock raises on
purpose is a `penstock.errors.PenstockError`, and of the builtin class that fits besides."""


def python_page() -> str:
    """The page, as Markdown."""
    lines = [line for room, told in ROOMS.items() for line in _room(room, told)]
    return "\n".join([INTRODUCTION, *lines, ""])


def names_of(room: str) -> list[str]:
    """What a room has that is public."""
    return CHOSEN.get(room) or list(importlib.import_module(room).__all__)


def _room(room: str, told: str) -> Iterator[str]:
    module = importlib.import_module(room)
    yield f"\n## `{room}`\n\n{told}."
    for name in names_of(room):
        value = getattr(module, name)
        if not isinstance(value, ModuleType):
            yield from _entry(room, name, value)


def _entry(room: str, name: str, value: Any) -> Iterator[str]:
    yield f"\n### `{name}`\n"
    if not (inspect.isclass(value) or callable(value)):
        yield f"```py\n{room}.{name} = {_shortly(value)}\n```"
        return
    if inspect.isclass(value) and issubclass(value, BaseException):
        bases = [base.__name__ for base in value.__bases__ if base is not object]
        yield f"{_told(value)} An error: `{'`, `'.join(bases)}`."
        return
    yield f"```py\n{_signature(name, value)}\n```\n\n{_told(value)}"
    if inspect.isclass(value) and not issubclass(value, Enum):
        yield from _members(value)


def _members(owner: type) -> Iterator[str]:
    rows = [_row(name, member) for name, member in _own(owner)]
    if rows:
        yield from ("\n| member | meaning |", "| --- | --- |", *rows)


def _own(owner: type) -> Iterator[tuple[str, Any]]:
    """Methods and properties of a class and its own bases that have something to say."""
    seen: set[str] = set()
    for base in owner.__mro__:
        for name, member in vars(base).items() if base.__module__.startswith("penstock") else ():
            inner = getattr(member, "__func__", member)
            if not name.startswith("_") and name not in seen and (callable(inner) or isinstance(inner, property)):
                seen.add(name)
                if inspect.getdoc(getattr(owner, name, inner)):
                    yield name, inner


def _row(name: str, member: Any) -> str:
    told = _cell(_marked(inspect.getdoc(member) or ""))
    return f"| `{_cell(name if isinstance(member, property) else _signature(name, member))}` | {told} |"


def _signature(name: str, value: Any) -> str:
    """A call as it is written; one that Python cannot tell, or that has the keys of a configuration, has dots."""
    if hasattr(value, "model_fields"):
        return f"class {name}(...)"
    if inspect.isclass(value) and issubclass(value, Enum):
        return f"class {name}({value.__base__.__name__})  # {', '.join(one.name for one in value)}"
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return f"{name}(...)"
    parameters = [one.replace(annotation=_plain(one.annotation)) for one in signature.parameters.values()]
    signature = signature.replace(
        parameters=[one for one in parameters if one.name != "self"],
        return_annotation=_plain(signature.return_annotation),
    )
    text = f"{'class ' if inspect.isclass(value) else ''}{name}{signature}"
    return re.sub(r"<[\w.]*?(\w+) object at 0x\w+>", r"\1()", text).replace("mappingproxy({})", "{}")


def _plain(annotation: Any) -> Any:
    """An annotation that prints as it is written in the code."""
    if annotation is inspect.Parameter.empty:
        return annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"ForwardRef\('(.*?)'\)", r"\1", text)
    return _Written(re.sub(r"\b(?:penstock|collections|typing|pathlib|pyarrow)(?:\.\w+)*\.(?=\w)", "", text))


class _Written(str):
    """A text whose representation is itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _told(value: Any) -> str:
    told = inspect.getdoc(value) or ""
    dataclasses_own = told.startswith(f"{getattr(value, '__name__', '')}(")
    return "" if dataclasses_own else _marked(told)


def _shortly(value: Any) -> str:
    text = repr(value) if not hasattr(value, "names") else ", ".join(f"{one.name}: {one.type}" for one in value)
    return text if len(text) < 400 else f"{text[:400]}..."


def _marked(text: str) -> str:
    """A docstring as Markdown: its indented examples and lists stay, tags and emphasis are words."""
    return re.sub(r"(?<!`)([<>*])", r"\\\1", text.replace("``", "`"))


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()
