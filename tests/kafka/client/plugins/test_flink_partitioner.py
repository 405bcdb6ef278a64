"""Partitions of Flink, compared with values of Java's String.hashCode and Flink's formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kafka.client.plugins.flink_partitioner import hash_codes, partitions_of

GOLDEN = [  # text, hashCode, partition of 7 with maximum parallelism 16386, of 5 with 128
    ("", 0, 3, 3),
    ("a", 97, 2, 3),
    ("user-1", -836031825, 3, 4),
    ("user-2", -836031824, 4, 0),
    ("\U0001f600", 1772899, 0, 2),
    ("polygenelubricants", -2147483648, 5, 4),
    ("x" * 300, -1757771264, 6, 4),
]


def test_codes_and_partitions_equal_those_of_java() -> None:
    texts = [text for text, *_ in GOLDEN]
    assert hash_codes(texts).view(np.int32).tolist() == [code for _, code, *_ in GOLDEN]
    keys = [text.encode() for text in texts]
    assert partitions_of(keys, 7, 16386).tolist() == [partition for *_, partition, _ in GOLDEN]
    assert partitions_of(keys, 5, 128).tolist() == [partition for *_, partition in GOLDEN]


def code_of_text(text: str) -> int:
    code, data = 0, text.encode("utf-16-le")
    for position in range(0, len(data), 2):
        code = (code * 31 + int.from_bytes(data[position : position + 2], "little")) % (1 << 32)
    return code


@given(st.lists(st.text(max_size=12) | st.text("ab", min_size=250, max_size=260), max_size=10))
def test_batch_of_texts_gives_the_codes_of_single_texts(texts: list[str]) -> None:
    assert hash_codes(texts).tolist() == [code_of_text(text) for text in texts]


@given(st.lists(st.binary(max_size=40), max_size=10), st.integers(1, 1000), st.integers(1, 32768))
def test_any_key_has_a_partition(keys: list[bytes], partitions: int, parallelism: int) -> None:
    assigned = partitions_of(keys, partitions, parallelism)
    assert len(assigned) == len(keys)
    assert all(0 <= partition < partitions for partition in assigned.tolist())


@pytest.mark.parametrize("partitions", [1, 16])
def test_no_keys_no_partitions(partitions: int) -> None:
    assert partitions_of([], partitions, 128).tolist() == []
