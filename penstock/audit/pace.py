"""The progress of an audit that reads much: how much is read, how fast, and how long it will take."""

from __future__ import annotations

import time
from collections.abc import Callable

MIN_RATED_S = 1.0
"""Time before a rate is shown: that of the first batches says little."""


class Pace:
    """Counts ``unit``, of about ``total``, and passes the text of each step to ``show``.

    ``total`` may be too small: a table keeps rows of records that have expired. Beyond it no time is estimated.
    """

    def __init__(
        self, unit: str, total: int, show: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._unit, self._total, self._show, self._clock = unit, total, show, clock
        self._began_s = clock()
        self._count = 0

    def advance(self, count: int) -> None:
        """Add ``count`` units that were read."""
        self._count += count
        elapsed_s = self._clock() - self._began_s
        is_within = self._count <= self._total
        text = f"{self._count:,} {f'of {self._total:,} ' if is_within else ''}{self._unit}"
        if elapsed_s >= MIN_RATED_S and self._count:
            rate = self._count / elapsed_s
            text += f", {rate:,.0f} a second"
            if is_within:
                text += f", {_duration((self._total - self._count) / rate)} left"
        self._show(text)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
