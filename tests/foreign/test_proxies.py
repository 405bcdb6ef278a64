"""nginx and HAProxy before a listener: each acknowledged message is stored once, also while its receiver ends."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from penstock.testing.pipe import Pipe, free_ports, wait_until
from tests.system.topic_files import entries

LISTENER = """
[[listener]]
name = "web"
protocol = "http"
port = {server}
max_body = "1MiB"
"""
NGINX = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_max_body_size 0;
    {paths}
    upstream penstock {{ server 127.0.0.1:{server}; keepalive 32; }}
    server {{
        listen 127.0.0.1:{proxy};
        location / {{
            proxy_pass http://penstock;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_request_buffering {buffering};
        }}
    }}
}}
"""
PATHS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
HAPROXY = """
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
listen penstock
    bind 127.0.0.1:{proxy}
    http-reuse always
    server penstock 127.0.0.1:{server}
"""
PROXIES = ("nginx", "nginx without buffers", "haproxy")
SENDERS, SECONDS = 8, 20.0


@contextlib.contextmanager
def running_proxy(folder: Path, name: str, server: int) -> Iterator[int]:
    """Run a proxy before the port ``server``; yield its own port. Skips the test if the proxy is not installed."""
    program, _, variant = name.partition(" ")
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    (port,) = free_ports(1)
    file, text = folder / "proxy.conf", NGINX if program == "nginx" else HAPROXY
    paths = " ".join(f"{path}_temp_path {folder}/{path};" for path in PATHS)
    buffering = "off" if variant else "on"
    file.write_text(text.format(folder=folder, proxy=port, server=server, paths=paths, buffering=buffering))
    options = {"nginx": ["-p", str(folder), "-c", str(file)], "haproxy": ["-db", "-f", str(file)]}[program]
    with subprocess.Popen([program, *options]) as process:
        try:
            wait_until(lambda: is_open(port), 20)
            yield port
        finally:
            process.terminate()


def is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def send(port: int, sender: int, until: float, statuses: Counter[int], acknowledged: set[bytes]) -> None:
    """Send a message after the other; every fourth one in chunks."""
    with httpx.Client(timeout=30, trust_env=False) as client:
        number = 0
        while time.monotonic() < until:
            number += 1
            text = b'{"id":"%d-%d"}' % (sender, number)
            content = iter([text[:5], text[5:]]) if number % 4 == 0 else text
            with contextlib.suppress(httpx.TransportError):  # HAProxy closes a connection whose server has ended
                status = client.post(f"http://127.0.0.1:{port}/", content=content).status_code
                statuses[status] += 1
                if status == 200:
                    acknowledged.add(text)


@pytest.mark.soak
@pytest.mark.parametrize("name", PROXIES)
def test_messages_are_stored_once_behind_a_proxy_while_receivers_end(tmp_path: Path, name: str) -> None:
    (server,) = free_ports(1)
    pipe = Pipe(tmp_path)
    pipe.configure(LISTENER.format(server=server))
    with running_proxy(tmp_path, name, server) as port:
        try:
            pipe.start()
            statuses, acknowledged = Counter[int](), set[bytes]()
            until = time.monotonic() + SECONDS
            threads = [
                threading.Thread(target=send, args=(port, sender, until, statuses, acknowledged))
                for sender in range(SENDERS)
            ]
            for thread in threads:
                thread.start()
            while time.monotonic() < until - 4:
                time.sleep(2)
                pipe.signal("receiver web", signal.SIGTERM)
            for thread in threads:
                thread.join()
            large = b'{"a":"%b"}' % (b"a" * (3 << 20))
            assert httpx.post(f"http://127.0.0.1:{port}/", content=large, timeout=60).status_code == 413
            wait_until(lambda: pipe.counts("web")["request_refused.oversize"] == 1, 20)
            pipe.settled()
            stored = Counter(row["payload"] for row in entries(pipe, "events"))
            assert set(statuses) <= {200, 502, 503}
            assert set(stored.values()) == {1}
            assert set(stored) >= acknowledged
        finally:
            pipe.stop()
