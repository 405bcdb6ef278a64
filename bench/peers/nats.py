"""NATS JetStream with files: once each message is synced before it is acknowledged, once as it comes."""

from __future__ import annotations

import importlib.util

from bench.peers.peer import Started

CONFIG = """listen: "{address}"
jetstream {{ store_dir: "{folder}", sync_interval: {sync} }}
"""


class Nats(Started):
    """What it acknowledges is on the disk, as Penstock's is."""

    name, program = "nats", "nats-server"
    sync = "always"
    appends_with, reads_with = ("nats_load", "append"), ("nats_load", "read")

    def command(self) -> list[str]:
        config = self.folder / "nats.conf"
        config.write_text(CONFIG.format(address=self.address, folder=self.folder, sync=self.sync))
        return [str(self.path()), "-c", str(config)]

    @classmethod
    def missing(cls) -> str:
        client = "" if importlib.util.find_spec("nats") else "nats-py is not installed: pip install nats-py"
        return super().missing() or client


class NatsUnsynced(Nats):
    """By its default a message is synced within two minutes; a power cut takes what was acknowledged meanwhile."""

    name, sync = "nats_unsynced", "2m"
