"""Statistics of plog's protocol: the answer to STAT, under the names of plog's own keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.wire.datagrams import Ints

CLASSES = 17
"""Number of log2 classes of 16-bit numbers: 0 | 1 | 2-3 | 4-7 ... 32768-65535."""
MAX_ADDRESSES, UNATTRIBUTED = 10_000, 0
METERS = (
    "byteRate",
    "messageRate",
    "failedSendRate",
    "resendRate",
    "droppedMessageRate",
    "serializationErrorRate",
)


def log2_class(numbers: Ints) -> Ints:
    """Return the class of each number in 0..65535: 0 for 0, else 1 + floor(log2)."""
    return np.frexp(numbers.astype(np.float64))[1].astype(np.int64)


class SenderLosses:
    """Losses by the first part of their name and by address (``Datagrams.addresses``), until they are taken.

    ``UNATTRIBUTED`` has the losses beyond MAX_ADDRESSES.
    """

    def __init__(self) -> None:
        self._by_name_and_address: dict[tuple[str, int], int] = {}

    def add(self, name: str, address: int, amount: int = 1) -> None:
        """Add losses of one sender; a negative amount takes some back."""
        # Limit: a codec without a sender table never takes the losses.
        is_full = len(self._by_name_and_address) >= MAX_ADDRESSES
        key = (name.rstrip("."), address)
        key = (key[0], UNATTRIBUTED) if is_full and key not in self._by_name_and_address else key
        self._by_name_and_address[key] = self._by_name_and_address.get(key, 0) + amount

    def add_all(self, name: str, addresses: np.ndarray) -> None:
        """Add one loss for each entry of ``addresses``."""
        if len(addresses):
            distinct, amounts = np.unique(addresses, return_counts=True)
            for address, amount in zip(distinct.tolist(), amounts.tolist(), strict=True):
                self.add(name, address, amount)

    def remove_all(self) -> dict[tuple[str, int], int]:
        """Return the losses by name and address, and forget them."""
        losses, self._by_name_and_address = self._by_name_and_address, {}
        return losses


class Statistics:
    """Counters of one listener since its receiver started; never reset, as in plog."""

    def __init__(self) -> None:
        self.udp_simple_messages = 0
        self.udp_invalid_version = 0
        self.v0_invalid_type = 0
        self.v0_invalid_multipart_header = 0
        self.unknown_command = 0
        self.v0_commands = 0
        self.v0_multipart_messages = 0
        self.exceptions = 0
        self.unhandled_objects = 0
        self.holes_from_dead_port = 0
        self.holes_from_new_message = 0
        self._losses = SenderLosses()
        self.evictions = 0
        self.hits = 0
        self.misses = 0
        self._fragments = np.zeros(CLASSES, np.int64)
        self._invalid_checksum = np.zeros(CLASSES, np.int64)
        self._invalid_fragments = np.zeros((CLASSES, CLASSES), np.int64)
        self._dropped_fragments = np.zeros((CLASSES, CLASSES), np.int64)

    @property
    def losses(self) -> SenderLosses:
        """The losses by sender since the receiver last took them; no key of plog's."""
        return self._losses

    def add_fragments(self, index: Ints) -> None:
        """Count fragments that have a readable header, by their index."""
        self._fragments += np.bincount(log2_class(index), minlength=CLASSES)

    def add_invalid(self, count: Ints, index: Ints) -> None:
        """Count invalid fragments by the fragment count of their message and by their index."""
        # np.add.at, because an indexed += would count repeated pairs of a batch once.
        np.add.at(self._invalid_fragments, (log2_class(count - 1), log2_class(index)), 1)

    def add_bad_checksums(self, count: Ints) -> None:
        """Count messages with a wrong hash by their fragment count."""
        np.add.at(self._invalid_checksum, log2_class(count - 1), 1)

    def add_dropped(self, count: int, received: Ints) -> None:
        """Count the fragments of a dropped message that are not among the ``received`` indices."""
        self.evictions += 1
        bounds = np.minimum(np.array([0, *(1 << np.arange(CLASSES))]), count)
        missing = np.diff(bounds) - np.bincount(log2_class(received), minlength=CLASSES)
        self._dropped_fragments[(count - 1).bit_length()] += missing

    def as_dict(self) -> dict[str, Any]:
        """Return plog's keys: the documented ones and the ones its server adds.

        The caller adds version, uptime and handlers, and fills the meters below ``kafka``.
        """
        cache = {"evictions": self.evictions, "hits": self.hits, "misses": self.misses}
        counters = {name: value for name, value in vars(self).items() if name[0] != "_" and name not in cache}
        return {
            **counters,
            "v0_fragments": self._fragments.tolist(),
            "v0_invalid_checksum": self._invalid_checksum.tolist(),
            "v0_invalid_fragments": _triangle(self._invalid_fragments),
            "dropped_fragments": _triangle(self._dropped_fragments),
            "defragmenter": cache,
            "cache": dict(cache),
            "failed_to_send": 0,
            "kafka": {name: {"count": 0, "rate": [0.0, 0.0, 0.0]} for name in METERS},
        }


def _triangle(square: Ints) -> list[list[int]]:
    # A message's fragments have no index beyond their message's own class, so row i has i + 1 entries.
    return [row[: i + 1] for i, row in enumerate(square.tolist())]
