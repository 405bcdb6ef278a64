"""Where the tables are: a folder, or a URL."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import ConfigError, load, masked
from penstock.config.explain import explain
from penstock.config.tables_url import TablesUrl


def tables(*given: str) -> Path | TablesUrl:
    return load(None, ["data_dir=/d", *(f"pipeline.{one}" for one in given)]).tables


@pytest.mark.parametrize(
    ("given", "folder"), [("", "/d/tables"), ("/mnt/t", "/mnt/t"), ("file:///mnt/my%20t", "/mnt/my t"), ("t", "t")]
)
def test_a_folder(given: str, folder: str) -> None:
    assert tables(*([f"tables={given}"] if given else [])) == Path(folder)


@pytest.mark.parametrize("url", ["s3://lake/t", "gs://lake/a/b", "abfss://c@account.dfs.core.windows.net/t"])
def test_a_url_has_its_state_in_the_data_directory(url: str) -> None:
    found, same = tables(f"tables={url}/"), tables(f"tables={url}")
    assert isinstance(found, TablesUrl)
    assert found == same
    assert found.url == url
    assert found.state.parent == Path("/d/tables-at")
    other = tables(f"tables={url}2")
    assert isinstance(other, TablesUrl)
    assert other.state != found.state


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (["tables=http://x/y"], "s3://"),
        (["tables=s3://lake"], "a bucket and a path"),
        (["tables=s3://key:secret@lake/t"], "storage_options"),
        (["tables=s3://lake/t?x=1"], "storage_options"),
        (["tables=s3://lake/t", "format=parquet"], "delta"),
        (["storage_options.AWS_REGION=x"], "at a URL"),
        (["tables=s3://lake/t", "storage_options.aws_s3_allow_unsafe_rename=true"], "second writer"),
    ],
)
def test_what_cannot_be(given: list[str], word: str) -> None:
    with pytest.raises(ConfigError, match=word) as refused:
        tables(*given)
    assert "secret" not in str(refused.value)


def test_keys_are_not_shown() -> None:
    options = {
        "AWS_SECRET_ACCESS_KEY": "geheim",
        "AWS_SESSION_TOKEN": "geheim",
        "AZURE_STORAGE_ACCOUNT_KEY": "geheim",
        "AZURE_STORAGE_SAS_TOKEN": "geheim",
        "GOOGLE_SERVICE_ACCOUNT_KEY": "geheim",
        "AWS_SSE_CUSTOMER_KEY_BASE64": "geheim",
        "AWS_REGION": "shown",
    }
    given = ["pipeline.tables=s3://lake/t", *(f"pipeline.storage_options.{name}={v}" for name, v in options.items())]
    settings = load(None, given)
    for text in (str(masked(settings)), str([key.value for key in explain(None, given)]), repr(settings.tables)):
        assert "geheim" not in text
    assert "shown" in str(masked(settings))
    assert settings.pipeline.storage_options == options


def test_options_come_from_the_environment_too() -> None:
    found = load(
        None, [], {"PENSTOCK_PIPELINE__TABLES": "s3://lake/t", "PENSTOCK_PIPELINE__STORAGE_OPTIONS__X": "true"}
    )
    assert found.pipeline.storage_options == {"x": "true"}
