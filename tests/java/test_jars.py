"""Java libraries in the cache folder."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from penstock.java.jars import SPARK_KAFKA, CannotFetch, Library, fetch
from penstock.java.runtime import NoJava, find_java


@pytest.fixture
def java() -> None:
    try:
        find_java()
    except NoJava as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("java")
def test_library_is_fetched_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock")
    pool = SPARK_KAFKA["4.2"][-1]
    (jar,) = fetch(pool, cache=tmp_path)
    assert jar.name == f"{pool.name}-{pool.version}.jar"
    assert jar.stat().st_size > 100_000
    assert fetch(pool, cache=tmp_path) == [jar]
    assert caplog.messages == [f"fetching {pool} (once)", f"fetching {pool.name}-{pool.version}.jar"]


@pytest.mark.usefixtures("java")
def test_missing_library_raises_and_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(CannotFetch, match="no-such-thing:1 cannot be fetched"):
        fetch(Library("org.apache.commons", "no-such-thing", "1"), cache=tmp_path)
    assert [path.name for path in (tmp_path / "jars").iterdir() if path.is_dir()] == []


@pytest.mark.usefixtures("java")
def test_error_names_an_unreachable_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1")
    with pytest.raises(CannotFetch, match=r"cannot be fetched \(is Maven's repository reachable.*refused"):
        fetch(Library("org.apache.commons", "commons-pool2", "2.13.1", alone=True), cache=tmp_path)
