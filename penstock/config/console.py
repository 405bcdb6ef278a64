"""Keys of the web console."""

from __future__ import annotations

from pydantic import Field

from penstock.config.values import Address, Group


class ConsoleConfig(Group):
    """The web console."""

    http: Address = Field("127.0.0.1:8840", description="address of the web console")
