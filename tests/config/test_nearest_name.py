"""Suggestions for unknown names."""

from __future__ import annotations

import pytest

from penstock.config.nearest_name import nearest


@pytest.mark.parametrize(
    ("name", "names", "expected"),
    [
        ("sylog", ["raw", "syslog"], " (did you mean 'syslog'?)"),
        ("xyz", ["raw", "syslog"], " (known: raw, syslog)"),
        ("xyz", [], ""),
    ],
)
def test_similar_name_is_suggested_or_all_names(name: str, names: list[str], expected: str) -> None:
    assert nearest(name, names) == expected
