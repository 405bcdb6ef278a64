"""A real server of S3 on loopback (moto's), with credentials, and a wire to it that can be cut."""

from __future__ import annotations

import json
import multiprocessing
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

BUCKET = "lake"
UNSIGNED = 4
"""Requests before credentials are looked at: a user, a key, a right, and the bucket."""
RIGHTS = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
SOON = {"timeout": "2s", "connect_timeout": "2s", "max_retries": "1", "retry_timeout": "2s"}


class S3Server:
    """Started when it is made; ``address`` is ``127.0.0.1:PORT``."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
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
        given = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
        retries = Config(retries={"max_attempts": 1})
        return boto3.client(service, endpoint_url=f"http://{self.address}", config=retries, **given)

    def options(self, address: str = "", **other: str) -> dict[str, str]:
        """What delta-rs is told; ``address``: that of a wire."""
        return {
            "AWS_ENDPOINT_URL": f"http://{address or self.address}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": self._key["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": self._key["SecretAccessKey"],
            **SOON,
            **other,
        }

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """It answers nobody meanwhile."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class Wire:
    """Passes connections on to a server, in a process of its own, until it is cut; or loses an answer."""

    def __init__(self, server: str) -> None:
        here = multiprocessing.get_context("spawn")
        self._cut, self._lost, self._deaf = here.Event(), here.Event(), here.Array("c", 300)
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        place = int(server.rpartition(":")[2])
        self._process = here.Process(
            target=_pass_on, args=(port, place, self._cut, self._deaf, self._lost), daemon=True
        )
        self._process.start()
        wait_for_port(port)

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Connections break, and new ones are closed at once."""
        self._cut.set()
        try:
            yield
        finally:
            self._cut.clear()

    def lose_answer(self, request: bytes) -> None:
        """The next request that has this in it is carried out, and its answer lost."""
        self._lost.clear()
        self._deaf.value = request

    @property
    def lost(self) -> bool:
        """Whether that happened."""
        return self._lost.is_set()

    def end(self) -> None:
        self._process.kill()
        self._process.join()


def _pass_on(port: int, place: int, cut: Any, deaf: Any, lost: Any) -> None:
    with socket.create_server(("127.0.0.1", port)) as listening:
        while True:
            here, _ = listening.accept()
            if cut.is_set():
                here.close()
            else:
                threading.Thread(target=_connection, args=(here, place, cut, deaf, lost), daemon=True).start()


def _connection(here: socket.socket, place: int, cut: Any, deaf: Any, lost: Any) -> None:
    with closing(here), closing(socket.create_connection(("127.0.0.1", place))) as there, suppress(OSError):
        mute = False
        while ready := select.select([here, there], [], [], 0.2)[0] or [None]:
            if cut.is_set():
                return
            for one in (one for one in ready if one is not None):
                data = one.recv(1 << 16)
                if not data or (mute and one is there):
                    return
                if one is here and deaf.value and deaf.value in data:
                    mute, deaf.value = True, b""
                    lost.set()
                (there if one is here else here).sendall(data)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def wait_for_port(port: int, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens on port {port}")
