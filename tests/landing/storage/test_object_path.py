"""Files in an object store, on a real server of S3, and what is said where it does not answer as it should."""

from __future__ import annotations

import io
import pickle

import pytest

from penstock.landing.storage.object_errors import TablesAway, TablesRefused, interpret_error
from penstock.landing.storage.object_path import CHUNK_BYTES, ObjectPath, arrow_file_system, s3_arguments
from penstock.landing.table_paths import Layout
from tests.object_store import BUCKET, S3Server, Wire


@pytest.fixture
def folder(at_url: Layout) -> ObjectPath:
    assert at_url.store is not None
    return at_url.store / "landed"


def put(path: ObjectPath, data: bytes) -> None:
    path.upload(io.BytesIO(data))


@pytest.mark.parametrize("size", [0, 10, CHUNK_BYTES * 2 + 5])
def test_what_is_uploaded_is_there_whole(folder: ObjectPath, size: int) -> None:
    path = folder / "kind=event/a.parquet"
    assert not path.exists()
    put(path, b"x" * size)
    assert path.exists()
    file = path.open()
    assert file.size() == size
    assert file.read(size) == b"x" * size
    path.unlink()
    assert not path.exists()


def test_it_can_be_sent_to_a_task(folder: ObjectPath) -> None:
    put(folder / "a.json", b"hello")
    assert (pickle.loads(pickle.dumps(folder)) / "a.json").read_text() == "hello"


def test_a_file_that_is_not_there(folder: ObjectPath) -> None:
    with pytest.raises(FileNotFoundError):
        (folder / "none").open()
    with pytest.raises(FileNotFoundError):
        (folder / "none").read_text()
    (folder / "none").unlink()


def test_secrets_are_not_shown(folder: ObjectPath) -> None:
    assert str(folder).startswith(f"s3://{BUCKET}/")
    assert folder.options["AWS_SECRET_ACCESS_KEY"] not in f"{folder!r} {folder}"


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        ("AWS_SECRET_ACCESS_KEY", "guessed", "AWS_SECRET_ACCESS_KEY"),
        ("AWS_ACCESS_KEY_ID", "nobody", "AWS_ACCESS_KEY_ID"),
        ("AWS_ALLOW_HTTP", "false", "AWS_ALLOW_HTTP"),
    ],
)
def test_wrong_credentials_are_one_line_that_names_the_key(s3: S3Server, key: str, value: str, word: str) -> None:
    from penstock.landing.table.delta_table import DeltaTable

    with pytest.raises(TablesRefused) as refused:
        DeltaTable(ObjectPath(f"s3://{BUCKET}/x", s3.options(**{key: value})) / "landed").newest()
    assert word in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    assert value == "false" or value not in str(refused.value)


def test_a_bucket_that_is_not_there(s3: S3Server) -> None:
    from penstock.landing.table.delta_table import DeltaTable

    with pytest.raises(TablesRefused, match=r"pipeline\.tables"):
        DeltaTable(ObjectPath("s3://no-such-bucket/x", s3.options()) / "landed").newest()


def test_a_server_that_does_not_answer(s3: S3Server, folder: ObjectPath) -> None:
    with s3.stopped(), pytest.raises(TablesAway):
        folder.exists()
    assert not folder.exists()


def test_a_server_that_is_away_and_comes_back(s3: S3Server, folder: ObjectPath) -> None:
    put(folder / "a", b"1")
    wire = Wire(s3.address)
    far = ObjectPath(folder.root, s3.options(wire.address)) / "landed"
    assert (far / "a").exists()
    for ask in (lambda: (far / "a").open(), lambda: put(far / "b", b"2"), lambda: (far / "a").exists()):
        with wire.cut(), pytest.raises(TablesAway, match="cannot be reached") as away:
            ask()
        assert len(str(away.value).splitlines()) == 1
        assert away.value.errno is not None
        ask()
    wire.end()


def test_words_of_other_stores() -> None:
    azure = "Generic MicrosoftAzure error: Error performing GET https://a/b in 1s - 403 Forbidden: <Error>...</Error>"
    assert "AZURE_STORAGE_ACCOUNT_KEY" in str(interpret_error(azure, "abfss://c@a.dfs.core.windows.net/t"))
    assert isinstance(
        interpret_error("Generic GCS error: Error performing GET: 503 Service Unavailable", "gs://b/t"), TablesAway
    )


def test_options_by_any_of_their_names_reach_pyarrow() -> None:
    told = s3_arguments(
        {"AWS_ACCESS_KEY_ID": "a", "secret_access_key": "b", "aws_region": "c", "AWS_ENDPOINT_URL": "http://d"}
    )
    assert {name: told[name] for name in ("access_key", "secret_key", "region", "endpoint_override")} == {
        "access_key": "a",
        "secret_key": "b",
        "region": "c",
        "endpoint_override": "http://d",
    }


def test_a_file_is_named_with_its_bucket() -> None:
    _, base = arrow_file_system(ObjectPath("s3://lake/t", {"AWS_REGION": "us-east-1"}))
    assert base == "lake/t/"
