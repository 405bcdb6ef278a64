"""The buffer of incomplete messages, compared with recordings and with a simple model on random sequences."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from penstock.kafka.errors import InvalidChunk, MessageDropped
from penstock.kafka.large.chunks import Chunk
from penstock.kafka.large.incomplete_messages import BufferPool
from tests.kafka.kafka_vectors import KAFKA, TP, named, partition, tohex, uid, unhex
from tests.kafka.naive_pool import Broken, Dropped, NaivePool, Refused

OTHER = ("topic", 1)
NO_EMPTY_ENTRY = "a refused segment leaves no empty entry, so the message begins with the first one accepted"
TWO_MESSAGES = "the same id in two partitions is two messages"
ALONE = "a message of one segment is complete, wherever it comes"
DIFFERENT: dict[str, dict[int, tuple[dict[str, Any], str]]] = {
    "bad seq / num / size / null": {
        7: ({"after": {"bufferUsed": 0, "size": 0, "safeOffsets": {}}}, NO_EMPTY_ENTRY),
        8: ({"result": {"serializedMessage": None, "bytesAdded": 10, "startingOffset": 8}}, NO_EMPTY_ENTRY),
    },
    "segment >= capacity": {
        0: ({"after": {"bufferUsed": 0, "size": 0, "safeOffsets": {}}}, NO_EMPTY_ENTRY),
        1: ({"result": {"serializedMessage": None, "bytesAdded": 9, "startingOffset": 1}}, NO_EMPTY_ENTRY),
    },
    "same uuid on two partitions": {
        1: (
            {
                "result": {"serializedMessage": None, "bytesAdded": 10, "startingOffset": 0},
                "after": {"bufferUsed": 20, "size": 2, "safeOffsets": {"topic-0": 0, "topic-1": 0}},
            },
            TWO_MESSAGES,
        )
    },
    "single segment through pool": {
        0: ({"result": {"serializedMessage": "<payload>", "bytesAdded": 10, "startingOffset": 0}}, ALONE)
    },
}
"""Intended differences of Penstock: sequence -> operation -> (difference, reason)."""


def _chunk(op: dict[str, Any]) -> Chunk:
    return Chunk(
        UUID(op["uuid"]) if op["uuid"] else None,  # type: ignore[arg-type]
        op["seq"],
        op["num"],
        op["size"],
        unhex(op["payload"]),  # type: ignore[arg-type]
    )


def _apply(pool: BufferPool, op: dict[str, Any]) -> Any:
    if op["op"] == "safeOffset":
        return str(pool.safe_offset(partition(op["tp"]), op["currentOffset"]))
    try:
        message, added, start = pool.add(partition(op["tp"]), op["offset"], _chunk(op))
    except InvalidChunk:
        return {"exception": "InvalidSegmentException"}
    except MessageDropped:
        return {"exception": "LargeMessageDroppedException"}
    return {"serializedMessage": tohex(message), "bytesAdded": added, "startingOffset": start}


def _after(pool: BufferPool | NaivePool) -> dict[str, Any]:
    size = len(pool) if isinstance(pool, BufferPool) else len(pool.held)
    return {
        "bufferUsed": pool.used,
        "size": size,
        "safeOffsets": {f"{of[0]}-{of[1]}": offset for of, offset in pool.safe_offsets().items()},
    }


def _short(result: Any) -> Any:
    """Reduce exceptions to their kind."""
    if isinstance(result, dict) and "exception" in result:
        return {"exception": result["exception"].rpartition(".")[2]}
    return result


@pytest.mark.parametrize("case", **named(KAFKA["bufferPool"]))
def test_chunks_are_processed_as_recorded(case: dict[str, Any]) -> None:
    pool = BufferPool(case["bufferCapacity"], case["expirationOffsetGap"], case["exceptionOnMessageDropped"])
    for index, op in enumerate(case["ops"]):
        difference, why = DIFFERENT.get(case["name"], {}).get(index, ({}, ""))
        expected = {"result": _short(op["result"]), "after": op["after"], **difference}
        if isinstance(expected["result"], dict) and expected["result"].get("serializedMessage") == "<payload>":
            expected["result"]["serializedMessage"] = op["payload"]
        assert {"result": _apply(pool, op), "after": _after(pool)} == expected, (index, why)


@pytest.mark.parametrize("case", **named(KAFKA["bufferPool"]))
def test_simple_model_of_the_original_behaves_as_recorded(case: dict[str, Any]) -> None:
    pool = NaivePool(
        case["bufferCapacity"], case["expirationOffsetGap"], case["exceptionOnMessageDropped"], original=True
    )
    for index, op in enumerate(case["ops"]):
        assert _apply_to_model(pool, op) == _short(op["result"]), index
        assert _after(pool) == op["after"], index


def _apply_to_model(pool: NaivePool, op: dict[str, Any]) -> Any:
    of = partition(op["tp"])
    if op["op"] == "safeOffset":
        return str(pool.safe_offset(of, op["currentOffset"]))
    given_id = UUID(op["uuid"]) if op["uuid"] else None
    try:
        added = pool.add(of, op["offset"], given_id, op["seq"], op["num"], op["size"], unhex(op["payload"]))
    except Refused:
        return {"exception": "InvalidSegmentException"}
    except Dropped:
        return {"exception": "LargeMessageDroppedException"}
    except Broken:
        return {"exception": "IllegalStateException"}
    return {"serializedMessage": tohex(added[0]), "bytesAdded": added[1], "startingOffset": added[2]}


def _sequence(seed: int, *, sane: bool) -> tuple[tuple[int, int, bool], list[dict[str, Any]]]:
    """Return settings and operations; with ``sane``, without the faults in which the original differs."""
    dice = random.Random(seed)
    bounds = (dice.choice((15, 25, 40, 100, 1000)), dice.choice((3, 10, 50)), dice.random() < 0.4)
    sizes = {number: [dice.randint(1, 14) for _ in range(dice.randint(2 if sane else 1, 5))] for number in range(9)}
    offsets, ops = {TP: 0, OTHER: 0}, list[dict[str, Any]]()
    for step in range(dice.randint(20, 90)):
        number = dice.randrange(8)
        of = (TP, OTHER)[number % 2] if sane or dice.random() < 0.9 else OTHER
        offsets[of] += dice.choice((1, 1, 1, 2, 5))
        op: dict[str, Any] = {"tp": f"{of[0]}-{of[1]}", "op": dice.choice(("add",) * 9 + ("safeOffset",))}
        if op["op"] == "safeOffset":
            op["currentOffset"] = offsets[of]
        else:
            sequence = dice.randrange(len(sizes[number]))
            op |= {"offset": offsets[of], "seq": sequence, "num": len(sizes[number]), "size": sum(sizes[number])}
            op |= {"uuid": str(uid(number)), "payload": bytes([step] * sizes[number][sequence]).hex()}
        if not sane and dice.random() < 0.15:
            _spoil(dice, op)
        ops.append(op)
    return bounds, ops


def _spoil(dice: random.Random, op: dict[str, Any]) -> None:
    if op["op"] == "add":
        op |= dice.choice(
            (
                {"payload": ""},
                {"payload": None},
                {"uuid": None},
                {"payload": "00" * dice.randint(1, 30)},
                {"num": op["num"] + dice.choice((-1, 1))},
                {"size": op["size"] + dice.choice((-1, 1))},
                {"seq": op["num"]},
                {"offset": max(op["offset"] - 7, 0)},
            )
        )


@pytest.mark.parametrize("seed", range(200))
def test_any_sequence_behaves_as_in_the_simple_model(seed: int) -> None:
    bounds, ops = _sequence(seed, sane=False)
    ours, simple = BufferPool(*bounds), NaivePool(*bounds, original=False)
    for index, op in enumerate(ops):
        assert _apply(ours, op) == _apply_to_model(simple, op), (index, op)
        assert _after(ours) == _after(simple), (index, op)


@pytest.mark.parametrize("seed", range(200))
def test_sequence_without_decided_differences_behaves_as_in_the_original(seed: int) -> None:
    bounds, ops = _sequence(seed, sane=True)
    ours, original = BufferPool(*bounds), NaivePool(*bounds, original=True)
    completed: set[str] = set()
    for index, op in enumerate(ops):
        if op["op"] == "add" and (op["uuid"] in completed or len(bytes.fromhex(op["payload"])) >= bounds[0]):
            continue  # a segment that comes again after its message, or is refused at first: decided otherwise
        processed = _apply(ours, op)
        if op["op"] == "add" and processed.get("serializedMessage"):
            completed.add(op["uuid"])
        assert processed == _apply_to_model(original, op), (index, op)
        assert _after(ours) == _after(original), (index, op)
