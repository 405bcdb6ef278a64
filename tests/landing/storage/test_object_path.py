"""Files in an object store, on a real S3 server, and errors if it does not answer."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError, DeltaError

from penstock.landing.storage.object_errors import (
    TablesAway,
    TablesFull,
    TablesRefused,
    interpret_error,
    translate_full_disk,
)
from penstock.landing.storage.object_path import (
    CHUNK_BYTES,
    ObjectPath,
    arrow_file_system,
    delta_rs_options,
    s3_arguments,
)
from penstock.landing.table_paths import Layout
from tests.object_store import BUCKET, S3Server, Wire


@pytest.fixture
def folder(at_url: Layout) -> ObjectPath:
    assert at_url.store is not None
    return at_url.store / "landed"


def upload(path: ObjectPath, data: bytes) -> None:
    path.upload(io.BytesIO(data))


@pytest.mark.parametrize("size", [0, 10, CHUNK_BYTES * 2 + 5])
def test_upload_writes_all_bytes(folder: ObjectPath, size: int) -> None:
    path = folder / "kind=event/a.parquet"
    assert not path.exists()
    upload(path, b"x" * size)
    assert path.exists()
    file = path.open()
    assert file.size() == size
    assert file.read(size) == b"x" * size
    path.unlink()
    assert not path.exists()


def test_path_can_be_pickled(folder: ObjectPath) -> None:
    upload(folder / "a.json", b"hello")
    assert (pickle.loads(pickle.dumps(folder)) / "a.json").read_text() == "hello"


def test_missing_file_raises_file_not_found(folder: ObjectPath) -> None:
    with pytest.raises(FileNotFoundError):
        (folder / "none").open()
    with pytest.raises(FileNotFoundError):
        (folder / "none").read_text()
    (folder / "none").unlink()


@pytest.mark.parametrize("name", ["my%20tables", "a\\b", "%C3%A9"])
def test_folder_that_delta_rs_reads_as_another_one_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(DeltaError, match="File not found"):
        deltalake.DeltaTable.create(str(tmp_path / name), pa.schema({"n": pa.int64()}))
    with pytest.raises(TablesRefused, match="in a folder's name as another character: choose a data_dir"):
        delta_rs_options(tmp_path / name)


@pytest.mark.parametrize("name", ["my tables", "50% #1?&=+", "é"])
def test_folder_with_other_signs_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    deltalake.write_deltalake(str(folder), pa.table({"n": [1]}), **delta_rs_options(folder))
    assert deltalake.DeltaTable(str(folder)).to_pyarrow_table().num_rows == 1
    assert (folder / "_delta_log").is_dir()


def test_repr_hides_secrets(folder: ObjectPath) -> None:
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
def test_wrong_credentials_raise_one_line_with_the_key(s3: S3Server, key: str, value: str, word: str) -> None:
    from penstock.landing.table.delta_table import DeltaTable

    with pytest.raises(TablesRefused) as refused:
        DeltaTable(ObjectPath(f"s3://{BUCKET}/x", s3.options(**{key: value})) / "landed").newest()
    assert word in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    assert value == "false" or value not in str(refused.value)


def test_missing_bucket_is_refused(s3: S3Server) -> None:
    from penstock.landing.table.delta_table import DeltaTable

    with pytest.raises(TablesRefused, match=r"pipeline\.tables"):
        DeltaTable(ObjectPath("s3://no-such-bucket/x", s3.options()) / "landed").newest()


def test_unresponsive_server_raises_tables_away(s3: S3Server, folder: ObjectPath) -> None:
    with s3.stopped(), pytest.raises(TablesAway):
        folder.exists()
    assert not folder.exists()


def test_returning_server_answers_again(s3: S3Server, folder: ObjectPath) -> None:
    upload(folder / "a", b"1")
    wire = Wire(s3.address)
    far = ObjectPath(folder.root, s3.options(wire.address)) / "landed"
    assert (far / "a").exists()
    for ask in (lambda: (far / "a").open(), lambda: upload(far / "b", b"2"), lambda: (far / "a").exists()):
        with wire.cut(), pytest.raises(TablesAway, match="cannot be reached") as away:
            ask()
        assert len(str(away.value).splitlines()) == 1
        assert away.value.errno is not None
        ask()
    wire.end()


def test_errors_of_other_stores_are_interpreted() -> None:
    azure = "Generic MicrosoftAzure error: Error performing GET https://a/b in 1s - 403 Forbidden: <Error>...</Error>"
    skewed = "Generic S3 error: Error performing PUT: 403 Forbidden: <Error><Code>RequestTimeTooSkewed</Code></Error>"
    assert "clocks" in str(interpret_error(skewed, "s3://lake/t"))
    assert "AZURE_STORAGE_ACCOUNT_KEY" in str(interpret_error(azure, "abfss://c@a.dfs.core.windows.net/t"))
    assert isinstance(
        interpret_error("Generic GCS error: Error performing GET: 503 Service Unavailable", "gs://b/t"), TablesAway
    )


def test_s3_arguments_accept_all_names_of_options() -> None:
    arguments = s3_arguments(
        {"AWS_ACCESS_KEY_ID": "a", "secret_access_key": "b", "aws_region": "c", "AWS_ENDPOINT_URL": "http://d"}
    )
    assert {name: arguments[name] for name in ("access_key", "secret_key", "region", "endpoint_override")} == {
        "access_key": "a",
        "secret_key": "b",
        "region": "c",
        "endpoint_override": "http://d",
    }


@pytest.mark.parametrize(("path", "prefix"), [("t", "t"), ("a%20b", "a b"), ("a b", "a b"), ("100%", "100%")])
def test_arrow_file_system_has_the_prefix_that_delta_rs_uses(path: str, prefix: str) -> None:
    _, base = arrow_file_system(ObjectPath(f"s3://lake/{path}", {"AWS_REGION": "us-east-1"}))
    assert base == f"lake/{prefix}/"


@pytest.mark.survives("landing from the log", "full disk")
@pytest.mark.parametrize("kind", [DeltaError, CommitFailedError, OSError])
def test_full_disk_of_delta_rs_is_waited_for(kind: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(TablesFull, match="no space left"), translate_full_disk(tmp_path):
        raise kind("Generic LocalFileSystem error: Unable to copy data: No space left on device (os error 28)")
