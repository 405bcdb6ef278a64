"""Which topics who looks at a page may read."""

from __future__ import annotations

from penstock.console.daemon_poll import Daemon


async def readable_topics(daemon: Daemon) -> frozenset[str] | None:
    """Their names; None for all, where nobody has to log in. Raises Away."""
    if not daemon.token:
        return None
    return frozenset(topic["name"] for topic in (await daemon.get("/topics")).get("topic", ()))
