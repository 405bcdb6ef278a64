"""Runs the client's coroutines without an event loop: over a ``BlockingChannel`` they never wait for one.

Each operation is written once as a coroutine; a blocking method is one line, ``append = blocking(Operations.append)``,
with the arguments, the return value and the docstring of the coroutine.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

C = TypeVar("C", covariant=True)
P = ParamSpec("P")
T = TypeVar("T")


class Blocking(Generic[C]):
    """An object whose methods block until the coroutines of ``_core`` are done."""

    def __init__(self, core: C) -> None:
        self._core = core


def blocking(method: Callable[Concatenate[C, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Blocking[C], P], T]:
    """Return a method that runs the coroutine ``method`` of the core."""

    @functools.wraps(method)
    def blocks(self: Blocking[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(method(self._core, *args, **kwargs))

    return blocks


def iterating(
    method: Callable[Concatenate[C, P], AsyncGenerator[T]],
) -> Callable[Concatenate[Blocking[C], P], Iterator[T]]:
    """Return a method that iterates over the asynchronous generator ``method`` of the core."""

    @functools.wraps(method)
    def iterates(self: Blocking[C], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return iterate(method(self._core, *args, **kwargs))

    return iterates


def iterate(generator: AsyncGenerator[T]) -> Iterator[T]:
    """Iterate over an asynchronous generator, and close it at the end."""
    try:
        while True:
            try:
                element = run(generator.__anext__())
            except StopAsyncIteration:
                return
            yield element
    finally:
        # Also if the caller leaves the loop early: the generator's call is then cancelled.
        run(generator.aclose())


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits for an event loop. Raises RuntimeError otherwise."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        returned: T = end.value
        return returned
    coroutine.close()
    raise RuntimeError("this coroutine needs an event loop")
