"""The person who looks at a page: name, role, and address of the browser."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from penstock.errors import PenstockError


class Role(StrEnum):
    """Rights of a person in the console."""

    VIEWER = "viewer"
    """See all pages."""
    OPERATOR = "operator"
    """See all pages, send messages, repair the quarantine, acknowledge and mute alarms."""


class ReadOnly(PenstockError):
    """The person may look at pages and change nothing."""


@dataclass(frozen=True, slots=True)
class Person:
    """A person; without a name if the console needs no login.

    ``token`` is the one of ``[security.tokens]`` that the person logged in with, "" for other ways.
    """

    name: str = ""
    role: Role = Role.OPERATOR
    origin: str = ""
    token: str = field(default="", repr=False)
    has_session: bool = False
    """False for a person whom a proxy has logged in, who logs out there."""

    @property
    def is_operator(self) -> bool:
        """Report whether the person may change anything."""
        return self.role is Role.OPERATOR

    def check_operator(self) -> None:
        """Raise ReadOnly for a viewer."""
        if not self.is_operator:
            raise ReadOnly(f"{self.name} is a viewer: only an operator may do this")


NOBODY = Person()
