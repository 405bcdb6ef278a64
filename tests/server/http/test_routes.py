from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from penstock.testing import wait_until
from tests.server.running import Running

ONE = {"logs": [{"raw_bytes": "eA=="}]}


def test_concurrent_callers_get_every_offset_once(running: Running) -> None:
    offsets: list[int] = []

    def call() -> None:
        for _ in range(4):
            status, _, text = running.request("POST", "/topic/busy/logs", {"logs": ONE["logs"] * 3})
            assert status == 200
            offsets.extend(map(int, json.loads(text)["offsets"]))

    callers = [threading.Thread(target=call) for _ in range(16)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert sorted(offsets) == list(range(16 * 4 * 3))


def test_stream_returns_later_entries_and_ends_with_its_client(running: Running) -> None:
    running.request("POST", "/topic/t/logs", ONE)
    with running.connection() as connection:
        connection.request("GET", "/topic/t/logstream?position=LATEST")
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("content-type")) == (200, "application/json")
        wait_until(lambda: running.api.open_streams == 1)
        running.request("POST", "/topic/t/logs", {"logs": [{"raw_bytes": "bGF0ZXI="}]})
        frame = json.loads(answer.readline())
        (entry,) = frame["result"]["logs"]
        assert (entry["offset"], entry["raw_bytes"]) == ("1", "bGF0ZXI=")
        answer.close()
    wait_until(lambda: running.api.open_streams == 0)


def test_stream_ends_with_an_error_when_the_server_stops(running: Running) -> None:
    running.request("POST", "/topic/t/logs", ONE)
    with running.connection() as connection:
        connection.request("GET", "/topic/t/logstream")
        answer = connection.getresponse()
        assert "result" in json.loads(answer.readline())
        running.stop()
        assert json.loads(answer.readline())["error"]["grpc_code"] == 14
        assert answer.read() == b""


def test_latest_starts_at_the_end_or_max_messages_before(running: Running) -> None:
    running.request("POST", "/topic/t/logs", {"logs": ONE["logs"] * 5})
    assert running.request("GET", "/topic/t/logs?position=LATEST")[2] == "{}"
    logs = json.loads(running.request("GET", "/topic/t/logs?position=LATEST&max_messages=2")[2])["logs"]
    assert [entry["offset"] for entry in logs] == ["3", "4"]


def test_page_has_1000_entries_by_default(running: Running) -> None:
    running.request("POST", "/topic/t/logs", {"logs": ONE["logs"] * 1500})
    for query, count in (("", 1000), ("?max_messages=0", 1000), ("?max_messages=1200", 1200), ("?offset=1499", 1)):
        assert len(json.loads(running.request("GET", "/topic/t/logs" + query)[2])["logs"]) == count
    assert running.request("GET", "/topic/t/logs?offset=1500")[2] == "{}"
    status, _, text = running.request("GET", "/topic/t/logs?max_messages=-1")
    assert (status, json.loads(text)["code"]) == (400, 3)


def test_internal_topics_cannot_be_written(running: Running) -> None:
    status, _, text = running.request("POST", "/topic/_ledger/logs", ONE)
    assert (status, json.loads(text)) == (403, {"error": "Topic is internal: _ledger", "code": 7})
    assert running.request("GET", "/topics")[2] == "{}"


def test_topics_are_listed(running: Running) -> None:
    running.request("POST", "/topic/a.b-c_1/logs", {})
    status, headers, text = running.request("GET", "/topics")
    assert (status, headers["content-type"], text) == (200, "application/json", '{"topic":[{"name":"a.b-c_1"}]}')


def test_monitoring_routes_are_served(running: Running) -> None:
    assert json.loads(running.request("GET", "/stat")[2]) == {"taken": 3}
    assert json.loads(running.request("GET", "/balance?topic=events")[2]) == {"asked": {"topic": "events"}}
    _, headers, text = running.request("GET", "/metrics")
    assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'penstock_taken_total{source="events-udp"} 3\n' in text
    assert "/topic/{topic}/logstream" in json.loads(running.request("GET", "/openapi.json")[2])["paths"]


@pytest.mark.parametrize(
    ("body", "status", "answer"),
    [
        ({"a": 1}, 200, {"posted": {"a": 1}}),
        ({"refused": 1}, 400, {"error": "refused", "code": 3}),
        ({"absent": 1}, 404, {"error": "no such thing", "code": 5}),
    ],
)
def test_routes_of_the_ledger_are_served(
    running: Running, body: dict[str, int], status: int, answer: dict[str, Any]
) -> None:
    headers = {"content-type": "application/json"}
    status_of_post, _, text = running.request("POST", "/ledger", body, headers)
    assert (status_of_post, json.loads(text)) == (status, answer)


def test_dots_in_topic_names_are_refused(running: Running) -> None:
    for name in ("%2E%2E", "%2E", "..."):
        assert running.request("POST", f"/topic/{name}/logs", ONE)[0] in (200, 400)
    assert all(path.parent == running.folder for path in running.folder.parent.glob("*/*") if path.is_dir())


def test_annotations_and_structs_equal_slogds_answers(running: Running) -> None:
    kind = "type.googleapis.com/google.protobuf.Struct"
    sent = {"annotations": {"z": "1", "a": "2"}, "protobuf": {"@type": kind, "value": {"z": 1, "a": 2.5}}}
    running.request("POST", "/topic/t/logs", {"logs": [sent]})
    text = running.request("GET", "/topic/t/logs")[2]
    assert '"annotations":{"a":"2","z":"1"}' in text
    assert f'"protobuf":{{"@type":"{kind}","value":{{"a":2.5,"z":1}}}}' in text


def test_named_topics_are_described_without_opening_others(running: Running) -> None:
    for name in ("a", "b", "c"):
        running.request("POST", f"/topic/{name}/logs", ONE)
    described = running.request_json("GET", "/describe?topic=c&topic=a")[1]["topic"]
    assert [description["name"] for description in described] == ["c", "a"]
    assert len(running.request_json("GET", "/describe")[1]["topic"]) == 3
    assert running.request("GET", "/describe?topic=none")[0] == 404
