"""The options of the data source."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.source.options import COLUMNS, BadOption, SourceOptions


def test_path_alone_reads_everything_from_the_start(tmp_path: Path) -> None:
    options = SourceOptions.from_options({"path": str(tmp_path)})
    assert (options.topics, options.starting_word, options.starting, options.max_rows) == (("*",), "earliest", {}, 0)
    assert options.columns == tuple(COLUMNS)


def test_option_names_are_case_insensitive(tmp_path: Path) -> None:
    options = SourceOptions.from_options(
        {"PATH": str(tmp_path), "MaxRowsPerTrigger": "7", "startingoffsets": '{"a": 3}'}
    )
    assert (options.max_rows, options.starting) == (7, {"a": 3})


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"topics": "a"}, "did you mean topic?"),
        ({"zzz": "a"}, "known are path, topic"),
        ({"startingOffsets": "first"}, "startingOffsets: 'first' is not earliest or latest or JSON"),
        ({"startingOffsets": '{"a": -1}'}, "startingOffsets"),
        ({"startingOffsets": '{"a": true}'}, "startingOffsets"),
        ({"endingOffsets": "earliest"}, "endingOffsets"),
        ({"maxRowsPerTrigger": "many"}, "maxRowsPerTrigger: 'many' is not a whole number"),
        ({"columns": "topic,nothing"}, "unknown column 'nothing'"),
        ({"columns": "topic,topic"}, "named twice"),
    ],
)
def test_bad_option_is_named(option: dict[str, str], message: str) -> None:
    with pytest.raises(BadOption) as error:
        SourceOptions.from_options({"path": "x", **option})
    assert message in str(error.value)


@pytest.mark.parametrize("options", [{}, {"path": "x", "uri": "127.0.0.1:1"}, {"path": "", "uri": ""}])
def test_path_or_uri_is_required(options: dict[str, str]) -> None:
    with pytest.raises(BadOption, match="path or uri"):
        SourceOptions.from_options(options)


def test_bad_connection_option_is_named() -> None:
    with pytest.raises(BadOption, match="uri: 'here' is not host:port"):
        SourceOptions.from_options({"uri": "here"})


@given(
    st.dictionaries(
        st.sampled_from(["path", "uri", "retryFor", "topic", "startingOffsets", "maxRowsPerTrigger", "columns"]),
        st.text(),
    )
)
def test_any_text_is_parsed_or_refused(options: dict[str, str]) -> None:
    with contextlib.suppress(BadOption):
        SourceOptions.from_options(options)
