"""Administration of topics and cursors, a part of the client of the log."""

from __future__ import annotations

from penstock.client.log import admin_calls as calls
from penstock.client.log.calls import names
from penstock.client.log.retrying_caller import ClientPart
from penstock.client.log.types import Compacted, Cursor, Gap, Setting, Swept, Topic


class Administration(ClientPart):
    """The administrative calls. All raise Unavailable, NotAllowed; those with a topic NoSuchTopic."""

    async def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return await self._caller.do(names())

    async def describe(self, *topics: str) -> list[Topic]:
        """Describe these topics, or all: offsets, sizes, gaps, cursors and settings."""
        return await self._caller.do(calls.describe(topics))

    async def create_topic(self, /, topic: str, **settings: Setting) -> Topic:
        """Create a topic. Sizes in bytes or as ``"16MiB"``, times in seconds or as ``"6h"``.

        Raises TopicExists, Refused for a bad name or setting, Exhausted when there are too many.
        """
        return await self._caller.do(calls.create(topic, settings))

    async def configure_topic(self, /, topic: str, **settings: Setting) -> Topic:
        """Change these settings, at once and permanently. Raises Refused for a bad one."""
        return await self._caller.do(calls.configure(topic, settings))

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic with all its entries."""
        await self._caller.do(calls.delete(topic))

    async def cursors(self, topic: str = "") -> list[Cursor]:
        """Return the named cursors of a topic, or of all topics."""
        return await self._caller.do(calls.cursors(topic))

    async def commit_cursor(self, topic: str, name: str, offset: int) -> None:
        """Set a cursor: every entry before ``offset`` is read. Durable on return. Raises Refused for a bad name."""
        await self._caller.do(calls.commit_cursor(topic, name, offset))

    async def remove_cursor(self, topic: str, name: str) -> None:
        """Remove a cursor; a missing one is not an error."""
        await self._caller.do(calls.remove_cursor(topic, name))

    async def verify(self, topic: str, begin: int = 0, end: int | None = None) -> list[Gap]:
        """Check checksums and index of the batches in [begin, end); return the gaps that damaged batches became."""
        return await self._caller.do(calls.verify(topic, begin, end or 0))

    async def compact(self, topic: str) -> Compacted:
        """Rewrite the sealed segments in larger batches, compressed if so configured."""
        return await self._caller.do(calls.compact(topic))

    async def cleanup(self) -> list[Swept]:
        """Drop everything that retention allows in all topics, now."""
        return await self._caller.do(calls.cleanup())

    async def post_ledger(self, document: str) -> bool:
        """Post counts to the ledger (JSON); return whether they were new. Raises Refused, Exhausted."""
        return await self._caller.do(calls.post_ledger(document))
