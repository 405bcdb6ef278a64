"""Listeners by name, for commands that talk to one."""

from __future__ import annotations

from penstock.cli.common import fail
from penstock.config import ListenerConfig, Settings
from penstock.supervise.endpoints import endpoints

ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
"""Where to find what listens on all addresses."""


def listener_of(settings: Settings, name: str | None) -> ListenerConfig:
    """The listener called ``name``, else the first of datagrams or lines; or the end with the names there are."""
    found = [each for each in settings.listener if each.name == name or (name is None and not each.asks_answers)]
    if not found:
        known = ", ".join(listener.name for listener in settings.listener)
        fail(f"there is no listener {name!r}: known are {known}" if known else "no listener is configured", 2)
    if found[0].asks_answers:
        fail(
            f"listener {name!r} takes requests ({found[0].protocol}), no commands and no lines: see docs/requests.md", 2
        )
    return found[0]


def address_of(settings: Settings, listener: ListenerConfig) -> tuple[str, int]:
    """Host and port to send to: of the running receiver where there is one, as port 0 takes a free one."""
    host, port = listener.host, listener.port
    try:
        host, port = endpoints(settings.data_dir)["listeners"][listener.name]
    except (ValueError, KeyError, TypeError):
        if not port:
            fail(f"listener {listener.name!r} takes a free port, and no penstock runs in {settings.data_dir}", 2)
    return ANY.get(host, host), int(port)
