"""Keys of the pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import ConfigError, load


def test_rows_are_kept_as_long_as_their_kind_or_type_says(tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text('[pipeline.retention]\nevent = "400d"\n"event/click" = "30d"\nquarantine = 60\n')
    kept = load(path, environment={}).pipeline.retention
    assert kept == {"event": 400 * 86_400.0, "event/click": 30 * 86_400.0, "quarantine": 60.0}
    assert load(path, ["pipeline.retention.syslog=1d"], environment={}).pipeline.retention["syslog"] == 86_400.0


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (["pipeline.retention.events=1d"], r"retention\.events: an age is of a kind"),
        (["pipeline.retention.syslog/x=1d"], "an age is of a kind"),
        (["pipeline.retention.event/=1d"], "an age is of a kind"),
        (["pipeline.retention.event=1d", "pipeline.format=parquet"], 'for format = "delta"'),
    ],
)
def test_what_cannot_be_kept_so_is_told(overrides: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load(None, overrides, environment={})
