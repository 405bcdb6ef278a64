"""Keys of the web console."""

from __future__ import annotations

from pydantic import Field

from penstock.config.keys.values import Address, Section


class ConsoleConfig(Section):
    """The web console."""

    http: Address = Field("127.0.0.1:8840", description="Address of the web console.")
