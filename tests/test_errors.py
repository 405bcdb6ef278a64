"""All errors are one tree, and the tree in ``errors.py`` is the true one."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import penstock
from penstock import errors
from penstock.errors import PenstockError

CHILD_PROCESSES = ("penstock.process.without_pandas",)
"""Modules that change the process that imports them."""


def classes() -> Iterator[type[BaseException]]:
    """All exceptions that the package defines."""
    for found in pkgutil.walk_packages(penstock.__path__, "penstock."):
        if found.name not in CHILD_PROCESSES:
            for _, one in inspect.getmembers(importlib.import_module(found.name), inspect.isclass):
                if issubclass(one, BaseException) and one.__module__ == found.name:
                    yield one


def drawn() -> str:
    """The tree as it is: one line for each error, below its base, with its module."""
    children: dict[type, list[type]] = {}
    for one in classes():
        if issubclass(one, PenstockError) and one is not PenstockError and not one.__name__.startswith("_"):
            children.setdefault(next(base for base in one.__bases__ if issubclass(base, PenstockError)), []).append(one)

    def lines(of: type, depth: int) -> Iterator[str]:
        for one in sorted(children.get(of, []), key=lambda one: (one.__module__, one.__name__)):
            module = one.__module__.removeprefix("penstock.")
            place = f"  ({module})" if module != of.__module__.removeprefix("penstock.") else ""
            yield f"{'    ' * depth}{one.__name__}{place}"
            yield from lines(one, depth + 1)

    return "\n".join(["PenstockError", *lines(PenstockError, 1)])


def test_the_tree_of_errors_is_drawn_as_it_is() -> None:
    picture = (errors.__doc__ or "").partition("\n\n")[2]
    assert picture.strip() == drawn()


def test_everything_raised_on_purpose_is_a_penstock_error() -> None:
    inside = {"_NotStrict", "Crashed"}  # caught where it is raised; what a crash looks like to the code under test
    others = {one.__name__ for one in classes() if not issubclass(one, PenstockError)}
    assert others <= inside
