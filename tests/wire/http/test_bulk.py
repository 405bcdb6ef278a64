"""Elasticsearch's _bulk: each item is answered, and the answers are in the order of the items."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.http.bulk import BulkProtocol
from penstock.wire.requests import Received, Refused, decoded_path
from tests.fuzzed import json_texts
from tests.wire.sample_requests import (
    EXACT,
    answer_document,
    assert_accepted_or_refused,
    make_request,
    refusal_of,
    rows,
)


def test_documents_are_stored_unchanged_with_index_and_id_as_annotations() -> None:
    body = b'{"create":{"_index":"own","_id":"7"}}\n{"m": 1}\n{"index":{}}\n{"m":2}\n'
    received = BulkProtocol().receive(make_request("/logs/_bulk", body))
    (first, annotations), second = rows(received)
    assert len(annotations.pop("uuid")) == 32
    assert [(first, annotations), second] == [
        (b'{"m": 1}', {"index": "own", "id": "7"}),
        (b'{"m":2}', {"index": "logs"}),
    ]
    answer = answer_document(received)
    assert answer["errors"] is False
    assert [(action, item["_index"], item["status"]) for each in answer["items"] for action, item in each.items()] == [
        ("create", "own", 201),
        ("index", "logs", 201),
    ]
    assert received.answer.headers["x-elastic-product"] == "Elasticsearch"


def test_repeated_document_has_the_same_uuid_and_others_differ() -> None:
    def uuid(path: str, action: bytes, document: bytes) -> str | None:
        ((_, annotations),) = rows(BulkProtocol().receive(make_request(path, action + b"\n" + document)))
        return annotations.get("uuid")

    first = uuid("/logs/_bulk", b'{"create":{"_id":"7"}}', b'{"m":1}')
    assert uuid("/_bulk", b'{"create":{"_index":"logs","_id":7}}', b' {"m":1} ') == first
    different_uuids = [
        uuid("/logs/_bulk", b'{"create":{"_id":"8"}}', b'{"m":1}'),
        uuid("/more/_bulk", b'{"create":{"_id":"7"}}', b'{"m":1}'),
        uuid("/logs/_bulk", b'{"create":{"_id":"7"}}', b'{"m":2}'),
    ]
    assert len({first, *different_uuids}) == 4
    assert uuid("/logs/_bulk", b'{"create":{}}', b'{"m":1}') is None
    assert uuid("/logs/_bulk", b'{"index":{"_id":"7"}}', b'{"m":1}') is None, (
        "an index action replaces a document, so the same one may come back later"
    )


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("1.10", "1.10"),
        ("1E5", "1E5"),
        ("1e400", "1e400"),
        ("18446744073709551617", "18446744073709551617"),
        ('"\\ud83d"', "\ufffd"),
        ("true", "true"),
    ],
)
def test_id_and_routing_are_stored_as_sent(sent: str, stored: str) -> None:
    """Numbers that a parser rounds would give two documents one uuid; half a surrogate pair must not refuse others."""
    body = f'{{"create":{{"_id":{sent},"routing":{sent}}}}}\n{{"a":1}}\n{{"index":{{}}}}\n{{"a":2}}\n'
    (_, annotations), second = rows(BulkProtocol().receive(make_request("/logs/_bulk", body.encode())))
    assert (annotations["id"], annotations["routing"]) == (stored, stored)
    assert second == (b'{"a":2}', {"index": "logs"})


@pytest.mark.parametrize(
    "action", ["[]", '[["index",[]]]', '{"index":[]}', '{"index":5}', '{"index":{"_id":NaN}}', "5"]
)
def test_line_that_is_no_action_refuses_the_request(action: str) -> None:
    answer = refusal_of(BulkProtocol(), make_request("/logs/_bulk", f'{action}\n{{"a":1}}\n'.encode()))
    assert answer.status == 400


def test_refused_items_are_answered_one_by_one() -> None:
    body = (
        b'{"index":{}}\nnope\n{"delete":{"_id":"1"}}\n{"update":{"_id":"2"}}\n{"doc":{}}\n{"index":{}}\n[1]\n'
        b'{"index":{}}\n{"m":1}\n{"index":{}}\n{"m":"' + b"x" * 100 + b'"}'
    )
    received = BulkProtocol().receive(make_request("/logs/_bulk", body, max_message_bytes=80))
    answer = answer_document(received)
    assert answer["errors"] is True
    assert [item["status"] for each in answer["items"] for item in each.values()] == [400, 400, 400, 400, 201, 413]
    assert received.counts == {"seen": 6, "accepted": 1, "refused.syntax": 2, "refused.kind": 2, "refused.oversize": 1}


@pytest.mark.parametrize(
    "body", [b"", b"nope\n", b'{"index":{}}', b'{"index":{},"create":{}}\n{}', b'{"index":[]}\n{}']
)
def test_body_without_separable_items_is_refused(body: bytes) -> None:
    answer = refusal_of(BulkProtocol(), make_request("/_bulk", body))
    assert (answer.status, answer_document(answer)["status"]) == (400, 400)


def test_busy_listener_answers_429_which_clients_retry() -> None:
    answer = BulkProtocol().refusal(Refused(503, "busy", "later"), make_request("/_bulk"))
    assert (answer.status, answer_document(answer)["error"]["type"]) == (429, "es_rejected_execution_exception")


def test_document_without_index_refuses_the_request() -> None:
    body = b'{"index":{"_index":"a"}}\n{"m":1}\n{"index":{}}\n{"m":2}\n'
    answer = refusal_of(BulkProtocol(), make_request("/_bulk", body))
    error = answer_document(answer)["error"]
    assert (answer.status, error["type"]) == (400, "action_request_validation_exception")
    assert error["reason"] == "Validation Failed: 2: index is missing;"


@pytest.mark.parametrize(
    ("method", "path", "annotations"),
    [
        ("POST", "/logs/_doc", {"index": "logs"}),
        ("PUT", "/logs/_doc/7", {"index": "logs", "id": "7"}),
        ("POST", "/logs/_create/7", {"index": "logs", "id": "7"}),
    ],
)
def test_single_documents_are_accepted(method: str, path: str, annotations: dict[str, str]) -> None:
    protocol = BulkProtocol()
    assert protocol.takes(method, path)
    received = protocol.receive(make_request(path, b'{"m": 1e400}\n', method=method))
    ((document, answer),) = rows(received)
    assert document == b'{"m": 1e400}'
    assert ("uuid" in answer) == ("_create" in path)
    assert answer.items() >= annotations.items()
    assert isinstance(received, Received)
    assert (received.answer.status, answer_document(received)["result"]) == (201, "created")


def test_routing_and_operation_of_the_query_apply_to_documents() -> None:
    body = b'{"index":{}}\n{"a":1}\n{"index":{"routing":"own"}}\n{"a":2}\n{"index":{"_routing":"old"}}\n{"a":3}\n'
    received = BulkProtocol().receive(make_request("/i/_bulk?routing=all", body))
    assert [annotations["routing"] for _, annotations in rows(received)] == ["all", "own", "old"]
    ((_, single),) = rows(BulkProtocol().receive(make_request("/i/_doc/1?routing=r&op_type=create", b'{"a":1}')))
    ((_, created),) = rows(BulkProtocol().receive(make_request("/i/_create/1?routing=r", b'{"a":1}')))
    assert single["routing"] == "r"
    assert single == created


def test_encoded_slash_belongs_to_the_index_and_id() -> None:
    """Elasticsearch documents names with date math so: <a-{now/d}>."""
    received = BulkProtocol().receive(make_request(decoded_path("/%3Ca-%7Bnow%2Fd%7D%3E/_doc/x%2Fy%25z%2F"), b"{}"))
    annotations = {"index": "<a-{now/d}>", "id": "x/y%z/"}
    assert rows(received) == [(b"{}", annotations)]
    assert answer_document(received)["_id"] == "x/y%z/"
    bulk = BulkProtocol().receive(make_request(decoded_path("/%3Ca-%7Bnow%2Fd%7D%3E/_bulk"), b'{"index":{}}\n{}\n'))
    assert rows(bulk) == [(b"{}", {"index": "<a-{now/d}>"})]
    index = BulkProtocol().receive(make_request(decoded_path("/a%2Fb"), method="PUT"))
    assert answer_document(index)["index"] == "a/b"
    assert not BulkProtocol().takes("POST", decoded_path("/a%2F_bulk"))


def test_single_document_that_is_no_object_is_refused() -> None:
    received = BulkProtocol().receive(make_request("/logs/_doc", b"[1]"))
    assert isinstance(received, Received)
    assert (received.answer.status, answer_document(received)["error"]["type"]) == (400, "document_parsing_exception")
    assert (received.counts["seen"], received.counts["refused.syntax"]) == (1, 1)


@pytest.mark.parametrize("kind", ["event", "_doc"])
def test_types_of_earlier_versions_are_not_part_of_the_index(kind: str) -> None:
    path = f"/logs/{kind}/_bulk"
    assert BulkProtocol().takes("POST", path)
    assert rows(BulkProtocol().receive(make_request(path, b'{"index":{}}\n{"m":1}'))) == [
        (b'{"m":1}', {"index": "logs"})
    ]


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("PUT", "/logs-2026", {"acknowledged": True, "index": "logs-2026"}),
        ("POST", "/logs/_refresh", {"_shards": {"total": 1, "successful": 1, "failed": 0}}),
        ("GET", "/_refresh", {"_shards": {"total": 1, "successful": 1, "failed": 0}}),
    ],
)
def test_creating_and_refreshing_an_index_does_nothing(method: str, path: str, expected: dict[str, object]) -> None:
    protocol = BulkProtocol()
    assert protocol.takes(method, path)
    assert answer_document(protocol.receive(make_request(path, method=method))).items() >= expected.items()


@pytest.mark.parametrize("path", ["/_x", "/_index_template/a", "/a/b", "/", "/-a"])
def test_other_paths_are_not_taken(path: str) -> None:
    assert not BulkProtocol().takes("PUT", path)


@pytest.mark.parametrize("path", ["/", "/_license", "/_cluster/health"])
def test_first_requests_of_clients_are_answered(path: str) -> None:
    protocol = BulkProtocol()
    assert protocol.takes("GET", path)
    assert protocol.takes("HEAD", path)
    assert not protocol.takes("POST", path)
    assert answer_document(protocol.receive(make_request(path, method="GET")))


@given(st.lists(json_texts("index", "create", "delete", "_id") | st.just(b'{"index":{}}'), max_size=6).map(b"\n".join))
def test_any_bytes_are_items_or_refused(data: bytes) -> None:
    assert_accepted_or_refused(BulkProtocol(), make_request("/_bulk", data))


@pytest.mark.parametrize("text", EXACT)
def test_documents_are_stored_as_sent(text: str) -> None:
    document = f'{{"n": {text}}}'
    received = BulkProtocol().receive(make_request("/i/_bulk", f'{{"index":{{}}}}\n{document}\n'.encode()))
    assert [payload.decode() for payload, _ in rows(received)] == [document]
    assert answer_document(received)["errors"] is False
