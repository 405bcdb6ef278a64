"""What senders of other systems were seen to send: a row is a public report, its input, and what becomes of it here."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgpack
import pyarrow as pa
import pytest

from penstock.landing.from_kafka.rows import ROW
from penstock.landing.rows.table_rows import Rules, table_rows
from penstock.wire.forward.codec import ForwardDecoder
from penstock.wire.forward.splitter import ForwardSplitter
from penstock.wire.gelf.codec import GelfDecoder
from penstock.wire.request_protocols import REQUEST_PROTOCOLS
from penstock.wire.requests import Answer, Refused, find_protocol
from tests.wire.sample_requests import make_request

AT = datetime(2026, 2, 3, tzinfo=UTC)
JSON = {"content-type": "application/json"}
HEC, LOKI, OTLP, BULK, PLAIN = "/services/collector/event", "/loki/api/v1/push", "/v1/logs", "/logs/_bulk", "/"


@dataclass(frozen=True)
class Seen:
    """A request, the status of its answer, a part of the answer's text, and the messages that are taken."""

    reference: str
    path: str
    body: str | bytes
    messages: list[str]
    status: int = 200
    said: str = ""
    annotations: dict[str, str] = field(default_factory=dict)
    event_time: str | None = None
    method: str = "POST"


def otlp(*records: str) -> str:
    return '{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{}]}}]}}]}}'.format(",".join(records))


def loki(*entries: str, stream: str = '{"app":"x"}') -> str:
    return '{{"streams":[{{"stream":{},"values":[{}]}}]}}'.format(stream, ",".join(entries))


REQUESTS = [
    # Splunk HEC
    Seen(
        "open-telemetry/opentelemetry-collector-contrib#43941",
        HEC,
        '[{"event":"a1"},{"event":"a2"}]',
        ["a1", "a2"],
        said='"code":0',
    ),
    Seen(
        "open-telemetry/opentelemetry-collector-contrib#41028",
        HEC,
        '{"event":{"modulus":%s}}' % ("9" * 1200),
        ['{"modulus":%s}' % ("9" * 1200)],
    ),
    Seen("splunk/splunk-connect-for-snmp#1210", HEC, '{"event":{"v":Infinity}}', [], 400, '"code":6'),
    Seen(
        "splunk/splunk-connect-for-snmp#1210",
        HEC,
        '{"event":{"v":1.10}}\n{"event":{"v":Infinity}}\n{"event":2}',
        ['{"v":1.10}'],
        400,
        '"invalid-event-number":1',
    ),
    Seen("vectordotdev/vector#23472", HEC, '{"event":[{"a":1},[2]]}', ['[{"a":1},[2]]']),
    Seen("open-telemetry/opentelemetry-collector-contrib#29551", HEC, '{"event":null}', [], 400, '"code":13'),
    Seen(
        "signalfx/splunk-otel-collector-chart#1002",
        HEC,
        '{"event":"a"}{"event":null}{"event":"b"}',
        ["a"],
        400,
        '"invalid-event-number":1',
    ),
    Seen(
        "moby/moby#35862",
        HEC,
        '{"event":{"hi":"meme12345"}}\n\n{"event":"}\n\n{"event":"hi67890"}',
        ['{"hi":"meme12345"}'],
        400,
        '"invalid-event-number":1',
    ),
    Seen(
        "open-telemetry/opentelemetry-collector-contrib#36113 (what is resent)",
        HEC,
        '{"event":"hi67890"}',
        ["hi67890"],
        said='"code":0',
    ),
    Seen("open-telemetry/opentelemetry-collector-contrib#19219", HEC, "", [], 400, '"code":5'),
    Seen("open-telemetry/opentelemetry-collector-contrib#19219", HEC, '{"other":1}', [], 400, '"code":12'),
    Seen("open-telemetry/opentelemetry-collector-contrib#27604", HEC, "{", [], 400, '{"text":"Invalid data format"'),
    Seen(
        "open-telemetry/opentelemetry-collector-contrib#29745",
        "/services/collector/raw?sourcetype=eric_test&index=main",
        "event1\nevent3",
        ["event1", "event3"],
        said='{"text":"Success","code":0}',
        annotations={"sourcetype": "eric_test", "index": "main"},
    ),
    Seen(
        "open-telemetry/opentelemetry-collector-contrib#36096",
        HEC,
        '{"@timestamp":"2023-09-13T21:36:46Z","event":"text","tags":["_dateparsefailure"],"host":"h"}',
        ["text"],
        annotations={"host": "h"},
    ),
    Seen(
        "Graylog2/graylog2-server#5501 (its kind, in HEC)",
        HEC,
        '{"time":1545353025250,"event":"x"}',
        ["x"],
        annotations={"time": "1545353025250"},
        event_time="2018-12-21T00:43:45.250",
    ),
    Seen(
        "splunk/docker-logging-plugin#18, moby/moby#24376",
        "/services/collector/event/1.0",
        "",
        [],
        method="OPTIONS",
    ),
    Seen(
        "vectordotdev/vector#12098",
        "/services/collector/health",
        "",
        [],
        said='"code":17',
        method="GET",
    ),
    Seen(
        "Splunk documentation: format events for HTTP Event Collector (fields are flat)",
        HEC,
        '{"event":"b","fields":{"roles":["r1","r2"]}}\n{"event":"a","fields":{"k8s":{"pod":"x"}}}',
        ["b"],
        400,
        '"code":15',
        annotations={"fields.roles": '["r1","r2"]'},
    ),
    # Loki
    Seen("grafana/loki#11565", LOKI, loki('[1570818238000000000,"x"]', '["1","y"]'), ["x", "y"], 204),
    Seen("grafana/loki#11774", LOKI, loki('["1570818238000000000","fizzbuzz"]'), ["fizzbuzz"], 204),
    Seen("grafana/loki#200", LOKI, loki('["1","a"]', '["never","b"]', '["3","c"]'), ["a", "c"], 400, "entry 2"),
    Seen(
        "getsentry/relay#5833, grafana/loki#2859",
        LOKI,
        loki('["1","one"]', '["2","cut \\ud83d"]', '["3","three"]'),
        ["one", "cut \ufffd", "three"],
        204,
    ),
    Seen(
        "ozontech/file.d#899",
        LOKI,
        loki('["1","a",{"status":"304","bytes":38660}]'),
        ["a"],
        204,
        annotations={"metadata.bytes": "38660", "metadata.status": "304"},
    ),
    # OTLP
    Seen(
        "openobserve/openobserve#2532",
        OTLP,
        otlp('{"body":{"stringValue":"x"},"traceId":null,"spanId":null,"attributes":null,"severityText":null}'),
        ["x"],
        said="{}",
    ),
    Seen(
        "planetf1/otelite#247",
        OTLP,
        otlp('{"body":{"stringValue":"x"},"attributes":[{"key":"n","value":{"intValue":"42"}}]}'),
        ["x"],
        annotations={"attributes.n": "42"},
    ),
    Seen(
        "Necmttn/ax#850, corveil/crow#823",
        OTLP,
        otlp('{"body":{"stringValue":"x"},"attributes":[{"key":"n","value":{"intValue":83729}}]}'),
        ["x"],
        annotations={"attributes.n": "83729"},
    ),
    Seen(
        "OpenTelemetry protocol: trace ids of 16 bytes",
        OTLP,
        otlp('{"body":{"stringValue":"a"},"traceId":"abcd","spanId":"00f067aa0ba902b7"}'),
        ["a"],
        said="1 malformed trace_id or span_id",
        annotations={"span_id": "00f067aa0ba902b7"},
    ),
    Seen(
        "Logflare/logflare#3683",
        OTLP,
        otlp('{"body":{"stringValue":"a"},"traceId":"not hex"}', '{"body":{"stringValue":"b"}}'),
        ["b"],
        said='"rejectedLogRecords": "1"',
    ),
    Seen(
        "jaegertracing/jaeger-ui#2589",
        OTLP,
        otlp('{"body":{"stringValue":"a"},"droppedAttributesCount":-1}', '{"body":{"stringValue":"b"}}'),
        ["b"],
        said='"rejectedLogRecords": "1"',
    ),
    Seen(
        "getsentry/sentry-javascript#20245",
        OTLP,
        otlp('{"body":{"stringValue":"cut \\ud83d"}}', '{"body":{"stringValue":"b"}}'),
        ["cut \ufffd", "b"],
    ),
    # Elasticsearch's _bulk
    Seen(
        "elastic/elasticsearch#25740 (silent loss of the last one)",
        BULK,
        '{"index":{}}\n{"foo":"bar"}\n{"index":{}}\n{"foo":"barbar"}',
        ['{"foo":"bar"}', '{"foo":"barbar"}'],
        said='"errors":false',
    ),
    Seen("elastic/elasticsearch#29309", BULK, '\n{"index":{"_id":"0"}}\n{"n":0.579}\n\n', ['{"n":0.579}']),
    Seen(
        "hsen-dev/vscode-elastic#53",
        BULK,
        '{"index":{}}\n{"a":1}\n{"delete":{"_id":"2"}}\n{"create":{"_id":"3"}}\n{"b":3}\n',
        ['{"a":1}', '{"b":3}'],
        said='"errors":true',
    ),
    Seen(
        "elastic/elasticsearch: index is missing",
        "/_bulk",
        '{"index":{}}\n{"a":1}\n',
        [],
        400,
        "1: index is missing;",
    ),
    Seen(
        "logstash-plugins/logstash-output-elasticsearch (numbers beyond doubles)",
        BULK,
        '{"create":{}}\n{"a":1e400}\n',
        ['{"a":1e400}'],
        said='"errors":false',
    ),
    # JSON
    Seen("fluent/fluent-bit#3972 (bad bytes)", PLAIN, b'{"a":1}\n{"b":"\xff"}\n{"c":3}', ['{"a":1}', '{"c":3}']),
    Seen("vectordotdev/vector#23472 (its kind, in JSON)", PLAIN, '[[1.10],{"a":1,"a":2}]', ["[1.10]", '{"a":1,"a":2}']),
]


def received(seen: Seen) -> tuple[int, str, list[dict[str, Any]], str]:
    """Status and text of the answer, the rows, and the codec."""
    protocols = [protocol() for protocol in REQUEST_PROTOCOLS]
    body = seen.body if isinstance(seen.body, bytes) else seen.body.encode()
    request = make_request(seen.path, body, JSON, seen.method)
    protocol = find_protocol(protocols, seen.method, request.path)
    assert protocol is not None
    try:
        result = protocol.receive(request)
    except Refused as why:
        result = protocol.refusal(why, request)
    if isinstance(result, Answer):
        return result.status, result.body.decode(), [], protocol.codec
    return result.answer.status, result.answer.body.decode(), result.body.to_pylist(), protocol.codec


def event_times(rows: list[dict[str, Any]], codec: str) -> list[datetime | None]:
    given = {"topic": "t", "source": "s", "codec": codec, "timestamp": AT, "bucket": AT, "received": AT}
    batch = pa.RecordBatch.from_pylist([{**row, **given, "offset": n} for n, row in enumerate(rows)], schema=ROW)
    return [row["event_time"] for _, part in table_rows(batch, Rules(), None) for row in part.to_pylist()]


@pytest.mark.parametrize("seen", REQUESTS, ids=lambda seen: seen.reference)
def test_requests(seen: Seen) -> None:
    status, said, rows, codec = received(seen)
    assert [row["payload"].decode() for row in rows] == seen.messages
    assert status == seen.status
    assert seen.said in said
    for row in rows:
        assert dict(row["annotations"] or []).items() >= seen.annotations.items()
    if seen.event_time is not None:
        assert event_times(rows, codec) == [datetime.fromisoformat(seen.event_time).replace(tzinfo=UTC)]


def gelf(**fields: Any) -> bytes:
    return json.dumps({"version": "1.1", "host": "h", "short_message": "m", **fields}).encode()


GELF = [
    ("Graylog2/graylog2-server#5501", gelf(timestamp=1545353025250), {}, "2018-12-21T00:43:45.250"),
    ("Graylog2/documentation#531", gelf(timestamp=1545353025250123), {}, "2018-12-21T00:43:45.250123"),
    ("datalust/seq-input-gelf#112", gelf(timestamp=1545353025250123456), {}, "2018-12-21T00:43:45.250123"),
    ("Graylog2/graylog2-server#9878", gelf(timestamp="1545353025.25"), {}, "2018-12-21T00:43:45.250"),
    ("t0xa/gelfj#117", gelf(timestamp="1539162937.998"), {"timestamp": "1539162937.998"}, "2018-10-10T09:15:37.998"),
    ("moby/moby#40232", gelf(short_message=""), {"host": "h"}, None),
    ("Graylog2/graylog2-server#3970", gelf(short_message=" ", _user_id=9001), {"_user_id": "9001"}, None),
    ("Graylog2/graylog2-server#5171", gelf(short_message="\t"), {"host": "h"}, None),
    ("mp911de/logstash-gelf#158", b'{"host":"h","level":"6","_tags":"T"}', {"level": "6", "_tags": "T"}, None),
    (
        "Graylog2/graylog2-server#5793",
        gelf(short_message='Started GET "x"\r\nCompleted 200 OK\r', level=6),
        {"level": "6"},
        None,
    ),
    ("fluent/fluent-bit#3457", b'{"host":"h","short_message":"incorrect \xd0 handling","_a":"b"}', {"_a": "b"}, None),
]


@pytest.mark.parametrize(("reference", "message", "annotations", "time"), GELF, ids=[row[0] for row in GELF])
def test_gelf(reference: str, message: bytes, annotations: dict[str, str], time: str | None) -> None:
    rows = GelfDecoder().decode_lines(pa.array([message], pa.binary())).body.to_pylist()
    assert [row["payload"] for row in rows] == [message]
    assert dict(rows[0]["annotations"]).items() >= annotations.items()
    wanted = None if time is None else datetime.fromisoformat(time).replace(tzinfo=UTC)
    assert event_times(rows, "gelf") == [wanted]


FORWARD = [
    (
        "fluent/fluent-bit#2371",
        ["test.test", 1593000000, {"key1": "value1"}],
        '{"key1":"value1"}',
        "2020-06-24T12:00:00",
    ),
    ("fluent/fluent-bit#377", ["t", 1505711309.0, {"source": "stderr"}], '{"source":"stderr"}', "2017-09-18T05:08:29"),
    ("Graylog2/graylog2-server#5501 (its kind)", ["t", 1545353025250, {"a": 1}], '{"a":1}', "2018-12-21T00:43:45.250"),
]


@pytest.mark.parametrize(("reference", "request_", "record", "time"), FORWARD, ids=[row[0] for row in FORWARD])
def test_forward(reference: str, request_: list[Any], record: str, time: str) -> None:
    lines = ForwardSplitter(10_000, 1 << 20).feed(msgpack.packb(request_))
    rows = ForwardDecoder().decode_lines(lines.lines).body.to_pylist()
    assert [row["payload"].decode() for row in rows] == [record]
    assert event_times(rows, "forward") == [datetime.fromisoformat(time).replace(tzinfo=UTC)]
