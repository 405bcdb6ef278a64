"""Content of pages without data: the addresses of the listeners, and commands to copy that send a first message.

Invariant: each command works unchanged on the machine of the console.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from penstock.config import Settings
from penstock.config.keys.listeners import ListenerConfig
from penstock.console.components.theme import table
from penstock.supervise.endpoints import endpoints

EVENT = json.dumps({"type": "test", "uuid": "first-1", "timestamp": 1767225600000})
PIPELINE_COMMAND = "penstock pipeline run"
ANY_HOST = ("0.0.0.0", "::", "")


def first_message_html(settings: Settings) -> str:
    """Return a row per listener: its address, and a command that sends a message there."""
    published = endpoints(Path(settings.data_dir)).get("listeners", {})
    rows = [
        [
            escape(listener.name),
            f"<code>{escape(address)}</code>{_copy_button(address)}",
            _command_html(listener, address),
        ]
        for listener in settings.listener
        if (address := listener_address(listener, published))
    ]
    heads = ["listener", "address", "command"]
    return table(heads, rows, stack=True)


def listener_address(listener: ListenerConfig, published: dict[str, Any]) -> str:
    """Return host and port, or file, by which this machine reaches a listener; "" if its port is not known yet."""
    if listener.is_local:
        return listener.path
    host, port = published.get(listener.name, (listener.host, listener.port))
    if not port:
        return ""
    name = "127.0.0.1" if host in ANY_HOST else str(host)
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def command(listener: ListenerConfig, address: str) -> str:
    """Return a command that sends a message to a listener; "" if there is no short one."""
    if listener.tls_cert is not None or listener.protocol == "otlp_grpc":
        return ""
    if listener.protocol == "http":
        return "" if listener.tokens else f"curl -d '{EVENT}' http://{address}/"
    if listener.is_local:
        return f"logger -u {address} hello"
    if listener.codec == "syslog":
        host, _, port = address.rpartition(":")
        transport = "-d" if listener.protocol == "udp" else "-T"
        return f"logger -n {host.strip('[]')} -P {port} {transport} hello"
    return f"echo hello | penstock send --listener {listener.name}" if listener.codec in ("plog", "raw") else ""


def _command_html(listener: ListenerConfig, address: str) -> str:
    text = command(listener, address)
    return command_html(text) if text else '<span class="dim">see the page of its protocol in the documentation</span>'


def command_html(text: str) -> str:
    """Return a command with a button that copies it."""
    return f"<code>{escape(text)}</code>{_copy_button(text)}"


def _copy_button(text: str) -> str:
    quoted = escape(text)
    return f'<button type="button" class="link copy" data-copy="{quoted}" aria-label="copy {quoted}">copy</button>'
