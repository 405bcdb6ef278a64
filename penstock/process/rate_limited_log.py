"""Telling people what is wrong, but not the same thing again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

SAY_AGAIN = 60.0
"""Seconds until the same complaint is made again."""


class Complaints:
    """Hands lines on to ``tell``, each once a minute."""

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell, self._clock = tell, clock
        self._told: dict[str, float] = {}

    def say(self, line: str) -> None:
        """Tell people, unless they were told lately."""
        now = self._clock()
        self._told = {told: at for told, at in self._told.items() if now - at < SAY_AGAIN}
        if line not in self._told:
            self._told[line] = now
            self._tell(line)


def to_stderr(line: str) -> None:
    """How Penstock's processes talk to people."""
    print(f"penstock: {line}", file=sys.stderr, flush=True)
