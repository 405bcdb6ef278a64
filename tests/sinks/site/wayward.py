"""A user's handler, as a package would contain it: a file tells it how to behave."""

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
        """The handler's configuration."""

        folder: Path
        limit: int = 0

    def __init__(self, settings: Settings) -> None:
        self._mode, self._delivered = settings.folder / "mode", settings.folder / "taken"
        self._closed = settings.folder / "closed"

    def deliver(self, batch: pa.RecordBatch, origin: Origin) -> Delivered:
        """Deliver ``batch``."""
        mode = self._mode.read_text()
        if mode == "raise":
            raise ValueError("it does not like them")
        if mode == "exit":
            os._exit(3)
        while self._mode.read_text() == "hang":
            time.sleep(0.02)
        with self._delivered.open("ab") as file:
            file.write(b"".join(payload + b"\n" for payload in batch.column("payload").to_pylist()))
        return Delivered(batch.num_rows)

    def stat(self) -> dict[str, int]:
        """Return the number of delivered bytes."""
        return {"bytes": self._delivered.stat().st_size if self._delivered.exists() else 0}

    def close(self) -> None:
        """Record that the handler was closed."""
        self._closed.touch()


def plain(folder: str, limit: int = 0) -> Wayward:
    """Return the same handler from a function, which gets its settings as keyword arguments."""
    return Wayward(Wayward.Settings(folder=Path(folder), limit=limit))


def broken(reason: str) -> Wayward:
    """Raise, as a handler that cannot be created."""
    raise RuntimeError(reason)


def slow(folder: str, seconds: float) -> Wayward:
    """Return a handler after some seconds."""
    (Path(folder) / "begun").touch()
    time.sleep(seconds)
    return plain(folder)
