"""An HTTP server that answers as Unity Catalog's servers 0.6.0 and 0.4.1 did: paths, checks and errors are from them.

``tests/upkeep/test_unity_catalog.py`` runs the same calls against the real server if its classpath is set.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from typing import Any
from urllib.parse import unquote

API = "/api/2.1/unity-catalog"
COLUMN_KEYS = {"name", "type_text", "type_json", "type_name", "position", "nullable", "type_precision", "type_scale"}
TYPE_NAMES = {"BOOLEAN", "INT", "LONG", "DOUBLE", "DATE", "TIMESTAMP", "STRING", "BINARY", "DECIMAL", "MAP"}
DELTA_API_KEYS = {"key-type": "keyType", "value-type": "valueType", "value-contains-null": "valueContainsNull"}


class Refused(Exception):
    """A status and an error code with a message; without a code the answer is no JSON."""


class UnityServer(ThreadingHTTPServer):
    """Catalogs, schemas and tables in memory.

    ``has_delta_api`` is false for a server before 0.5. With ``redirect`` all requests are sent elsewhere.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str, str | None]] = []
        self.has_delta_api, self.token, self.redirect = True, "", ""

    def table(self, name: str) -> dict[str, Any]:
        return self.objects[f"/tables/{name}"]

    def answer(self, method: str, path: str, document: dict[str, Any]) -> dict[str, Any]:
        if method == "GET" and re.match("/(catalogs|schemas|tables)/", path):
            if path not in self.objects:
                kind = path.split("/")[1][:-1]
                code = f"{kind.upper()}_NOT_FOUND" if self.has_delta_api else "NOT_FOUND"
                raise Refused(404, code, f"{kind} not found: {path}")
            return self.objects[path]
        if path in ("/catalogs", "/schemas", "/tables"):
            return self._create(path, document)
        if self.has_delta_api and (match := re.fullmatch("/delta/v1/catalogs/(.*)/schemas/(.*)/tables/(.*)", path)):
            return self._set_columns(self.table(".".join(match.groups())), document)
        raise Refused(404, "", "Status: 404\nDescription: Not Found\n")

    def _create(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        full_name = ".".join(document[key] for key in ("catalog_name", "schema_name", "name") if key in document)
        if "/" in full_name or " " in full_name:
            message = "Name cannot contain a period, space, forward-slash, or control characters"
            raise Refused(400, "INVALID_ARGUMENT", message)
        if f"{path}/{full_name}" in self.objects:
            raise Refused(400, "TABLE_ALREADY_EXISTS", f"Table already exists: {full_name}")
        if path == "/tables":
            if not re.fullmatch(r"(file|s3|gs|abfss?)://[^\s%]*(%[0-9A-F]{2}[^\s%]*)*", document["storage_location"]):
                raise Refused(400, "INVALID_ARGUMENT", f"Unsupported path: {document['storage_location']}")
            for column in document["columns"]:
                assert column.keys() <= COLUMN_KEYS
                assert column["type_name"] in TYPE_NAMES
                assert json.loads(column["type_json"])["name"] == column["name"]
        self.objects[f"{path}/{full_name}"] = document | {"table_id": str(uuid.uuid4()), "comment": None}
        return document

    def _set_columns(self, table: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
        (requirement,), (update,) = document["requirements"], document["updates"]
        if requirement != {"type": "assert-table-uuid", "uuid": table["table_id"]}:
            raise Refused(409, "UpdateRequirementConflictException", "The table was replaced")
        assert update.keys() == {"action", "columns"}
        assert update["action"] == "set-columns"
        table["columns"] = [
            {"name": field["name"], "comment": field["metadata"].get("comment"), "type_json": json.dumps(field)}
            for field in _camel_case(update["columns"])["fields"]
        ]
        return {"metadata": {}}


def _camel_case(kind: Any) -> Any:
    if isinstance(kind, list):
        return [_camel_case(each) for each in kind]
    if not isinstance(kind, dict):
        return kind
    if unknown := kind.keys() & {"keyType", "valueType", "elementType"}:
        raise Refused(400, "InvalidParameterValueException", f"failed to parse a JSON document\n {unknown}")
    return {DELTA_API_KEYS.get(key, key): _camel_case(part) for key, part in kind.items()}


class _Handler(BaseHTTPRequestHandler):
    server: UnityServer

    def do_GET(self) -> None:
        text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote(self.path).removeprefix(API)
        authorization = self.headers["Authorization"]
        self.server.requests.append((self.command, path, authorization))
        if self.server.redirect:
            self.send_response(307)
            self.send_header("Location", self.server.redirect)
            self.end_headers()
            return
        try:
            if self.server.token and authorization != f"Bearer {self.server.token}":
                raise Refused(401, "UNAUTHENTICATED", "Invalid access token.")
            status, answer = 200, json.dumps(self.server.answer(self.command, path, json.loads(text or "{}")))
        except Refused as refused:
            status, code, message = refused.args
            error = {"error_code": code, "message": message}
            if path.startswith("/delta/"):
                error = {"error": {"type": code, "message": message, "code": status}}  # type: ignore[dict-item]
            answer = json.dumps(error) if code else message
        self.send_response(status)
        self.end_headers()
        self.wfile.write(answer.encode())

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def unity_server(cert: Path | None = None, key: Path | None = None) -> Iterator[UnityServer]:
    """Yield a running server, with TLS if it has a certificate."""
    server = UnityServer()
    if cert is not None:
        context = SSLContext(PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
