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
    "penstock.sinks": "The interface of your own handlers",
    "penstock.log": "Topics in a folder, without a daemon",
    "penstock.config": "Settings and their loader",
    "penstock.testing": "For tests of programs around Penstock: see [testing](testing.md)",
    "penstock.records": "The schema of messages",
    "penstock.counts": "Names of counts, and the origin of a batch",
    "penstock.errors": "The base class of all errors",
}
"""Public rooms and their purpose."""
NAMES_OF_MODULES = {
    "penstock.records": ["SCHEMA", "BODY", "body"],
    "penstock.counts": ["Name", "Counts", "Origin"],
    "penstock.errors": ["PenstockError"],
    "penstock.tables": ["open", "NoSuchView"],
}
"""Public names of modules without ``__all__``."""
INTRODUCTION = """# Python

The public names with their descriptions. Other names may change in any version, see
[compatibility](compatibility.md#python). Everything is typed (`py.typed`). Every error that Penstock raises on
purpose is a `penstock.errors.PenstockError` and an instance of the builtin class that fits."""


def python_page() -> str:
    """Return the page as Markdown."""
    lines = [line for room, description in ROOMS.items() for line in _room(room, description)]
    return "\n".join([INTRODUCTION, *lines, ""])


def names_of(room: str) -> list[str]:
    """Return the public names of a room."""
    return NAMES_OF_MODULES.get(room) or list(importlib.import_module(room).__all__)


def _room(room: str, description: str) -> Iterator[str]:
    module = importlib.import_module(room)
    yield f"\n## `{room}`\n\n{description}."
    for name in names_of(room):
        value = getattr(module, name)
        if not isinstance(value, ModuleType):
            yield from _entry(room, name, value)


def _entry(room: str, name: str, value: Any) -> Iterator[str]:
    yield f"\n### `{name}`\n"
    if not (inspect.isclass(value) or callable(value)):
        yield f"```py\n{room}.{name} = {_short_text(value)}\n```"
        return
    if inspect.isclass(value) and issubclass(value, BaseException):
        bases = [base.__name__ for base in value.__bases__ if base is not object]
        yield f"{_description(value)} An error: `{'`, `'.join(bases)}`."
        return
    yield f"```py\n{_signature(name, value)}\n```\n\n{_description(value)}"
    if inspect.isclass(value) and not issubclass(value, Enum):
        yield from _members(value)


def _members(owner: type) -> Iterator[str]:
    rows = [_row(name, member) for name, member in _public_members(owner)]
    if rows:
        yield from ("\n| member | meaning |", "| --- | --- |", *rows)


def _public_members(owner: type) -> Iterator[tuple[str, Any]]:
    """Yield the documented public methods and properties of a class and of Penstock's base classes."""
    seen: set[str] = set()
    for base in owner.__mro__:
        for name, member in vars(base).items() if base.__module__.startswith("penstock") else ():
            inner = getattr(member, "__func__", member)
            if not name.startswith("_") and name not in seen and (callable(inner) or isinstance(inner, property)):
                seen.add(name)
                if inspect.getdoc(getattr(owner, name, inner)):
                    yield name, inner


def _row(name: str, member: Any) -> str:
    description = _cell(_to_markdown(inspect.getdoc(member) or ""))
    return f"| `{_cell(name if isinstance(member, property) else _signature(name, member))}` | {description} |"


def _signature(name: str, value: Any) -> str:
    """Return a call as it is written; dots if Python has no signature for it, or for a section of the configuration."""
    if hasattr(value, "model_fields"):
        return f"class {name}(...)"
    if inspect.isclass(value) and issubclass(value, Enum):
        return f"class {name}({value.__bases__[0].__name__})  # {', '.join(entry.name for entry in value)}"
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return f"{name}(...)"
    parameters = [
        parameter.replace(annotation=_plain(parameter.annotation)) for parameter in signature.parameters.values()
    ]
    signature = signature.replace(
        parameters=[parameter for parameter in parameters if parameter.name != "self"],
        return_annotation=_plain(signature.return_annotation),
    )
    text = f"{'class ' if inspect.isclass(value) else ''}{name}{signature}"
    return re.sub(r"<[\w.]*?(\w+) object at 0x\w+>", r"\1()", text).replace("mappingproxy({})", "{}")


def _plain(annotation: Any) -> Any:
    """Return an annotation that prints as in the code."""
    if annotation is inspect.Parameter.empty:
        return annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"ForwardRef\('(.*?)'\)", r"\1", text)
    return _Verbatim(re.sub(r"\b(?:penstock|collections|typing|pathlib|pyarrow)(?:\.\w+)*\.(?=\w)", "", text))


class _Verbatim(str):
    """A text whose representation is the text itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _description(value: Any) -> str:
    description = inspect.getdoc(value) or ""
    is_generated = description.startswith(f"{getattr(value, '__name__', '')}(")
    return "" if is_generated else _to_markdown(description)


def _short_text(value: Any) -> str:
    text = repr(value) if not hasattr(value, "names") else ", ".join(f"{entry.name}: {entry.type}" for entry in value)
    return text if len(text) < 400 else f"{text[:400]}..."


def _to_markdown(text: str) -> str:
    """Escape a docstring for Markdown: indented examples and lists stay, tags and emphasis are literal."""
    return re.sub(r"(?<!`)([<>*])", r"\\\1", text.replace("``", "`"))


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()
