"""The location of the tables: a folder, or a URL."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import ConfigError, load, masked
from penstock.config.explain import explain
from penstock.config.syntax.tables_url import TablesUrl


def tables(*options: str) -> Path | TablesUrl:
    return load(None, ["data_dir=/d", *(f"pipeline.{entry}" for entry in options)]).tables


@pytest.mark.parametrize(
    ("options", "folder"), [("", "/d/tables"), ("/mnt/t", "/mnt/t"), ("file:///mnt/my%20t", "/mnt/my t"), ("t", "t")]
)
def test_folder_is_accepted(options: str, folder: str) -> None:
    assert tables(*([f"tables={options}"] if options else [])) == Path(folder)


@pytest.mark.parametrize("url", ["s3://lake/t", "gs://lake/a/b", "abfss://c@account.dfs.core.windows.net/t"])
def test_url_keeps_its_state_in_the_data_directory(url: str) -> None:
    parsed, same = tables(f"tables={url}/"), tables(f"tables={url}")
    assert isinstance(parsed, TablesUrl)
    assert parsed == same
    assert parsed.url == url
    assert parsed.state.parent == Path("/d/tables-at")
    other_url = tables(f"tables={url}2")
    assert isinstance(other_url, TablesUrl)
    assert other_url.state != parsed.state


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["tables=http://x/y"], "s3://"),
        (["tables=s3://lake"], "a bucket and a path"),
        (["tables=s3://key:secret@lake/t"], "storage_options"),
        (["tables=s3://lake/t?x=1"], "storage_options"),
        (["storage_options.AWS_REGION=x"], "at a URL"),
        (["tables=s3://lake/t", "storage_options.aws_s3_allow_unsafe_rename=true"], "second writer"),
    ],
)
def test_invalid_location_is_refused(options: list[str], word: str) -> None:
    with pytest.raises(ConfigError, match=word) as refused:
        tables(*options)
    assert "secret" not in str(refused.value)


def test_credentials_are_masked() -> None:
    options = {
        "AWS_SECRET_ACCESS_KEY": "geheim",
        "AWS_SESSION_TOKEN": "geheim",
        "AZURE_STORAGE_ACCOUNT_KEY": "geheim",
        "AZURE_STORAGE_SAS_TOKEN": "geheim",
        "GOOGLE_SERVICE_ACCOUNT_KEY": "geheim",
        "AWS_SSE_CUSTOMER_KEY_BASE64": "geheim",
        "AWS_REGION": "shown",
    }
    overrides = [
        "pipeline.tables=s3://lake/t",
        *(f"pipeline.storage_options.{name}={v}" for name, v in options.items()),
    ]
    settings = load(None, overrides)
    for text in (str(masked(settings)), str([key.value for key in explain(None, overrides)]), repr(settings.tables)):
        assert "geheim" not in text
    assert "shown" in str(masked(settings))
    assert settings.pipeline.storage_options == options


def test_storage_options_come_from_the_environment() -> None:
    parsed = load(
        None, [], {"PENSTOCK_PIPELINE__TABLES": "s3://lake/t", "PENSTOCK_PIPELINE__STORAGE_OPTIONS__X": "true"}
    )
    assert parsed.pipeline.storage_options == {"x": "true"}
