"""Waiting for an object store that is away."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from penstock.landing.storage.object_errors import TablesAway

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Seconds between tries."""
_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")


def through_absence(what: Callable[[], T], stop: threading.Event) -> T:
    """What a function returns, called until the tables are there. Raises TablesAway only once ``stop`` is set."""
    pause, told = FIRST_PAUSE, False
    while True:
        try:
            found = what()
        except TablesAway as error:
            if not told:
                _LOGGER.warning("landing waits, and nothing is lost: %s", error)
            told = True
            if stop.wait(pause):
                raise
            pause = min(pause * 2, LONGEST_PAUSE)
        else:
            if told:
                _LOGGER.info("the tables are there again: landing goes on")
            return found
