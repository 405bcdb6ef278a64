"""The log buffer: whole batches and large frames in and out, against plain copies of the same bytes.

Best of many rounds, as memory is shared with whatever else runs.
"""

from __future__ import annotations

import mmap
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from penstock.logbuffer import AdminAction, Parameters, mtu_for
from penstock.logbuffer.aeron import ExclusivePublication, Image

COUNT = 10_000
SIZE = 256
LARGE = 1 << 20
TERM = 16 << 20
ROUNDS = 200


def measure() -> dict[str, Any]:
    """Messages a second and GB/s (1e9 bytes), each with its ratio to the plain copy in the same run."""
    chance = np.random.default_rng(1)
    data = chance.integers(0, 256, COUNT * 2 * SIZE, dtype=np.uint8)
    equal = np.arange(COUNT + 1) * SIZE
    variable = np.concatenate([[0], np.cumsum(chance.integers(0, 2 * SIZE, COUNT))])
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        plain = _plain(Path(folder, "plain"))
        results = _batch("equal", Path(folder, "equal"), data, equal, plain)
        results |= _batch("variable", Path(folder, "variable"), data, variable, plain)
        results |= _large(Path(folder, "large"), data[:LARGE], plain)
    return results


def _batch(name: str, path: Path, data: np.ndarray, offsets: np.ndarray, plain: np.ndarray) -> dict[str, Any]:
    publication = _create(path)
    size = int(publication_bytes(offsets))
    spent = min(_append(publication, data, offsets, size) for _ in range(ROUNDS))
    kept = _cleaned(publication, data, offsets, size)
    read = _read_run(path, publication.position - size, size)
    publication.close()
    copied = min(_timed(partial(_copy, plain, at, data[:size])) for at in _places(size))
    return {
        f"append_{name}_messages_per_s": round(COUNT / spent),
        f"append_{name}_and_clean_messages_per_s": round(COUNT / kept),
        f"append_{name}_ratio_to_memcpy": round(copied / spent, 2),
        f"block_poll_{name}_messages_per_s": round(COUNT / read),
    }


def publication_bytes(offsets: np.ndarray) -> int:
    """What the messages take as frames."""
    return int(((np.diff(offsets) + 63) & -32).sum())


def _create(path: Path) -> ExclusivePublication:
    publication = ExclusivePublication.create(path, Parameters(TERM, mtu_for(LARGE), 1, 1, 0))
    publication.window = TERM
    publication.consumed(0)
    return publication


def _room(publication: ExclusivePublication, size: int) -> None:
    """Everything was read; and a term that is too full for ``size`` bytes is left."""
    publication.consumed(publication.position)
    if TERM - publication.position % TERM < size:
        try:
            publication.append_padding(TERM // 8)
        except AdminAction:
            publication.consumed(publication.position)
        else:
            _room(publication, size)


def _append(publication: ExclusivePublication, data: np.ndarray, offsets: np.ndarray, size: int) -> float:
    _room(publication, size)
    seconds = _timed(lambda: publication.offer_batch(data, offsets))
    assert publication.position % TERM >= size
    return seconds


def _cleaned(publication: ExclusivePublication, data: np.ndarray, offsets: np.ndarray, size: int) -> float:
    """Seconds a batch with all that belongs to it: limit, rotation, cleaning."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        _append(publication, data, offsets, size)
        best = min(best, time.perf_counter() - started)
    return best


def _read_run(path: Path, position: int, size: int) -> float:
    best = float("inf")
    with Image(path, position) as subscription:
        for _ in range(20):
            subscription.position = position
            started = time.perf_counter()
            block = subscription.block_poll()
            best = min(best, time.perf_counter() - started)
            assert block is not None
            assert block.end - block.begin == size
            del block
    return best


def _large(path: Path, message: np.ndarray, plain: np.ndarray) -> dict[str, Any]:
    publication, written, read = _create(path), [], []
    with Image(path) as subscription:
        for _ in range(ROUNDS):
            _room(publication, LARGE + 64)
            subscription.position = publication.position
            written.append(_timed(lambda: publication.offer(message)))
            read.append(_timed(lambda: _touch(subscription.poll()[0].data)))
    warm = _in_place(publication, memoryview(message.data))
    copied = min(_timed(partial(_copy, plain, at, message)) for at in _places(LARGE))
    touched = min(_timed(partial(_touch, plain[at : at + LARGE])) for at in _places(LARGE))
    return {
        "frame_1mib_write_gb_per_s": round(LARGE / warm / 1e9, 2),
        "frame_1mib_write_through_the_buffer_gb_per_s": round(LARGE / min(written) / 1e9, 2),
        "frame_1mib_write_through_the_buffer_ratio_to_memcpy": round(copied / min(written), 2),
        "frame_1mib_read_gb_per_s": round(LARGE / min(read) / 1e9, 2),
        "frame_1mib_read_ratio_to_plain_sum": round(touched / min(read), 2),
    }


def _in_place(publication: ExclusivePublication, message: memoryview) -> float:
    """Seconds of one frame written to the same place again and again: what memory costs is left out."""
    _room(publication, LARGE + 64)
    claim = publication.try_claim(LARGE)

    def write() -> None:
        claim.data[:] = message
        claim.commit()

    best = min(_timed(write) for _ in range(ROUNDS))
    publication.close()
    return best


def _touch(data: Any) -> int:
    return int(np.frombuffer(data, np.uint64).sum())


def _plain(path: Path) -> np.ndarray:
    """A mapped file of a log buffer's size."""
    with open(path, "w+b") as file:
        file.truncate(3 * TERM)
        return np.frombuffer(mmap.mmap(file.fileno(), 3 * TERM), np.uint8)


def _copy(plain: np.ndarray, at: int, data: np.ndarray) -> None:
    plain[at : at + len(data)] = data


def _places(size: int) -> list[int]:
    step = (size + 63) & -64
    return [number * step % (3 * TERM - step) & -64 for number in range(ROUNDS)]


def _timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
