"""Looking after topics and cursors, as a part of the client of the log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

from penstock.client.log import admin_calls as calls
from penstock.client.log.calls import Call, names
from penstock.client.log.types import Compacted, Cursor, Gap, Setting, Swept, Topic

T = TypeVar("T")


class Administration(ABC):
    """The calls that look after topics. All raise Unavailable, NotAllowed; those with a topic NoSuchTopic."""

    @abstractmethod
    def _do(self, call: Call[T]) -> T: ...

    def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return self._do(names())

    def describe(self, *topics: str) -> list[Topic]:
        """What there is to know of these topics, or of all."""
        return self._do(calls.describe(topics))

    def create_topic(self, topic: str, **settings: Setting) -> Topic:
        """Create a topic. Sizes in bytes or as ``"16MiB"``, times in seconds or as ``"6h"``.

        Raises TopicExists, Refused for a bad name or setting, Exhausted when there are too many.
        """
        return self._do(calls.create(topic, settings))

    def configure_topic(self, topic: str, **settings: Setting) -> Topic:
        """Change the settings given, at once and for good. Raises Refused for a bad one."""
        return self._do(calls.configure(topic, settings))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with all that is in it."""
        self._do(calls.delete(topic))

    def cursors(self, topic: str = "") -> list[Cursor]:
        """The named cursors of a topic, or of all topics."""
        return self._do(calls.cursors(topic))

    def commit_cursor(self, topic: str, name: str, offset: int) -> None:
        """Set a cursor: all before ``offset`` was read. Durable when this returns. Raises Refused for a bad name."""
        self._do(calls.commit_cursor(topic, name, offset))

    def remove_cursor(self, topic: str, name: str) -> None:
        """Forget a cursor; nothing happens when there is none."""
        self._do(calls.remove_cursor(topic, name))

    def verify(self, topic: str, begin: int = 0, end: int | None = None) -> list[Gap]:
        """Check checksums and index of what is stored in [begin, end); the gaps that bad batches became."""
        return self._do(calls.verify(topic, begin, end or 0))

    def compact(self, topic: str) -> Compacted:
        """Rewrite the sealed segments in larger batches, compressed if so configured."""
        return self._do(calls.compact(topic))

    def cleanup(self) -> list[Swept]:
        """Drop what retention allows in all topics, now."""
        return self._do(calls.cleanup())


class AsyncAdministration(ABC):
    """As ``Administration``, with coroutines."""

    @abstractmethod
    async def _do(self, call: Call[T]) -> T: ...

    async def topics(self) -> list[str]:
        """As ``Administration.topics``."""
        return await self._do(names())

    async def describe(self, *topics: str) -> list[Topic]:
        """As ``Administration.describe``."""
        return await self._do(calls.describe(topics))

    async def create_topic(self, topic: str, **settings: Setting) -> Topic:
        """As ``Administration.create_topic``."""
        return await self._do(calls.create(topic, settings))

    async def configure_topic(self, topic: str, **settings: Setting) -> Topic:
        """As ``Administration.configure_topic``."""
        return await self._do(calls.configure(topic, settings))

    async def delete_topic(self, topic: str) -> None:
        """As ``Administration.delete_topic``."""
        await self._do(calls.delete(topic))

    async def cursors(self, topic: str = "") -> list[Cursor]:
        """As ``Administration.cursors``."""
        return await self._do(calls.cursors(topic))

    async def commit_cursor(self, topic: str, name: str, offset: int) -> None:
        """As ``Administration.commit_cursor``."""
        await self._do(calls.commit_cursor(topic, name, offset))

    async def remove_cursor(self, topic: str, name: str) -> None:
        """As ``Administration.remove_cursor``."""
        await self._do(calls.remove_cursor(topic, name))

    async def verify(self, topic: str, begin: int = 0, end: int | None = None) -> list[Gap]:
        """As ``Administration.verify``."""
        return await self._do(calls.verify(topic, begin, end or 0))

    async def compact(self, topic: str) -> Compacted:
        """As ``Administration.compact``."""
        return await self._do(calls.compact(topic))

    async def cleanup(self) -> list[Swept]:
        """As ``Administration.cleanup``."""
        return await self._do(calls.cleanup())
