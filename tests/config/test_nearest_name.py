"""What is said behind a name that nobody knows."""

from __future__ import annotations

import pytest

from penstock.config.nearest_name import nearest


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("sylog", ["raw", "syslog"], " (did you mean 'syslog'?)"),
        ("xyz", ["raw", "syslog"], " (known: raw, syslog)"),
        ("xyz", [], ""),
    ],
)
def test_the_one_that_may_be_meant_is_named_else_all(name: str, known: list[str], said: str) -> None:
    assert nearest(name, known) == said
