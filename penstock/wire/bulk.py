"""The protocol for documents to Elasticsearch: ``_bulk``, ``_doc``, ``_create``, and the questions of its clients."""

from __future__ import annotations

import re
import time
from typing import Any

import orjson

from penstock.wire.json_text import is_json
from penstock.wire.message_ids import message_id
from penstock.wire.requests import (
    KIND,
    OVERSIZE,
    SYNTAX,
    Answer,
    Messages,
    Received,
    Refused,
    Request,
    annotation_text,
    json_answer,
)

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
_SHARDS = {"total": 1, "successful": 1, "failed": 0}
_INDEX = re.compile(r"/[^_/+-][^/]*")
_BULK = re.compile(r"(?:/([^_/][^/]*)(?:/[^_/][^/]*)?)?/_bulk")
"""``/_bulk``, ``/INDEX/_bulk``, and ``/INDEX/TYPE/_bulk`` of versions before 8."""
_DOCUMENT = re.compile(r"/([^_/][^/]*)/_(doc|create)(?:/([^/]+))?")
_REFRESH = re.compile(r"(?:/[^_/][^/]*)?/_refresh")
_TYPES = {
    400: "illegal_argument_exception",
    401: "security_exception",
    403: "security_exception",
    413: "content_too_long_exception",
    429: "es_rejected_execution_exception",
    503: "es_rejected_execution_exception",
}
_REASONS = {OVERSIZE: (413, "the document is too large"), SYNTAX: (400, "the document is not a JSON object")}


class BulkProtocol:
    """Elasticsearch's way to index documents."""

    codec = "bulk"

    def takes(self, method: str, path: str) -> bool:
        """Return whether a request adds documents, asks about the product, creates an index, or refreshes one."""
        if method in ("GET", "HEAD"):
            return path in _ASKED or (method == "GET" and _REFRESH.fullmatch(path) is not None)
        if method == "PUT" and _INDEX.fullmatch(path):
            return True
        return method in ("POST", "PUT") and any(form.fullmatch(path) for form in (_BULK, _DOCUMENT, _REFRESH))

    def receive(self, request: Request) -> Received | Answer:
        """Raises Refused."""
        if request.method in ("GET", "HEAD") and request.path in _ASKED:
            return json_answer(_ASKED[request.path], headers=PRODUCT)
        if _REFRESH.fullmatch(request.path):
            return json_answer({"_shards": _SHARDS}, headers=PRODUCT)
        if named := _DOCUMENT.fullmatch(request.path):
            return _one_document(request, *named.groups())
        in_path = _BULK.fullmatch(request.path)
        if in_path is None:
            # There are no indexes to be created: an index is an annotation of its documents.
            answer = {"acknowledged": True, "shards_acknowledged": True, "index": request.path.strip("/")}
            return json_answer(answer, headers=PRODUCT)
        messages, items = Messages(request), _Items(in_path[1] or "")
        lines = iter(request.body.split(b"\n"))
        for line in lines:
            if line.strip():
                action, said = _action(line)
                document = next(lines, None) if action != "delete" else b""
                if document is None:
                    raise Refused(400, SYNTAX, "the bulk request ends behind an action")
                if not items.index_of(said):
                    raise _Invalid(400, SYNTAX, f"Validation Failed: {len(items.answered) + 1}: index is missing;")
                items.answer(action, said, _take(action, items.index_of(said), said, document, messages))
        if not items.answered:
            raise Refused(400, SYNTAX, "request body is required")
        return messages.received(
            json_answer({"took": 0, "errors": items.errors, "items": items.answered}, headers=PRODUCT)
        )

    def refusal(self, why: Refused, request: Request) -> Answer:
        """As Elasticsearch says it; 429 is what its clients try again after."""
        status = 429 if why.is_retryable else why.status
        kind = "action_request_validation_exception" if isinstance(why, _Invalid) else _TYPES.get(status, _TYPES[400])
        error = {"type": kind, "reason": str(why)}
        return json_answer({"error": {"root_cause": [error], **error}, "status": status}, status, PRODUCT)


class _Invalid(Refused):
    """A bulk request with an item that names no index: Elasticsearch refuses it as a whole."""


def _one_document(request: Request, index: str, form: str, name: str | None) -> Received:
    """Take the document that is a request's body. Raises Refused."""
    messages, action = Messages(request), "create" if form == "create" else "index"
    said = {"_index": index, "_id": name} if name else {"_index": index}
    error = _take(action, index, said, request.body, messages)
    answered = _answer(index, name or f"{time.time_ns():x}", error)
    if error is None:
        return messages.received(json_answer(answered, 201, PRODUCT))
    document = {"error": {"root_cause": [answered["error"]], **answered["error"]}, "status": error[0]}
    return messages.received(json_answer(document, error[0], PRODUCT))


def _answer(index: str, name: str, error: tuple[int, str] | None) -> dict[str, Any]:
    """Return the answer to one document; ``error``: status and reason, None where it is taken."""
    answer: dict[str, Any] = {"_index": index, "_id": name}
    if error is not None:
        return answer | {"status": error[0], "error": {"type": "document_parsing_exception", "reason": error[1]}}
    return answer | {"_version": 1, "result": "created", "_shards": _SHARDS, "_seq_no": 0, "_primary_term": 1}


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
        item = _answer(self.index_of(said), str(said.get("_id") or len(self.answered)), error)
        if error is None:
            item["status"] = 201
        else:
            self.errors = True
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
    annotations = {name: annotation_text(value) for name, value in named.items() if value not in (None, "")}
    if action == "create" and "id" in annotations:  # what is indexed under an id may become again what it was
        named_by = (index.encode("utf-8", "replace"), annotations["id"].encode("utf-8", "replace"))
        annotations["uuid"] = message_id([*named_by, document])
    why = messages.add(document, annotations) if fits else messages.refuse(SYNTAX)
    return _REASONS[why] if why else None
