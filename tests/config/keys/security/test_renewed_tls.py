"""Contexts follow their files; gRPC's credentials are tested with the daemon's ports (server/auth)."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest

from penstock.config.keys.security.contexts import sender_context
from penstock.config.keys.security.renewed_tls import ChangedFiles, RenewedContext
from tests.server import certificates


def replace_with(path: Path, source: Path) -> None:
    shutil.copy(source, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)


@pytest.fixture
def renewed(tmp_path: Path) -> RenewedContext:
    for name in ("first", "second"):
        certificates.make(tmp_path, name)
    files = [tmp_path / "cert", tmp_path / "key", tmp_path / "ca"]
    for path, source in zip(files, ("first.pem", "first.key", "first.pem"), strict=True):
        shutil.copy(tmp_path / source, path)
    return RenewedContext(lambda: sender_context(*files), files)


def trusted_names(context: RenewedContext) -> list[object]:
    return [authority["subject"] for authority in context.current().get_ca_certs()]


def test_context_stays_while_no_file_changes(renewed: RenewedContext) -> None:
    assert renewed.current() is renewed.current()


def test_removed_authority_is_no_longer_trusted(tmp_path: Path, renewed: RenewedContext) -> None:
    assert trusted_names(renewed) == [((("commonName", "first"),),)]
    replace_with(tmp_path / "ca", tmp_path / "second.pem")
    assert trusted_names(renewed) == [((("commonName", "second"),),)]


def test_files_that_do_not_fit_keep_the_context_and_are_reported(
    tmp_path: Path, renewed: RenewedContext, caplog: pytest.LogCaptureFixture
) -> None:
    before = renewed.current()
    with caplog.at_level(logging.ERROR):
        replace_with(tmp_path / "key", tmp_path / "second.key")
        assert renewed.current() is before
        assert renewed.current() is before
    assert [record.message.count("the files of before are used on") for record in caplog.records] == [1]
    replace_with(tmp_path / "cert", tmp_path / "second.pem")
    assert renewed.current() is not before


def test_missing_file_has_changed_once(tmp_path: Path) -> None:
    path = tmp_path / "cert"
    path.write_text("x")
    files = ChangedFiles([path, None])
    path.unlink()
    assert [files.have_changed(), files.have_changed()] == [True, False]
