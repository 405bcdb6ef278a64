"""Raw connections to brokers."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kafka.broker_connection import BrokerConnection, RequestFailed, ScramClient
from tests.kafka.kafka_helpers import Topics


def test_fetch_returns_stored_batches_and_the_stable_end(topics: Topics) -> None:
    topic = topics.new()
    topics.plain(topic, [b"a", b"b"])
    connection = BrokerConnection(topics.address, {})
    fetched = connection.fetch((topic, 0), 0)
    assert (fetched.stable_end, list(fetched.aborted)) == (2, [])
    assert b"a" in bytes(fetched.records)
    with pytest.raises(RequestFailed, match="offset_out_of_range"):
        connection.fetch((topic, 0), 99)
    with pytest.raises(RequestFailed, match="unknown_topic_or_partition"):
        connection.fetch((topic, 5), 0)
    connection.close()


@contextlib.contextmanager
def broker_that_answers(frame: bytes) -> Iterator[str]:
    """Yield the address of a listener that answers one connection with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(65536)
                client.sendall(frame)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)


FETCHED = struct.pack(">iiih1siihqqqiqqi", 1, 0, 1, 1, b"t", 1, 0, 0, 9, 8, 0, 1, 7, 3, -1)
"""The body of a response to the first request: a partition with one aborted transaction and no records."""


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=40), st.integers(0, len(FETCHED)), st.booleans())
def test_any_answer_is_parsed_or_refused(noise: bytes, position: int, keeps_length: bool) -> None:
    body = FETCHED[:position] + noise + (FETCHED[position + len(noise) :] if keeps_length else b"")
    with broker_that_answers(struct.pack(">i", len(body)) + body) as address:
        connection = BrokerConnection(address, {})
        with contextlib.suppress(RequestFailed, OSError):
            connection.fetch(("t", 0), 0)
        connection.close()


def test_fetch_parses_aborted_transactions() -> None:
    with broker_that_answers(struct.pack(">i", len(FETCHED)) + FETCHED) as address:
        connection = BrokerConnection(address, {})
        fetched = connection.fetch(("t", 0), 0)
        connection.close()
    assert (bytes(fetched.records), list(fetched.aborted), fetched.stable_end) == (b"", [(7, 3)], 8)


@pytest.mark.parametrize("size", [-1, 0, 3, (100 << 20) + 1])
def test_impossible_lengths_are_refused(size: int) -> None:
    with broker_that_answers(struct.pack(">i", size)) as address:
        connection = BrokerConnection(address, {})
        with pytest.raises(RequestFailed, match=f"announces {size} bytes"):
            connection.fetch(("t", 0), 0)
        connection.close()


def test_scram_answers_as_in_rfc_7677() -> None:
    client = ScramClient("sha256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert client.respond(challenge) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    client.finish(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    with pytest.raises(RequestFailed, match="does not prove"):
        client.finish(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=")


@pytest.mark.parametrize("challenge", [b"", b"r=x,s=AA==,i=4096", b"r=nonce,s=AA==,i=99999999", b"\xff"])
def test_impossible_scram_challenges_are_refused(challenge: bytes) -> None:
    with pytest.raises(RequestFailed, match="challenge"):
        ScramClient("sha256", "user", "pencil", "nonce").respond(challenge)
