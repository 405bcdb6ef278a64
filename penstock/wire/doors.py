"""The doors of an HTTP listener: a protocol is one file here in ``wire`` and one entry in this table."""

from __future__ import annotations

from collections.abc import Callable

from penstock.wire.bulk import BulkDoor
from penstock.wire.hec import HecDoor
from penstock.wire.json_documents import JsonDoor
from penstock.wire.loki import LokiDoor
from penstock.wire.otlp.door import OtlpDoor
from penstock.wire.requests import Door

DOORS: tuple[Callable[[], Door], ...] = (OtlpDoor, HecDoor, LokiDoor, BulkDoor, JsonDoor)
