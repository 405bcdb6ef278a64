"""What an object store answers where it does not do what it was asked, in one line."""

from __future__ import annotations

import errno
import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from penstock.errors import PenstockError

KEYS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_SERVICE_ACCOUNT",
    "abfss": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
"""What people give for credentials, by the URL's scheme."""
WHERE = "in pipeline.storage_options or the environment"
CODES = {
    "InvalidAccessKeyId": f"AWS_ACCESS_KEY_ID {WHERE} is not known there",
    "SignatureDoesNotMatch": f"AWS_SECRET_ACCESS_KEY {WHERE} is wrong",
    "InvalidToken": f"AWS_SESSION_TOKEN {WHERE} is wrong",
    "ExpiredToken": f"AWS_SESSION_TOKEN {WHERE} has expired",
    "NoSuchBucket": "pipeline.tables names a bucket that is not there",
}
"""What is wrong, by the word of S3."""
TEXTS = {
    "169.254.169.254": f"no credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are to be {WHERE}",
    "URL scheme is not allowed": 'an endpoint without TLS needs storage_options.AWS_ALLOW_HTTP = "true"',
}
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Seconds between tries."""
_OF_A_STORE = re.compile(r"Generic \w+ error|Error performing|error sending request")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_NO_RIGHT = re.compile(r"\b40[13] \w+|Permission ?Denied|Unauthenticated", re.IGNORECASE)
_DECORATION = re.compile(r"\x1b\[[0-9;]*m|↳")
_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")


class StoreError(PenstockError, OSError):
    """An object store did not do what it was asked. ``errno`` is set: what has none is a file that is no Parquet."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(number, text)

    def __str__(self) -> str:
        return str(self.strerror)


class TablesAway(StoreError):
    """The object store cannot be reached, or not now: try again later."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.EHOSTUNREACH, text)


class TablesRefused(StoreError):
    """The object store says no, and would say so again; the text names the key to look at."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.EACCES, text)


@contextmanager
def translate_store_errors(url: str) -> Iterator[None]:
    """Raises TablesAway or TablesRefused where a store is asked and does not give; what else happens passes."""
    try:
        yield
    except (PenstockError, FileNotFoundError):
        raise
    except Exception as error:
        if not _OF_A_STORE.search(str(error)):  # delta-rs has no class of its own for it
            raise
        raise interpret_error(str(error), url) from None


def interpret_error(text: str, url: str) -> TablesAway | TablesRefused:
    """What delta-rs's words mean."""
    code = _CODE.search(text)
    if code and code[1] in CODES:
        return TablesRefused(f"{url} is refused: {CODES[code[1]]}")
    for part, meaning in TEXTS.items():
        if part in text:
            return TablesRefused(f"{url}: {meaning}")
    if _NO_RIGHT.search(text):
        keys = KEYS.get(url.partition("://")[0], "the credentials")
        return TablesRefused(f"{url} is refused{f' ({code[1]})' if code else ''}: look at {keys} {WHERE}")
    lines = [line.strip() for line in _DECORATION.sub("", text).splitlines() if line.strip()]
    return TablesAway(f"{url} cannot be reached: {(code[1] if code else lines[-1])[:200]}")


def retry_while_away(what: Callable[[], T], stop: threading.Event) -> T:
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
