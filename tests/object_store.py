"""A real S3 server on loopback (moto) with credentials, and a connection to it that can be cut."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from penstock.testing import wait_until
from penstock.testing.pipe import free_ports

BUCKET = "lake"
UNSIGNED = 4
"""Requests before credentials are looked at: a user, a key, a right, and the bucket."""
RIGHTS = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
SOON = {"timeout": "2s", "connect_timeout": "2s", "max_retries": "1", "retry_timeout": "2s"}


class S3Server:
    """A server that starts on construction; ``address`` is ``127.0.0.1:PORT``."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        environment = {**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": str(UNSIGNED)}
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        with (folder / "s3.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder)
        wait_for_port(port)
        iam = self._client("iam")
        iam.create_user(UserName="penstock")
        self._key = iam.create_access_key(UserName="penstock")["AccessKey"]
        iam.put_user_policy(UserName="penstock", PolicyName="all", PolicyDocument=json.dumps(RIGHTS))
        self._client("s3").create_bucket(Bucket=BUCKET)

    def _client(self, service: str) -> Any:
        credentials = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
        retries = Config(retries={"max_attempts": 1})
        return boto3.client(service, endpoint_url=f"http://{self.address}", config=retries, **credentials)

    def options(self, address: str = "", **overrides: str) -> dict[str, str]:
        """Return the options for delta-rs; ``address`` is that of a wire."""
        return {
            "AWS_ENDPOINT_URL": f"http://{address or self.address}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": self._key["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": self._key["SecretAccessKey"],
            **SOON,
            **overrides,
        }

    def file_system(self) -> Any:
        """Return a file system of PyArrow with the bucket."""
        from pyarrow.fs import S3FileSystem

        from penstock.landing.storage.object_path import s3_arguments

        return S3FileSystem(**s3_arguments(self.options()))

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the server during the block."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class Wire:
    """A proxy to a server in its own process; it can be cut, or lose an answer."""

    def __init__(self, server: str) -> None:
        here = multiprocessing.get_context("spawn")
        self._cut, self._lost, self._deaf = here.Event(), here.Event(), here.Array("c", 300)
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        server_port = int(server.rpartition(":")[2])
        self._process = here.Process(
            target=_pass_on, args=(port, server_port, self._cut, self._deaf, self._lost), daemon=True
        )
        self._process.start()
        wait_for_port(port)

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Break connections during the block, and close new ones immediately."""
        self._cut.set()
        try:
            yield
        finally:
            self._cut.clear()

    def lose_answer(self, request: bytes) -> None:
        """Forward the next request that contains ``request``, and drop its answer."""
        self._lost.clear()
        self._deaf.value = request

    @property
    def lost(self) -> bool:
        """Report whether an answer was dropped."""
        return self._lost.is_set()

    def end(self) -> None:
        self._process.kill()
        self._process.join()


def _pass_on(port: int, server_port: int, cut: Any, deaf: Any, lost: Any) -> None:
    with socket.create_server(("127.0.0.1", port)) as listening:
        while True:
            here, _ = listening.accept()
            if cut.is_set():
                here.close()
            else:
                threading.Thread(target=_connection, args=(here, server_port, cut, deaf, lost), daemon=True).start()


def _connection(here: socket.socket, server_port: int, cut: Any, deaf: Any, lost: Any) -> None:
    with closing(here), closing(socket.create_connection(("127.0.0.1", server_port))) as there, suppress(OSError):
        mute = False
        while ready := wait([here, there], 0.2) or [None]:
            if cut.is_set():
                return
            for sock in (sock for sock in ready if sock is not None):
                data = sock.recv(1 << 16)
                if not data or (mute and sock is there):
                    return
                if sock is here and deaf.value and deaf.value in data:
                    mute, deaf.value = True, b""
                    lost.set()
                (there if sock is here else here).sendall(data)


def wait_for_port(port: int, seconds: float = 60) -> None:
    def listens() -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    wait_until(listens, seconds, f"a server listens on port {port}")
