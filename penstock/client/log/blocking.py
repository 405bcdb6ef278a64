"""How a client that blocks runs coroutines: over a ``BlockingChannel`` they never wait for an event loop.

So each operation is written once, and a method that blocks is one line: ``append = blocking(Operations.append)``, with
the arguments, the result and the docstring of the coroutine.
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
    """A method that returns what the coroutine ``method`` of the core does."""

    @functools.wraps(method)
    def blocks(self: Blocking[C], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(method(self._core, *args, **kwargs))

    return blocks


def iterating(
    method: Callable[Concatenate[C, P], AsyncGenerator[T]],
) -> Callable[Concatenate[Blocking[C], P], Iterator[T]]:
    """A method that yields what the asynchronous generator ``method`` of the core does."""

    @functools.wraps(method)
    def iterates(self: Blocking[C], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return iterate(method(self._core, *args, **kwargs))

    return iterates


def iterate(items: AsyncGenerator[T]) -> Iterator[T]:
    """The items of an asynchronous generator, which is closed at the end."""
    try:
        while True:
            try:
                item = run(items.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        run(items.aclose())


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Returns the result of a coroutine that never waits for an event loop. Raises RuntimeError for one that does."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("this coroutine needs an event loop")
