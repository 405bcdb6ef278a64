"""The options of the data source."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.source.options import COLUMNS, BadOption, SourceOptions


def test_the_path_alone_means_everything_from_the_beginning(tmp_path: Path) -> None:
    options = SourceOptions.of({"path": str(tmp_path)})
    assert (options.topics, options.starting_word, options.starting, options.max_rows) == (("*",), "earliest", {}, 0)
    assert options.columns == tuple(COLUMNS)


def test_names_of_options_may_be_written_in_any_case(tmp_path: Path) -> None:
    options = SourceOptions.of({"PATH": str(tmp_path), "MaxRowsPerTrigger": "7", "startingoffsets": '{"a": 3}'})
    assert (options.max_rows, options.starting) == (7, {"a": 3})


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"topics": "a"}, "did you mean topic?"),
        ({"zzz": "a"}, "known are path, topic"),
        ({"startingOffsets": "first"}, "startingOffsets: 'first' is not earliest or latest or JSON"),
        ({"startingOffsets": '{"a": -1}'}, "startingOffsets"),
        ({"startingOffsets": '{"a": true}'}, "startingOffsets"),
        ({"endingOffsets": "earliest"}, "endingOffsets"),
        ({"maxRowsPerTrigger": "many"}, "maxRowsPerTrigger: 'many' is not a whole number"),
        ({"columns": "topic,nothing"}, "there is no column 'nothing'"),
        ({"columns": "topic,topic"}, "named twice"),
    ],
)
def test_what_cannot_be_used_is_named(option: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption) as error:
        SourceOptions.of({"path": "x", **option})
    assert said in str(error.value)


@pytest.mark.parametrize("given", [{}, {"path": "x", "uri": "127.0.0.1:1"}, {"path": "", "uri": ""}])
def test_the_path_or_the_uri_has_to_be_given(given: dict[str, str]) -> None:
    with pytest.raises(BadOption, match="path or uri"):
        SourceOptions.of(given)


def test_what_cannot_be_used_of_a_connection_is_named() -> None:
    with pytest.raises(BadOption, match="uri: 'here' is not host:port"):
        SourceOptions.of({"uri": "here"})


@given(
    st.dictionaries(
        st.sampled_from(["path", "uri", "retryFor", "topic", "startingOffsets", "maxRowsPerTrigger", "columns"]),
        st.text(),
    )
)
def test_no_text_raises_anything_but_bad_option(options: dict[str, str]) -> None:
    with contextlib.suppress(BadOption):
        SourceOptions.of(options)
