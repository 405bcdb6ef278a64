"""The page of the configuration: keys by group."""

from __future__ import annotations

from penstock.console.pages.configuration import listing


def test_keys_of_a_group_are_under_one_heading() -> None:
    keys = [
        {"name": name, "value": "1", "default": "1", "meaning": ""}
        for name in ("data_dir", "log.http", "log.grpc", "relay")
    ]
    html = listing(keys, "")
    assert [html.count(f">{group}</h3>") for group in ("general", "log")] == [1, 1]
    assert html.count("2 keys") == 2
    assert "1 key<" in listing(keys, "data_dir")
