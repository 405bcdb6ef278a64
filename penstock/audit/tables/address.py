"""Addresses of tables: their credentials, which never appear in a text, and whether a table is one of Iceberg."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode

ICEBERG_METADATA = ".metadata.json"
CONTAINER_SCHEMES = ("abfs", "abfss", "wasb", "wasbs")
"""Schemes of addresses that name a container of Azure before the account: ``abfss://container@account``."""
SECRET_KEY = re.compile(r"pass|secret|token|credential|jaas|key|sas", re.IGNORECASE)
"""Options, properties and parameters whose values never appear in a text."""


def without_credentials(address: str) -> str:
    """Return an address for a report: without user, password and parameters other than the table's name."""
    scheme, separator, _ = address.partition("://")
    if not separator or scheme == "file":
        return address
    _, host, parameters = _split_credentials(address)
    query = urlencode([(name, text) for name, text in parameters if name == "table"], safe="/")
    return f"{scheme}://{host}" + (f"?{query}" if query else "")


def identity_of(address: str) -> str:
    """Return an address without its password and other secrets, which may be renewed; all else distinguishes it."""
    scheme, separator, _ = address.partition("://")
    if not separator or scheme == "file":
        return address
    credentials, host, parameters = _split_credentials(address)
    public = [(name, text) for name, text in parameters if not SECRET_KEY.search(name)]
    return f"{scheme}://{credentials.partition(':')[0]}@{host}?{urlencode(public)}"


def password_in(address: str) -> str:
    """Return the password in an address; empty if it has none."""
    return _split_credentials(address)[0].partition(":")[2] if "://" in address else ""


def _split_credentials(address: str) -> tuple[str, str, list[tuple[str, str]]]:
    """Return USER:PASSWORD of an address, its host and path, and its parameters."""
    # Not by urlsplit: a password may have characters that end the host or make the address invalid.
    scheme, _, rest = address.partition("://")
    head, mark, query = rest.rpartition("?")
    if not mark:
        head, query = rest, ""
    credentials, at_sign, host = head.rpartition("@")
    # The last "@" ends the credentials only if a ":" or "@" comes before the path; otherwise it belongs to the path.
    is_part_of_path = not re.match(r"[^/?#]*[:@]", credentials + at_sign)
    is_container = scheme.lower() in CONTAINER_SCHEMES and ":" not in credentials
    if is_part_of_path or is_container:
        credentials, host = "", head
    return credentials, host, parse_qsl(query)


def is_iceberg(address: str) -> bool:
    """Report whether ``address`` is a table of a catalog, a metadata file or the local folder of an Iceberg table."""
    if address.startswith("iceberg://") or address.endswith(ICEBERG_METADATA):
        return True
    return "://" not in address.removeprefix("file://") and bool(iceberg_metadata(address))


def iceberg_metadata(address: str) -> list[Path]:
    """Return the metadata files in the local folder of an Iceberg table; empty for other folders."""
    return sorted((Path(unquote(address.removeprefix("file://"))) / "metadata").glob(f"*{ICEBERG_METADATA}"))
