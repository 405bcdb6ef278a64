"""A MariaDB server on a free port, from Debian's package."""

from __future__ import annotations

import getpass
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pymysql

from penstock.testing.pipe import free_ports, wait_until
from tests.debian_packages import library_environment, unpacked


class MySqlServer:
    """A server with its data in ``folder`` and a database ``test``; root has no password.

    Entering it raises CannotFetchDebian.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self.port = folder, free_ports(1)[0]

    def __enter__(self) -> Self:
        root = unpacked("mariadb", ["mariadb-server-core", "mariadb-client-core"])
        options = [f"--basedir={root}/usr", f"--datadir={self._folder}/data", f"--user={getpass.getuser()}"]
        common = ["--no-defaults", *options]
        environment = library_environment(root)
        install = [f"{root}/usr/bin/mariadb-install-db", *common, "--auth-root-authentication-method=normal"]
        subprocess.run(install, check=True, capture_output=True, env=environment)
        listening = [f"--port={self.port}", "--bind-address=127.0.0.1", f"--socket={self._folder}/socket"]
        # A test that fails may keep its snapshot, and with it the lock of a table.
        listening += ["--lock-wait-timeout=20"]
        self._process = subprocess.Popen([f"{root}/usr/sbin/mariadbd", *common, *listening], env=environment)
        wait_until(self._answers, 60)
        return self

    def connect(self, user: str = "root", password: str = "") -> Any:
        """Return a connection to the database ``test`` that commits each statement."""
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user=user, password=password, database="test", autocommit=True
        )

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
