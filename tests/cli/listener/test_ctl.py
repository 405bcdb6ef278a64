"""Answers of a listener to commands."""

from __future__ import annotations

from hypothesis import given

from penstock.cli.listener.ctl import _parse_object_answer
from tests.fuzzed import json_texts


@given(json_texts("uptime"))
def test_any_answer_is_an_object_or_one_error_line(data: bytes) -> None:
    try:
        assert isinstance(_parse_object_answer("in", data), dict)
    except SystemExit as ended:
        assert ended.code  # noqa: PT017 some bytes are an object
