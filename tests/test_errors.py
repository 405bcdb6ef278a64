"""All errors form one tree, and the docstring of ``errors.py`` shows it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import penstock
from penstock import errors
from penstock.errors import PenstockError


def exception_classes() -> Iterator[type[BaseException]]:
    """Yield all exceptions that the package defines."""
    for module in pkgutil.walk_packages(penstock.__path__, "penstock."):
        for _, cls in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if issubclass(cls, BaseException) and cls.__module__ == module.name:
                yield cls


def draw_tree() -> str:
    """Return the tree: one line for each error, below its base, with its module."""
    children: dict[type, list[type]] = {}
    for cls in exception_classes():
        if issubclass(cls, PenstockError) and cls is not PenstockError and not cls.__name__.startswith("_"):
            children.setdefault(next(base for base in cls.__bases__ if issubclass(base, PenstockError)), []).append(cls)

    def lines(base: type, depth: int) -> Iterator[str]:
        for cls in sorted(children.get(base, []), key=lambda child: (child.__module__, child.__name__)):
            module = cls.__module__.removeprefix("penstock.")
            suffix = f"  ({module})" if module != base.__module__.removeprefix("penstock.") else ""
            yield f"{'    ' * depth}{cls.__name__}{suffix}"
            yield from lines(cls, depth + 1)

    return "\n".join(["PenstockError", *lines(PenstockError, 1)])


def test_docstring_shows_the_tree_of_errors() -> None:
    picture = (errors.__doc__ or "").partition("\n\n")[2]
    assert picture.strip() == draw_tree()


def test_every_public_error_is_a_penstock_error() -> None:
    # Caught where it is raised; what crashes and broken promises look like to the code under test.
    internal = {"_NotStrict", "_NoShape", "Crashed", "Broken", "Killed"}
    foreign = {cls.__name__ for cls in exception_classes() if not issubclass(cls, PenstockError)}
    assert foreign <= internal
