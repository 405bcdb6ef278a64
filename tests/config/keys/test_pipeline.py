"""Keys of the pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import ConfigError, load
from penstock.landing.transform.rules import BadTransform
from penstock.spark.pipeline import landing_of

HASHED = "pipeline.redact.hash=['data.user','host']"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["pipeline.transform=mymodule"], "pipeline.transform: 'mymodule' does not match"),
        (["pipeline.transform=my module:f"], "pipeline.transform: 'my module:f' does not match"),
        (["pipeline.fixes=['m:f','rm -rf']"], "'rm -rf' is not module:function"),
        ([HASHED], "one of salt_file and salt_env"),
        ([HASHED, "pipeline.redact.salt_file=a", "pipeline.redact.salt_env=B"], "one of salt_file and salt_env"),
        (["pipeline.redact.hash=['uuid']", "pipeline.redact.salt_env=B"], "'uuid' cannot be"),
        (
            ["pipeline.redact.hash=['data..x']", "pipeline.redact.salt_env=B"],
            "pipeline.redact.hash.0: 'data..x' is not the path of a field",
        ),
        (['pipeline.redact.replacement="'], "pipeline.redact.replacement"),
        (["pipeline.redact.pattern=['x']"], "did you mean 'patterns'"),
    ],
)
def test_invalid_row_settings_name_the_key(options: list[str], text: str) -> None:
    with pytest.raises(ConfigError) as message:
        load(None, options, {})
    assert text in str(message.value)
    assert "\n" not in str(message.value)


def test_hash_key_comes_from_file_or_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "salt").write_text("pepper\n")
    (tmp_path / "salt").chmod(0o600)
    monkeypatch.setenv("SALT", "pepper")
    for salt in (f"pipeline.redact.salt_file={tmp_path}/salt", "pipeline.redact.salt_env=SALT"):
        rules = landing_of(load(None, [HASHED, salt, "pipeline.transform=m.n:f"], {})).transform
        assert (rules.salt, rules.fields, rules.function) == (b"pepper", ("data.user", "host"), "m.n:f")
    assert not landing_of(load(None, [], {})).transform


def test_hash_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "salt").write_text("pepper\n")
    (tmp_path / "salt").chmod(0o644)
    with pytest.raises(BadTransform, match=r"^pipeline\.redact: no salt: .*/salt has mode 0644"):
        landing_of(load(None, [HASHED, f"pipeline.redact.salt_file={tmp_path}/salt"], {}))


@pytest.mark.parametrize("salt", ["salt_file=/no/such/file", "salt_env=NO_SUCH_VARIABLE", "salt_file=/dev/null"])
def test_missing_hash_key_is_an_error(salt: str) -> None:
    with pytest.raises(BadTransform, match=r"^pipeline\.redact: no salt: "):
        landing_of(load(None, [HASHED, f"pipeline.redact.{salt}"], {}))


def test_retention_is_read_by_kind_and_type(tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text('[pipeline.retention]\nevent = "400d"\n"event/click" = "30d"\nquarantine = 60\n')
    ages = load(path, environment={}).pipeline.retention
    assert ages == {"event": 400 * 86_400.0, "event/click": 30 * 86_400.0, "quarantine": 60.0}
    assert load(path, ["pipeline.retention.syslog=1d"], environment={}).pipeline.retention["syslog"] == 86_400.0


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (["pipeline.retention.events=1d"], r"retention\.events: an age is of a kind"),
        (["pipeline.retention.syslog/x=1d"], "an age is of a kind"),
        (["pipeline.retention.event/=1d"], "an age is of a kind"),
    ],
)
def test_invalid_retention_is_an_error(overrides: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load(None, overrides, environment={})


def test_rows_are_hashed_only_if_the_proof_has_them() -> None:
    assert not landing_of(load(None, [], {})).hashed
    assert landing_of(load(None, ["pipeline.proof=rows"], {})).hashed
    with pytest.raises(ConfigError, match=r"pipeline\.proof"):
        load(None, ["pipeline.proof=all"], {})
