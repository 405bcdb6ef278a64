"""Elasticsearch's requests that add documents (``_bulk``, ``_doc``, ``_create``), and the questions of its clients.

Invariant: each item of a bulk request is answered at its index with its own status.
"""

from __future__ import annotations

import re
import time
from typing import Any

import orjson

from penstock.wire.json_text import Members, NotJson, exact, find_error, is_json, readable, text_of_exact
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
    segment_text,
    split_lines,
)

VERSION = "8.17.0"
"""Version of Elasticsearch whose answers are given."""
PRODUCT = {"x-elastic-product": "Elasticsearch"}
"""Header without which its clients refuse to send."""
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
_QUESTIONS: dict[str, Any] = {"/": _INFO, "/_license": _LICENSE, "/_cluster/health": _HEALTH}
MAX_ACTION_BYTES = 64 << 10
"""Limit: bytes of an action; Elasticsearch's ids have up to 512."""
_WRITES = ("index", "create")
_SHARDS = {"total": 1, "successful": 1, "failed": 0}
_INDEX = re.compile(r"/[^_/+-][^/]*")
_BULK = re.compile(r"(?:/([^_/][^/]*)(?:/(?:[^_/][^/]*|_doc))?)?/_bulk")
"""``/_bulk``, ``/INDEX/_bulk``, and ``/INDEX/TYPE/_bulk`` of versions before 8, whose last type is ``_doc``."""
_DOCUMENT = re.compile(r"/([^_/][^/]*)/_(doc|create)(?:/(?!_bulk$)([^/]+))?")
_REFRESH = re.compile(r"(?:/[^_/][^/]*)?/_refresh")
_ERROR_TYPES = {
    400: "illegal_argument_exception",
    401: "security_exception",
    403: "security_exception",
    413: "content_too_long_exception",
    429: "es_rejected_execution_exception",
    503: "es_rejected_execution_exception",
}


class BulkProtocol:
    """Elasticsearch's requests to index documents."""

    codec = "bulk"

    def takes(self, method: str, path: str) -> bool:
        """Return whether a request adds documents, asks about the product, creates an index, or refreshes one."""
        if method in ("GET", "HEAD"):
            return path in _QUESTIONS or (method == "GET" and _REFRESH.fullmatch(path) is not None)
        if method == "PUT" and _INDEX.fullmatch(path):
            return True
        return method in ("POST", "PUT") and any(form.fullmatch(path) for form in (_BULK, _DOCUMENT, _REFRESH))

    def receive(self, request: Request) -> Received | Answer:
        """Return the documents of a request, or the answer to a question. Raises Refused."""
        if request.method in ("GET", "HEAD") and request.path in _QUESTIONS:
            return json_answer(_QUESTIONS[request.path], headers=PRODUCT)
        if _REFRESH.fullmatch(request.path):
            return json_answer({"_shards": _SHARDS}, headers=PRODUCT)
        if match := _DOCUMENT.fullmatch(request.path):
            index, form, name = match.groups()
            return _add_single(request, segment_text(index), form, segment_text(name or ""))
        in_path = _BULK.fullmatch(request.path)
        if in_path is None:
            # Nothing is created: an index is only an annotation of its documents.
            index = segment_text(request.path.strip("/"))
            answer = {"acknowledged": True, "shards_acknowledged": True, "index": index}
            return json_answer(answer, headers=PRODUCT)
        messages, items = Messages(request), _Items(segment_text(in_path[1] or ""), request.query.get("routing", ""))
        lines = split_lines(request.text)
        for line in lines:
            if line.strip():
                action, parameters = _parse_action(line)
                # Order: every action but a deletion is followed by its document, even one that is refused.
                document = next(lines, None) if action != "delete" else b""
                if document is None:
                    raise Refused(400, SYNTAX, "the bulk request ends after an action")
                index = items.index_of(parameters)
                if not index:
                    raise _Invalid(400, SYNTAX, f"Validation Failed: {len(items.answers) + 1}: index is missing;")
                parameters["routing"] = items.routing_of(parameters)
                items.answer(action, parameters, _add_document(action, index, parameters, document, messages))
        if not items.answers:
            raise Refused(400, SYNTAX, "request body is required")
        return messages.received(
            json_answer({"took": 0, "errors": items.errors, "items": items.answers}, headers=PRODUCT)
        )

    def refusal(self, error: Refused, request: Request) -> Answer:
        """Encode a refusal as Elasticsearch does; its clients retry after 429."""
        status = 429 if error.is_retryable else error.status
        is_invalid = isinstance(error, _Invalid)
        error_type = (
            "action_request_validation_exception" if is_invalid else _ERROR_TYPES.get(status, _ERROR_TYPES[400])
        )
        cause = {"type": error_type, "reason": str(error)}
        return json_answer(
            {"error": {"root_cause": [cause], **cause}, "status": status}, status, PRODUCT | error.retry_header
        )


class _Invalid(Refused):
    """A bulk request with an item that names no index: Elasticsearch refuses it as a whole."""


def _add_single(request: Request, index: str, form: str, name: str) -> Received:
    """Add the document that is a request's body. Raises Refused."""
    messages = Messages(request)
    action = "create" if "create" in (form, request.query.get("op_type")) else "index"
    parameters = {"_index": index, "_id": name, "routing": request.query.get("routing", "")}
    error = _add_document(action, index, parameters, request.text, messages)
    answer = _answer(index, name or f"{time.time_ns():x}", error)
    if error is None:
        return messages.received(json_answer(answer, 201, PRODUCT))
    document = {"error": {"root_cause": [answer["error"]], **answer["error"]}, "status": error[0]}
    return messages.received(json_answer(document, error[0], PRODUCT))


def _answer(index: str, document_id: str, error: tuple[int, str] | None) -> dict[str, Any]:
    """Return the answer to one document; ``error``: status and reason, None if it is accepted."""
    answer: dict[str, Any] = {"_index": index, "_id": document_id}
    if error is not None:
        return answer | {"status": error[0], "error": {"type": "document_parsing_exception", "reason": error[1]}}
    return answer | {"_version": 1, "result": "created", "_shards": _SHARDS, "_seq_no": 0, "_primary_term": 1}


class _Items:
    """The answers to the items of one request."""

    def __init__(self, index: str, routing: str) -> None:
        self._index, self._routing = index, routing
        self.answers: list[dict[str, Any]] = []
        self.errors = False

    def index_of(self, parameters: dict[str, Any]) -> str:
        """Return the index that an action names, otherwise that of the path."""
        return str(parameters.get("_index") or self._index)

    def routing_of(self, parameters: dict[str, Any]) -> Any:
        """Return the routing of an action, also by its name before version 7, otherwise that of the query."""
        routings = (parameters.get("routing"), parameters.get("_routing"), self._routing)
        return next((routing for routing in routings if routing not in (None, "")), "")

    def answer(self, action: str, parameters: dict[str, Any], error: tuple[int, str] | None) -> None:
        """Append an answer; ``error``: status and reason, None if the document is accepted."""
        item = _answer(self.index_of(parameters), str(parameters.get("_id") or len(self.answers)), error)
        if error is None:
            item["status"] = 201
        else:
            self.errors = True
        self.answers.append({action: item})


def _parse_action(line: bytes) -> tuple[str, dict[str, Any]]:
    """Return an action and its parameters. Raises Refused: what follows it cannot be separated."""
    if len(line) > MAX_ACTION_BYTES:
        raise Refused(413, OVERSIZE, f"an action of {len(line)} bytes is larger than {MAX_ACTION_BYTES} bytes")
    try:
        ((action, parameters),) = orjson.loads(line).items()
        is_exact = isinstance(parameters, dict) and not any(
            isinstance(parameter, int | float) for parameter in parameters.values()
        )
    except (ValueError, AttributeError):
        is_exact = False
    if not is_exact:
        action, parameters = _parse_exactly(line)
    if action not in (*_WRITES, "update", "delete") or not isinstance(parameters, dict):
        raise Refused(400, SYNTAX, f"Malformed action/metadata line: [{action}] is not an action")
    # Fast path: each member has one colon; only a line with more of them may repeat a member, whose last one orjson
    # would keep.
    if line.count(b":") > 1 + len(parameters) and (name := _repeated_name(line)):
        raise Refused(400, SYNTAX, f"Malformed action/metadata line: Duplicate field '{name}'")
    return str(action), parameters


def _parse_exactly(line: bytes) -> tuple[str, Any]:
    """Return an action whose parameters orjson changes or refuses: numbers in their text, and half surrogates."""
    try:
        document = exact(line)
        ((action, members),) = document if isinstance(document, Members) else Members()
        if not isinstance(members, Members):
            return action, members
        return action, {name: text_of_exact(parameter) for name, parameter in members if parameter is not None}
    except (NotJson, ValueError):
        fault = find_error(line) or "one object with one action is expected"
        raise Refused(400, SYNTAX, f"Malformed action/metadata line: {fault}") from None


def _repeated_name(line: bytes) -> str:
    """Return the name of the first member that an action, or its parameters, repeat; "" without one."""
    actions = exact(line)
    for members in (actions, *(parameters for _, parameters in actions if isinstance(parameters, Members))):
        earlier_names = set[str]()
        for name in (readable(name) for name, _ in members):
            if name in earlier_names:
                return name
            earlier_names.add(name)
    return ""


def _add_document(
    action: str, index: str, parameters: dict[str, Any], line: bytes, messages: Messages
) -> tuple[int, str] | None:
    """Add a document unchanged; return status and reason if it is refused."""
    if action not in _WRITES:
        messages.refuse(KIND)
        return 400, f"[{action}] is not supported: documents can only be added"
    document = line.strip()
    is_object = document.startswith(b"{") and (messages.is_undecodable(document) or is_json(document))
    values = {"index": index, "id": parameters.get("_id"), "routing": parameters.get("routing")}
    annotations = {name: annotation_text(value) for name, value in values.items() if value not in (None, "")}
    # Only ``create`` has a uuid: a document that is indexed again under its id may have had other content in between.
    if action == "create" and "id" in annotations:
        key = (index.encode("utf-8", "replace"), annotations["id"].encode("utf-8", "replace"))
        annotations["uuid"] = message_id([*key, document])
    reason = messages.add(document, annotations) if is_object else messages.refuse(SYNTAX)
    if reason == OVERSIZE:
        return 413, messages.oversize_text
    if reason:
        error = find_error(document)
        return 400, f"the document is {error}" if error else "the document is not a JSON object"
    return None
