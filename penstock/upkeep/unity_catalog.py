"""Entries of the Delta tables in Unity Catalog's open-source server, by its REST API.

Invariant: an entry is never deleted: its grants, comment and properties are its owner's. New columns come by the
server's Delta API, which versions before 0.5 do not have.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import Request

from penstock.config.keys.security.servers import is_loopback
from penstock.files.json_values import parse_object
from penstock.process.ledger_posts import direct_opener
from penstock.upkeep.catalog_entries import TIMEOUT_S, CatalogFailed, Entry, hive_type

API = "/api/2.1/unity-catalog"
MAX_QUOTED_BYTES = 1 << 16
"""Limit: an error quotes a message from at most this much of an answer."""
TYPE_NAMES = {"integer": "INT"}
"""Unity Catalog's names of Delta's types that are not Delta's in upper case."""
URL_MARKS = "/:@-._~=+,&!$'()*;"
"""Marks that the server accepts in a location."""
DELTA_API_KEYS = {
    "elementType": "element-type",
    "containsNull": "contains-null",
    "keyType": "key-type",
    "valueType": "value-type",
    "valueContainsNull": "value-contains-null",
}
"""The Delta API's keys of nested types, by the keys of a Delta schema."""


class UnityServer:
    """The API of the server at a URL; ``token`` is its bearer token, ``ca`` a file of the authorities to trust.

    Raises CatalogFailed for an address that would show the token to others.
    """

    def __init__(self, url: str, token: str | None, ca: Path | None) -> None:
        parts = urlsplit(url)
        if not parts.hostname or parts.username is not None or parts.query or parts.fragment:
            raise CatalogFailed(f"{url} is not the address of a server: it is https://HOST:PORT")
        # A port only completes the address for the test.
        host = f"[{parts.hostname}]:443" if ":" in parts.hostname else f"{parts.hostname}:443"
        if token and parts.scheme != "https" and not is_loopback(host):
            raise CatalogFailed(f"{url}: a token needs https: others on the network could read it")
        try:
            context = ssl.create_default_context(cafile=ca)
        except OSError as error:
            raise CatalogFailed(f"{ca} holds no certificates: {error.strerror or error}") from None
        self._url = url.rstrip("/") + API
        self._opener = direct_opener(context)
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def find_object(self, path: str) -> dict[str, Any] | None:
        """Return an object of the catalog, or None if there is none. Raises CatalogFailed."""
        try:
            return self._send(path, None)
        except _NotFound:
            return None

    def post(self, path: str, document: Mapping[str, Any]) -> None:
        """Create or change an object. Raises CatalogFailed."""
        self._send(path, document)

    def _send(self, path: str, document: Mapping[str, Any] | None) -> dict[str, Any]:
        url = self._url + path
        try:
            request = Request(url, None if document is None else json.dumps(document).encode(), self._headers)
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                return parse_object(response.read())
        except HTTPError as error:
            if 300 <= error.code < 400:
                reason = f"a redirect to {error.headers['Location']}, which is not followed"
                raise CatalogFailed(f"{url} answers {error.code}: {reason}") from None
            code, message = _refusal(error)
            # The code of a missing object differs by version: TABLE_NOT_FOUND, before 0.5 NOT_FOUND.
            failure = CatalogFailed if error.code != 404 else _NotFound if code else _NoSuchApi
            raise failure(f"{url} answers {error.code}: {message}") from None
        except ValueError as error:
            raise CatalogFailed(f"{url} is not of a Unity Catalog: {error}") from None
        except (OSError, HTTPException) as error:
            raise CatalogFailed(f"{url}: {getattr(error, 'reason', error) or type(error).__name__}") from None


class _NotFound(CatalogFailed):
    """The server does not have the object."""


class _NoSuchApi(CatalogFailed):
    """The server does not have the path: it is another program, or an older version."""


class UnityNamespace:
    """A schema of a catalog, both made if they are missing."""

    def __init__(self, server: UnityServer, namespace: str) -> None:
        self._server = server
        self._catalog, _, self._schema = namespace.partition(".")
        if not re.fullmatch(r"[^./\s]+\.[^./\s]+", namespace):
            raise CatalogFailed(f"{namespace}: a namespace of Unity Catalog is CATALOG.SCHEMA")
        if server.find_object(f"/schemas/{quote(namespace)}") is None:
            if server.find_object(f"/catalogs/{quote(self._catalog)}") is None:
                server.post("/catalogs", {"name": self._catalog})
            server.post("/schemas", {"name": self._schema, "catalog_name": self._catalog})

    def location_of(self, url: str) -> str:
        # The server refuses blanks and the like. Letters of other scripts stay: not every reader decodes a URL.
        return "".join(letter if letter.isalnum() or letter in URL_MARKS else quote(letter) for letter in url)

    def find_entry(self, name: str) -> Entry | None:
        table = self._find_table(name)
        if table is None:
            return None
        is_delta = (table.get("table_type"), table.get("data_source_format")) == ("EXTERNAL", "DELTA")
        columns = tuple((column["name"], _type_of(column)) for column in table.get("columns") or ())
        return Entry(name, (is_delta and table.get("storage_location")) or "", columns)

    def write(self, entry: Entry, is_new: bool) -> None:
        if is_new:
            document = {
                "name": entry.name,
                "catalog_name": self._catalog,
                "schema_name": self._schema,
                "table_type": "EXTERNAL",
                "data_source_format": "DELTA",
                "storage_location": entry.location,
                "columns": [_column(field, position) for position, field in enumerate(entry.fields)],
            }
            self._server.post("/tables", document)
            return
        table = self._find_table(entry.name) or {}
        comments = {column["name"]: column.get("comment") for column in table.get("columns") or ()}
        fields = [_with_comment(field, comments.get(field["name"])) for field in entry.fields]
        columns = _for_delta_api({"type": "struct", "fields": fields})
        path = "/".join(map(quote, ("catalogs", self._catalog, "schemas", self._schema, "tables", entry.name)))
        request = {
            "requirements": [{"type": "assert-table-uuid", "uuid": table.get("table_id")}],
            "updates": [{"action": "set-columns", "columns": columns}],
        }
        try:
            self._server.post(f"/delta/v1/{path}", request)
        except _NoSuchApi as error:
            hint = "servers before 0.5 cannot change columns, so delete the entry there and repeat the command"
            raise CatalogFailed(f"{error}: {hint}") from None

    def _find_table(self, name: str) -> dict[str, Any] | None:
        return self._server.find_object(f"/tables/{quote(f'{self._catalog}.{self._schema}.{name}')}")


def _refusal(error: HTTPError) -> tuple[str, str]:
    """Return the code of an error, empty if it is not of an API, and its message in one line."""
    text = error.read(MAX_QUOTED_BYTES)
    try:
        answer = parse_object(text)
        # The Delta API's errors have another form.
        code, message = (
            (answer["error"]["type"], answer["error"]["message"])
            if "error" in answer
            else (answer["error_code"], answer["message"])
        )
    except (ValueError, KeyError, TypeError):
        code, message = "", text.decode(errors="replace")
    return str(code), " ".join(str(message).split())[:1000] or error.reason


def _type_of(column: Mapping[str, Any]) -> str:
    """Return Hive's name of a column's type, from its field of a Delta schema or from its text."""
    try:
        return hive_type(parse_object(column["type_json"])["type"])
    except (ValueError, KeyError, TypeError):
        return str(column.get("type_text", ""))


def _column(field: Mapping[str, Any], position: int) -> dict[str, Any]:
    kind = field["type"]
    name = kind.partition("(")[0] if isinstance(kind, str) else kind["type"]
    column = {
        "name": field["name"],
        "type_text": hive_type(kind),
        "type_json": json.dumps(field),
        "type_name": TYPE_NAMES.get(name, name.upper()),
        "position": position,
        "nullable": field["nullable"],
    }
    if name == "decimal":
        column["type_precision"], column["type_scale"] = (int(digits) for digits in re.findall(r"\d+", kind))
    return column


def _with_comment(field: Mapping[str, Any], comment: str | None) -> dict[str, Any]:
    return {**field, "metadata": {**field.get("metadata", {}), **({"comment": comment} if comment else {})}}


def _for_delta_api(kind: Any) -> Any:
    """Return a type of a Delta schema with the keys of the Delta API."""
    if isinstance(kind, list):
        return [_for_delta_api(each) for each in kind]
    if not isinstance(kind, dict):
        return kind
    return {
        DELTA_API_KEYS.get(key, key): part if key == "metadata" else _for_delta_api(part) for key, part in kind.items()
    }
