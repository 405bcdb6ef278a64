"""The archive of Spark's classes: recorded, built, used, and ignored once it is damaged."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.spark.class_archive import ClassArchive, _command_of
from penstock.spark.session import jvm_pid

CLASSES = ["java/lang/Object", "java/lang/String", "org/apache/spark/SparkConf"]


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "spark.jar").write_bytes(b"jar")
    return folder


def test_archive_has_another_name_for_other_jars_and_another_jdk(tmp_path: Path, jars: Path) -> None:
    jdk = tmp_path / "jdk"
    jdk.mkdir()
    names = [ClassArchive.of_jars(tmp_path, jdk, jars, "").path]
    (jdk / "release").write_text('JAVA_VERSION="17.0.16"')
    names.append(ClassArchive.of_jars(tmp_path, jdk, jars, "").path)
    (jars / "spark.jar").write_bytes(b"jar of a later version")
    names.append(ClassArchive.of_jars(tmp_path, jdk, jars, "").path)
    names.append(ClassArchive.of_jars(tmp_path, jdk, jars, "/opt/more.jar").path)
    assert len(set(names)) == 4
    assert ClassArchive.of_jars(tmp_path, jdk, jars, "/opt/more.jar").path == names[-1]


def test_first_start_records_classes_and_later_ones_use_the_archive(tmp_path: Path, jars: Path) -> None:
    archive = ClassArchive.of_jars(tmp_path, tmp_path, jars, "")
    options, class_list = archive.use_or_record(tmp_path)
    assert options == [f"-XX:DumpLoadedClassList={class_list}"]
    assert class_list is not None
    assert class_list.parent.parent == tmp_path
    archive.path.parent.mkdir()
    archive.path.write_bytes(b"archive")
    os.utime(archive.path, (0, 0))
    assert archive.use_or_record(tmp_path) == (
        [f"-XX:SharedArchiveFile={archive.path}", "-XX:+VerifySharedSpaces"],
        None,
    )
    assert archive.path.stat().st_mtime > 0, "it counts as used"


def test_archive_of_another_user_is_not_used(tmp_path: Path, jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = ClassArchive.of_jars(tmp_path, tmp_path, jars, "")
    archive.path.parent.mkdir()
    archive.path.write_bytes(b"archive")
    monkeypatch.setattr(os, "getuid", lambda: archive.path.stat().st_uid + 1)
    assert archive.use_or_record(tmp_path) == ([], None)


@pytest.mark.spark
def test_built_archive_is_mapped_by_a_jvm_and_ignored_once_damaged(spark: SparkSession, tmp_path: Path) -> None:
    archive = ClassArchive(tmp_path / "archives" / "a.jsa")
    class_list = tmp_path / "list"
    class_list.write_text("\n".join(CLASSES) + "\n")
    archive.build(class_list, jvm_pid())
    options, _ = archive.use_or_record(tmp_path)
    command = [*_command_of(jvm_pid()), *options]
    mapped = subprocess.run([*command, "-Xshare:on", "-version"], capture_output=True, text=True)
    assert mapped.returncode == 0, mapped.stderr
    assert list(archive.path.parent.glob("*.draft")) == []

    content = bytearray(archive.path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    archive.path.chmod(0o644)
    for damaged in (bytes(content), bytes(content[:100_000]), b""):
        archive.path.write_bytes(damaged)
        started = subprocess.run([*command, "-version"], capture_output=True, text=True)
        assert started.returncode == 0, started.stderr
        assert "version" in started.stderr


def test_archive_is_not_built_of_a_process_that_has_ended(tmp_path: Path) -> None:
    archive = ClassArchive(tmp_path / "archives" / "a.jsa")
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    archive.build(tmp_path / "list", ended.pid)
    assert not archive.path.exists()
