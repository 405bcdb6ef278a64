"""A handler of one's own, as a package would bring it: it does what stands in a file."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
from pydantic import BaseModel

from penstock.counts import Origin
from penstock.sinks import Delivered


class Wayward:
    """Appends the payloads to ``folder/taken``, unless ``folder/mode`` says raise, hang or exit."""

    class Settings(BaseModel):
        """What may stand in the configuration."""

        folder: Path
        limit: int = 0

    def __init__(self, settings: Settings) -> None:
        self._mode, self._taken = settings.folder / "mode", settings.folder / "taken"
        self._closed = settings.folder / "closed"

    def deliver(self, batch: pa.RecordBatch, origin: Origin) -> Delivered:
        """Take ``batch``."""
        mode = self._mode.read_text()
        if mode == "raise":
            raise ValueError("it does not like them")
        if mode == "exit":
            os._exit(3)
        while self._mode.read_text() == "hang":
            time.sleep(0.02)
        with self._taken.open("ab") as file:
            file.write(b"".join(payload + b"\n" for payload in batch.column("payload").to_pylist()))
        return Delivered(batch.num_rows)

    def stat(self) -> dict[str, int]:
        """How much it has taken."""
        return {"bytes": self._taken.stat().st_size if self._taken.exists() else 0}

    def close(self) -> None:
        """It may go in peace."""
        self._closed.touch()


def plain(folder: str, limit: int = 0) -> Wayward:
    """The same as a function: its settings come as keyword arguments."""
    return Wayward(Wayward.Settings(folder=Path(folder), limit=limit))


def broken(reason: str) -> Wayward:
    """One that cannot be made."""
    raise RuntimeError(reason)


def slow(folder: str, seconds: float) -> Wayward:
    """One that takes its time to be made."""
    (Path(folder) / "begun").touch()
    time.sleep(seconds)
    return plain(folder)
