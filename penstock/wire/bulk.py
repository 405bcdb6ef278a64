"""The door for Elasticsearch's ``_bulk``: each item has its answer; and what its clients ask for before they send."""

from __future__ import annotations

from typing import Any

import orjson

from penstock.wire.json_text import is_json
from penstock.wire.message_ids import message_id
from penstock.wire.requests import KIND, OVERSIZE, SYNTAX, Answer, Messages, Received, Refused, Request, dumped, text_of

VERSION = "8.17.0"
"""That of Elasticsearch whose answers these are."""
PRODUCT = {"x-elastic-product": "Elasticsearch"}
"""Its clients talk to nobody who does not say so."""
_INFO = {
    "name": "penstock",
    "cluster_name": "penstock",
    "cluster_uuid": "penstock",
    "version": {
        "number": VERSION,
        "build_flavor": "default",
        "build_type": "tar",
        "build_hash": "unknown",
        "build_date": "2025-01-01T00:00:00.000Z",
        "build_snapshot": False,
        "lucene_version": "9.12.0",
        "minimum_wire_compatibility_version": "7.17.0",
        "minimum_index_compatibility_version": "7.0.0",
    },
    "tagline": "You Know, for Search",
}
_LICENSE = {"license": {"status": "active", "type": "basic", "uid": "penstock", "mode": "basic"}}
_HEALTH = {"cluster_name": "penstock", "status": "green", "timed_out": False, "number_of_nodes": 1}
_ASKED: dict[str, Any] = {"/": _INFO, "/_license": _LICENSE, "/_cluster/health": _HEALTH}
_WRITES = ("index", "create")
_TYPES = {
    400: "illegal_argument_exception",
    401: "security_exception",
    403: "security_exception",
    413: "content_too_long_exception",
    429: "es_rejected_execution_exception",
    503: "es_rejected_execution_exception",
}
_REASONS = {OVERSIZE: (413, "the document is too large"), SYNTAX: (400, "the document is not a JSON object")}


class BulkDoor:
    """Elasticsearch's way to index documents."""

    codec = "bulk"

    def takes(self, method: str, path: str) -> bool:
        """``/_bulk``, ``/INDEX/_bulk``, and questions about the product."""
        if method in ("GET", "HEAD"):
            return path in _ASKED
        return method in ("POST", "PUT") and path.endswith("/_bulk") and path.count("/") <= 2

    def receive(self, request: Request) -> Received | Answer:
        """Raises Refused."""
        if request.method in ("GET", "HEAD"):
            return dumped(_ASKED[request.path], headers=PRODUCT)
        messages, items = Messages(request), _Items(request.path.strip("/").rpartition("/")[0])
        lines = iter(request.body.split(b"\n"))
        for line in lines:
            if line.strip():
                action, said = _action(line)
                document = next(lines, None) if action != "delete" else b""
                if document is None:
                    raise Refused(400, SYNTAX, "the bulk request ends behind an action")
                items.answer(action, said, _take(action, items.index_of(said), said, document, messages))
        if not items.answered:
            raise Refused(400, SYNTAX, "request body is required")
        return messages.received(dumped({"took": 0, "errors": items.errors, "items": items.answered}, headers=PRODUCT))

    def refusal(self, why: Refused, request: Request) -> Answer:
        """As Elasticsearch says it; 429 is what its clients try again after."""
        status = 429 if why.may_come_again else why.status
        error = {"type": _TYPES.get(status, "illegal_argument_exception"), "reason": str(why)}
        return dumped({"error": {"root_cause": [error], **error}, "status": status}, status, PRODUCT)


class _Items:
    """The answers to the items of one request."""

    def __init__(self, index: str) -> None:
        self._index = index
        self.answered: list[dict[str, Any]] = []
        self.errors = False

    def index_of(self, said: dict[str, Any]) -> str:
        """The index that an action names, or the path does."""
        return str(said.get("_index") or self._index)

    def answer(self, action: str, said: dict[str, Any], error: tuple[int, str] | None) -> None:
        """``error``: status and reason, None for a document that is taken."""
        item: dict[str, Any] = {"_index": self.index_of(said), "_id": str(said.get("_id") or len(self.answered))}
        if error is None:
            shards = {"total": 1, "successful": 1, "failed": 0}
            item |= {"_version": 1, "result": "created", "_shards": shards, "_seq_no": 0, "_primary_term": 1}
            item["status"] = 201
        else:
            self.errors = True
            item |= {"status": error[0], "error": {"type": "document_parsing_exception", "reason": error[1]}}
        self.answered.append({action: item})


def _action(line: bytes) -> tuple[str, dict[str, Any]]:
    """What an item asks for. Raises Refused: the rest cannot be told apart then."""
    try:
        ((action, said),) = orjson.loads(line).items()
    except (ValueError, AttributeError):
        raise Refused(400, SYNTAX, "Malformed action/metadata line: one object with one action is expected") from None
    if action not in (*_WRITES, "update", "delete") or not isinstance(said, dict):
        raise Refused(400, SYNTAX, f"Malformed action/metadata line: [{action}] is no action")
    return str(action), said


def _take(action: str, index: str, said: dict[str, Any], line: bytes, messages: Messages) -> tuple[int, str] | None:
    """Take a document, as it is; why not, as status and reason."""
    if action not in _WRITES:
        messages.refuse(KIND)
        return 400, f"[{action}] is not supported: documents are only added"
    document = line.strip()
    fits = document.startswith(b"{") and is_json(document)
    named = {"index": index, "id": said.get("_id"), "routing": said.get("routing")}
    annotations = {name: text_of(value) for name, value in named.items() if value not in (None, "")}
    if action == "create" and "id" in annotations:  # what is indexed under an id may become again what it was
        named_by = (index.encode("utf-8", "replace"), annotations["id"].encode("utf-8", "replace"))
        annotations["uuid"] = message_id([*named_by, document])
    why = messages.add(document, annotations) if fits else messages.refuse(SYNTAX)
    return _REASONS[why] if why else None
