"""Emulators of Azure's and Google's object stores: Azurite from npm, fake-gcs-server as a Go module.

Each is fetched once into the user's cache folder, by ``npm`` and ``go``; without one of these its test is skipped.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import httpx
from pyarrow import fs

from penstock.java.runtime import cache_folder
from penstock.testing.pipe import free_ports
from tests.object_store import wait_for_port

AZURITE, FAKE_GCS = "azurite@3.37.0", "github.com/fsouza/fake-gcs-server@v1.56.1"
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The key that Azurite's documentation names for its only account."""
FETCH_TIMEOUT_S = 900


class CannotFetchStore(RuntimeError):
    """The machine has no npm or no go."""


class CloudStore(Protocol):
    """A running store with the container ``lake``. ``root``: its URL; ``options``: names of delta-rs."""

    root: str
    options: dict[str, str]

    def upload(self, folder: Path) -> None:
        """Store the files below a folder by their relative names."""


class AzureStore:
    """Azurite on the loopback address."""

    root = "abfss://lake@devstoreaccount1.dfs.core.windows.net"

    def __init__(self, port: int) -> None:
        address, account = f"127.0.0.1:{port}", "devstoreaccount1"
        endpoint = f"http://{address}/{account}"
        self.options = {"account_name": account, "account_key": AZURITE_KEY, "azure_storage_endpoint": endpoint}
        self.options["allow_http"] = "true"
        self._system = fs.AzureFileSystem(
            account,
            account_key=AZURITE_KEY,
            blob_storage_authority=address,
            dfs_storage_authority=address,
            blob_storage_scheme="http",
            dfs_storage_scheme="http",
        )
        self._system.create_dir("lake")

    def upload(self, folder: Path) -> None:
        fs.copy_files(str(folder), "lake", fs.LocalFileSystem(), self._system)


class GoogleStore:
    """fake-gcs-server on the loopback address. It refuses uploads as delta-rs sends them."""

    root = "gs://lake"

    def __init__(self, port: int, folder: Path) -> None:
        self._address = f"http://127.0.0.1:{port}"
        account = {"gcs_base_url": self._address, "disable_oauth": True}
        account |= dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        (folder / "account.json").write_text(json.dumps(account))
        self.options = {"google_service_account": str(folder / "account.json"), "allow_http": "true"}
        httpx.post(f"{self._address}/storage/v1/b?project=shop", json={"name": "lake"}).raise_for_status()

    def upload(self, folder: Path) -> None:
        for path in filter(Path.is_file, folder.rglob("*")):
            name = quote(str(path.relative_to(folder)), safe="")
            address = f"{self._address}/upload/storage/v1/b/lake/o?uploadType=media&name={name}"
            httpx.post(address, content=path.read_bytes()).raise_for_status()


@contextlib.contextmanager
def azure_store(folder: Path) -> Iterator[CloudStore]:
    """Yield a running Azurite. Raises CannotFetchStore."""
    home = _fetched("azurite", "npm", ["npm", "install", "--silent", "--no-audit", "--no-fund", AZURITE], {})
    (port,) = free_ports(1)
    options = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder / "azurite")]
    program = str(home / "node_modules" / ".bin" / "azurite-blob")
    with _running([program, *options, "--silent", "--skipApiVersionCheck", "--disableTelemetry"], port):
        yield AzureStore(port)


@contextlib.contextmanager
def google_store(folder: Path) -> Iterator[CloudStore]:
    """Yield a running fake-gcs-server. Raises CannotFetchStore."""
    home = _fetched("fake-gcs-server", "go", ["go", "install", FAKE_GCS], {"GOBIN": "."})
    (port,) = free_ports(1)
    options = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    with _running([str(home / "fake-gcs-server"), *options, "-public-host", f"127.0.0.1:{port}"], port):
        yield GoogleStore(port, folder)


@contextlib.contextmanager
def _running(command: list[str], port: int) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_port(port, 120)
        yield
    finally:
        process.terminate()
        process.wait(30)


def _fetched(name: str, tool: str, command: list[str], environment: dict[str, str]) -> Path:
    """Return the cache's folder with a program; ``environment``: relative paths of variables in it."""
    folder = cache_folder() / name
    if not folder.is_dir():
        if shutil.which(tool) is None:
            raise CannotFetchStore(f"{name} is fetched by {tool}, which this machine does not have")
        draft = folder.with_suffix(".draft")
        draft.mkdir(parents=True, exist_ok=True)
        if tool == "npm":
            (draft / "package.json").write_text("{}")
        variables = {variable: str((draft / path).resolve()) for variable, path in environment.items()}
        subprocess.run(command, cwd=draft, check=True, timeout=FETCH_TIMEOUT_S, env={**os.environ, **variables})
        draft.rename(folder)
    return folder
