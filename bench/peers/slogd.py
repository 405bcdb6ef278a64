"""The real slogd, which has no more than a log."""

from __future__ import annotations

import signal

from bench.peers.peer import Started


class Slogd(Started):
    """It is spoken to by gRPC, as Penstock is."""

    name = program = "slogd"
    ends_by = signal.SIGINT
    is_quiet = False
    appends_with, reads_with = ("append_load",), ("read_load",)

    def command(self) -> list[str]:
        addresses = ["--rpc_addr", self.address, "--http_addr", f"127.0.0.1:{self.other_port}"]
        return [str(self.path()), "server", *addresses, "--data_dir", str(self.folder)]
