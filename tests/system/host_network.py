"""A network of hosts with links to one central host that can be cut.

Each host has a network namespace of its own where the kernel permits it; elsewhere all share the loopback interface,
and each link is a proxy at an address of its own (127.0.0.x) that carries nothing while it is cut.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import selectors
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from penstock.testing.pipe import free_ports

CLONE_NEWNET = 0x40000000
CENTRAL = "central"
_LIBC = ctypes.CDLL(None, use_errno=True)


class HostNetwork(Protocol):
    """The hosts 0 to n-1 and the central host."""

    central_address: str
    """``host:port`` on which the central daemon listens."""

    def address_from(self, host: int) -> str:
        """Return the address of the central daemon as a host reaches it."""

    def link_to(self, host: int, port: int) -> str:
        """Return the address at which a host reaches another port of the central host."""

    def inside(self, host: int | str) -> contextlib.AbstractContextManager[None]:
        """Let this thread open sockets and start processes on a host during the block."""

    def cut(self, host: int) -> None:
        """Drop everything on the link of a host."""

    def restore(self, host: int) -> None:
        """Restore the link of a host."""

    def close(self) -> None:
        """Remove the network."""


def host_network(hosts: int) -> HostNetwork:
    """Return a network of namespaces, or of loopback addresses where namespaces are not permitted."""
    try:
        return Namespaces(hosts)
    except (OSError, subprocess.CalledProcessError):
        return LoopbackLinks(hosts)


def _ip(*arguments: str) -> None:
    subprocess.run([shutil.which("ip") or "/sbin/ip", *arguments], check=True, capture_output=True, timeout=30)


class Namespaces:
    """Hosts in network namespaces, on a bridge in the namespace of the central host."""

    def __init__(self, hosts: int) -> None:
        self._prefix = f"penstock{os.getpid()}-"
        self._names: list[str] = []
        try:
            self._add(CENTRAL)
            self._ip_of(CENTRAL, "link", "add", "bridge", "type", "bridge")
            self._ip_of(CENTRAL, "addr", "add", "10.0.0.1/16", "dev", "bridge")
            self._ip_of(CENTRAL, "link", "set", "bridge", "up")
            for host in range(hosts):
                self._add(str(host))
                peer = ("peer", "name", "uplink", "netns", self._prefix + str(host))
                self._ip_of(CENTRAL, "link", "add", f"host{host}", "type", "veth", *peer)
                self._ip_of(CENTRAL, "link", "set", f"host{host}", "master", "bridge", "up")
                self._ip_of(str(host), "addr", "add", f"10.0.1.{host + 1}/16", "dev", "uplink")
                self._ip_of(str(host), "link", "set", "uplink", "up")
            with self.inside(CENTRAL):
                self.central_address = f"10.0.0.1:{free_ports(1)[0]}"
        except (OSError, subprocess.CalledProcessError):
            self.close()
            raise

    def _add(self, name: str) -> None:
        _ip("netns", "add", self._prefix + name)
        self._names.append(name)
        self._ip_of(name, "link", "set", "lo", "up")

    def _ip_of(self, name: str, *arguments: str) -> None:
        _ip("-n", self._prefix + name, *arguments)

    def address_from(self, host: int) -> str:
        return self.central_address

    def link_to(self, host: int, port: int) -> str:
        return f"10.0.0.1:{port}"

    @contextlib.contextmanager
    def inside(self, host: int | str) -> Iterator[None]:
        with Path("/proc/thread-self/ns/net").open() as former:
            with Path(f"/run/netns/{self._prefix}{host}").open() as namespace:
                _enter(namespace.fileno())
            try:
                yield
            finally:
                _enter(former.fileno())

    def cut(self, host: int) -> None:
        self._ip_of(CENTRAL, "link", "set", f"host{host}", "down")

    def restore(self, host: int) -> None:
        self._ip_of(CENTRAL, "link", "set", f"host{host}", "up")

    def close(self) -> None:
        for name in self._names:
            _ip("netns", "del", self._prefix + name)


def _enter(descriptor: int) -> None:
    # Only this thread changes its namespace: sockets that exist keep theirs, and children inherit it.
    if _LIBC.setns(descriptor, CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class LoopbackLinks:
    """Hosts on the loopback interface; a proxy per link, at an address of its own."""

    def __init__(self, hosts: int) -> None:
        self.central_address = f"127.0.0.1:{free_ports(1)[0]}"
        port = int(self.central_address.rpartition(":")[2])
        self._links = [[Link(f"127.0.0.{host + 10}", port)] for host in range(hosts)]

    def address_from(self, host: int) -> str:
        return self._links[host][0].address

    def link_to(self, host: int, port: int) -> str:
        self._links[host].append(Link(f"127.0.0.{host + 10}", port))
        return self._links[host][-1].address

    @contextlib.contextmanager
    def inside(self, host: int | str) -> Iterator[None]:
        yield

    def cut(self, host: int) -> None:
        for link in self._links[host]:
            link.is_up.clear()

    def restore(self, host: int) -> None:
        for link in self._links[host]:
            link.is_up.set()

    def close(self) -> None:
        for link in itertools.chain.from_iterable(self._links):
            link.close()


class Link:
    """A proxy of TCP connections to a loopback port or a Unix socket; while it is cut, bytes wait as if retransmitted.

    ``bytes_per_s``: what it carries at most, in both directions together; 0 for no limit.
    """

    def __init__(self, ip: str, target: int | str, bytes_per_s: int = 0) -> None:
        self._target, self._bytes_per_s = target, bytes_per_s
        self._server = socket.create_server((ip, 0))
        self.address = f"{ip}:{self._server.getsockname()[1]}"
        self.is_up = threading.Event()
        self.is_up.set()
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._closed = True
        self.is_up.set()
        # Wakes the thread that accepts; closing alone does not.
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _connect(self) -> socket.socket:
        if isinstance(self._target, int):
            return socket.create_connection(("127.0.0.1", self._target), 5)
        central = socket.socket(socket.AF_UNIX)
        central.connect(self._target)
        return central

    def _carry(self, client: socket.socket) -> None:
        with client, selectors.DefaultSelector() as selector:
            self.is_up.wait()
            try:
                central = self._connect()
            except OSError:
                return
            with central, contextlib.suppress(OSError):
                for source, target in ((client, central), (central, client)):
                    selector.register(source, selectors.EVENT_READ, target)
                while not self._closed:
                    for key, _ in selector.select(0.5):
                        self.is_up.wait()
                        source = key.fileobj
                        assert isinstance(source, socket.socket)
                        if not (data := source.recv(self._bytes_per_s // 20 or 1 << 16)):
                            return
                        if self._bytes_per_s:
                            time.sleep(len(data) / self._bytes_per_s)
                        key.data.sendall(data)
