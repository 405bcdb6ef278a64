"""A MariaDB server on a free port, for machines that have one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import pymysql

from penstock.testing.pipe import wait_until
from tests.object_store import free_port


class MySqlServer:
    """A server with its data in ``folder`` and a database ``test``; root has no password."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.port = folder, free_port()

    def __enter__(self) -> Self:
        programs = Path(shutil.which("mariadbd") or "").resolve().parents[1]
        base = ["--no-defaults", f"--basedir={programs}", f"--datadir={self._folder}/data"]
        subprocess.run(
            ["mariadb-install-db", *base, "--user=root", "--auth-root-authentication-method=normal"],
            check=True,
            capture_output=True,
        )
        listening = [f"--port={self.port}", "--bind-address=127.0.0.1", f"--socket={self._folder}/socket"]
        self._process = subprocess.Popen(["mariadbd", *base, "--user=root", *listening])
        wait_until(self._answers, 60)
        return self

    def _answers(self) -> bool:
        try:
            with pymysql.connect(host="127.0.0.1", port=self.port, user="root") as connection:
                connection.cursor().execute("CREATE DATABASE IF NOT EXISTS test")
        except pymysql.Error:
            return False
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(30)
