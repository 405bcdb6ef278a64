"""Parsing of Flight tickets and descriptors."""

from __future__ import annotations

import contextlib

import pyarrow.flight as flight
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.flight.puts import destination_of
from penstock.server.flight.tickets import Ticket
from penstock.slogd.errors import BadRequest
from tests.fuzzed import json_texts


@given(json_texts("topic", "from", "to", "filter", "columns"))
def test_any_bytes_are_refused_or_a_ticket_that_round_trips(data: bytes) -> None:
    with contextlib.suppress(BadRequest):
        ticket = Ticket.parse(data)
        again = Ticket.parse(ticket.encode())
        assert (again.topic, again.start, again.end, again.columns) == (
            ticket.topic,
            ticket.start,
            ticket.end,
            ticket.columns,
        )


@given(json_texts("topic", "producer_id", "sequence") | st.just(b'{"topic": "t", "sequence": 7}'))
def test_any_command_of_a_put_is_a_destination_or_refused(data: bytes) -> None:
    with contextlib.suppress(BadRequest):
        topic, producer, sequence = destination_of(flight.FlightDescriptor.for_command(data))
        assert (type(topic), type(producer), type(sequence)) == (str, str, int)


@given(st.lists(st.text(max_size=9), max_size=3))
def test_any_path_of_a_put_is_a_topic_or_refused(path: list[str]) -> None:
    with contextlib.suppress(BadRequest):
        assert destination_of(flight.FlightDescriptor.for_path(*path)) == (path[0], "", 0)
