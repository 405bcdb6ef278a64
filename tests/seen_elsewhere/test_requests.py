"""Public reports on receivers of requests, GELF and forward: a row has its reference, the input, and the messages
in Penstock.
"""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgpack
import pyarrow as pa
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs

from penstock.landing.from_kafka.rows import ROW
from penstock.landing.rows.table_rows import Rules, table_rows
from penstock.records import as_batch
from penstock.wire.datagrams import Datagrams
from penstock.wire.forward.codec import ForwardDecoder
from penstock.wire.forward.splitter import ForwardSplitter
from penstock.wire.gelf.codec import GelfDecoder
from penstock.wire.gelf.splitter import GelfSplitter
from penstock.wire.otlp.protocol import logs_of
from penstock.wire.request_protocols import REQUEST_PROTOCOLS
from penstock.wire.requests import Answer, Refused, find_protocol
from penstock.wire.syslog.codec import SyslogDecoder
from tests.wire.sample_requests import make_request

RECEIVED_AT = datetime(2026, 2, 3, tzinfo=UTC)
JSON = {"content-type": "application/json"}
HEC, LOKI, OTLP, BULK, PLAIN = "/services/collector/event", "/loki/api/v1/push", "/v1/logs", "/logs/_bulk", "/"


@dataclass(frozen=True)
class Report:
    """A request, the status of its answer, a part of the answer's text, and the accepted messages."""

    reference: str
    path: str
    body: str | bytes
    messages: list[str]
    status: int = 200
    text: str = ""
    annotations: dict[str, str] = field(default_factory=dict)
    event_times: Sequence[str | None] = ()
    method: str = "POST"


def otlp(*records: str) -> str:
    return '{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{}]}}]}}]}}'.format(",".join(records))


def with_severity(*severities: str) -> list[str]:
    return [f'{{"severityNumber":{severity},"body":{{"stringValue":"x"}}}}' for severity in severities]


def loki(*entries: str, stream: str = '{"app":"x"}') -> str:
    return '{{"streams":[{{"stream":{},"values":[{}]}}]}}'.format(stream, ",".join(entries))


REQUESTS = [
    # Splunk HEC
    Report(
        "open-telemetry/opentelemetry-collector-contrib#43941",
        HEC,
        '[{"event":"a1"},{"event":"a2"}]',
        ["a1", "a2"],
        text='"code":0',
    ),
    Report(
        "open-telemetry/opentelemetry-collector-contrib#41028",
        HEC,
        '{"event":{"modulus":%s}}' % ("9" * 1200),
        ['{"modulus":%s}' % ("9" * 1200)],
    ),
    Report("splunk/splunk-connect-for-snmp#1210", HEC, '{"event":{"v":Infinity}}', [], 400, '"code":6'),
    Report(
        "splunk/splunk-connect-for-snmp#1210",
        HEC,
        '{"event":{"v":1.10}}\n{"event":{"v":Infinity}}\n{"event":2}',
        ['{"v":1.10}'],
        400,
        '"invalid-event-number":1',
    ),
    Report("vectordotdev/vector#23472", HEC, '{"event":[{"a":1},[2]]}', ['[{"a":1},[2]]']),
    Report("open-telemetry/opentelemetry-collector-contrib#29551", HEC, '{"event":null}', [], 400, '"code":13'),
    Report(
        "signalfx/splunk-otel-collector-chart#1002",
        HEC,
        '{"event":"a"}{"event":null}{"event":"b"}',
        ["a"],
        400,
        '"invalid-event-number":1',
    ),
    Report(
        "moby/moby#35862",
        HEC,
        '{"event":{"hi":"meme12345"}}\n\n{"event":"}\n\n{"event":"hi67890"}',
        ['{"hi":"meme12345"}'],
        400,
        '"invalid-event-number":1',
    ),
    Report(
        "open-telemetry/opentelemetry-collector-contrib#36113 (what is resent)",
        HEC,
        '{"event":"hi67890"}',
        ["hi67890"],
        text='"code":0',
    ),
    Report("open-telemetry/opentelemetry-collector-contrib#19219", HEC, "", [], 400, '"code":5'),
    Report("open-telemetry/opentelemetry-collector-contrib#19219", HEC, '{"other":1}', [], 400, '"code":12'),
    Report("open-telemetry/opentelemetry-collector-contrib#27604", HEC, "{", [], 400, '{"text":"Invalid data format"'),
    Report(
        "open-telemetry/opentelemetry-collector-contrib#29745",
        "/services/collector/raw?sourcetype=eric_test&index=main",
        "event1\nevent3",
        ["event1", "event3"],
        text='{"text":"Success","code":0}',
        annotations={"sourcetype": "eric_test", "index": "main"},
    ),
    Report(
        "open-telemetry/opentelemetry-collector-contrib#36096",
        HEC,
        '{"@timestamp":"2023-09-13T21:36:46Z","event":"text","tags":["_dateparsefailure"],"host":"h"}',
        ["text"],
        annotations={"host": "h"},
    ),
    Report(
        "Graylog2/graylog2-server#5501 (its kind, in HEC)",
        HEC,
        '{"time":1545353025250,"event":"x"}',
        ["x"],
        annotations={"time": "1545353025250"},
        event_times=["2018-12-21T00:43:45.250"],
    ),
    Report(
        "splunk/splunk-library-javalogging#209, #143 (each event of a batch has its own time, with milliseconds)",
        HEC,
        '{"time":"1584635570.598","event":"// no comment"}{"time":"1584635570.599","event":"b"}',
        ["// no comment", "b"],
        text='"code":0',
        event_times=["2020-03-19T16:32:50.598", "2020-03-19T16:32:50.599"],
    ),
    Report(
        "splunk/docker-logging-plugin#18, moby/moby#24376",
        "/services/collector/event/1.0",
        "",
        [],
        method="OPTIONS",
    ),
    Report(
        "vectordotdev/vector#12098, open-telemetry/opentelemetry-collector-contrib#20873",
        "/services/collector/health",
        "",
        [],
        text='"code":17',
        method="GET",
    ),
    Report(
        "Splunk documentation: format events for HTTP Event Collector (fields are flat)",
        HEC,
        '{"event":"b","fields":{"roles":["r1","r2"]}}\n{"event":"a","fields":{"k8s":{"pod":"x"}}}',
        ["b"],
        400,
        '"code":15',
        annotations={"fields.roles": '["r1","r2"]'},
    ),
    Report(
        "splunk/kafka-connect-splunk#241 (a time as text)",
        HEC,
        '{"time":"1596212700.000","host":"h","event":"x"}',
        ["x"],
        annotations={"time": "1596212700.000", "host": "h"},
        event_times=["2020-07-31T16:25:00"],
    ),
    Report(
        "splunk/kafka-connect-splunk#241 (fields without an event)",
        HEC,
        '{"time":"1596212700.000","fields":{"hn":"h"}}{"event":"y"}',
        [],
        400,
        '"code":12',
    ),
    Report(
        "splunk/kafka-connect-splunk#45 (raw lines that end with CR LF, and a line without any)",
        "/services/collector/raw?channel=x",
        "a\r\nb\r\n\r\nc",
        ["a", "b", "c"],
    ),
    Report(
        "vectordotdev/vector#8459 (blanks and line breaks around events)",
        HEC,
        '\n{"event":"one"}\n\n{"event":"two"}  \r\n[{"event":"three"}]\n\n',
        ["one", "two", "three"],
        text='"code":0',
    ),
    Report(
        "open-telemetry/opentelemetry-collector-contrib#22788, #21236 (blank lines are not events, blanks are text)",
        "/services/collector/raw",
        "abc\r\n\r\n  efg  \n\t\n\n",
        ["abc", "  efg  ", "\t"],
    ),
    Report(
        "vectordotdev/vector#22653 (raw lines without a channel)", "/services/collector/raw", "a\nb", ["a", "b"], 200
    ),
    # Loki
    Report(
        "grafana/loki#1347 (labels of the old route as an object)",
        "/api/prom/push",
        '{"streams":[{"labels":{"a":123},"entries":[{"ts":"2019-12-02T11:16:12.000000Z","line":"{}"}]}]}',
        ["{}"],
        204,
        annotations={"labels.a": "123", "time": "1575285372000000000"},
    ),
    Report(
        "grafana/loki#17971 (quotes in labels, lines and metadata)",
        LOKI,
        loki('["1749036800121886000","\\"line",{"m":"\\"meta"}]', stream='{"label":"\\"v"}'),
        ['"line'],
        204,
        annotations={"metadata.m": '"meta', "labels.label": '"v'},
    ),
    Report(
        "grafana/loki#478 (another name, and seconds as text: the time was lost)",
        "/api/prom/push",
        '{"streams":[{"labels":"{job=\\"j\\"}","entries":[{"timestamp":"1554887676","line":"TEST!"}]}]}',
        ["TEST!"],
        204,
        annotations={"labels.job": "j"},
        event_times=["2019-04-10T09:14:36"],
    ),
    Report("grafana/loki#11565", LOKI, loki('[1570818238000000000,"x"]', '["1","y"]'), ["x", "y"], 204),
    Report("grafana/loki#11774", LOKI, loki('["1570818238000000000","fizzbuzz"]'), ["fizzbuzz"], 204),
    Report("grafana/loki#200", LOKI, loki('["1","a"]', '["never","b"]', '["3","c"]'), ["a", "c"], 400, "entry 2"),
    Report(
        "getsentry/relay#5833, grafana/loki#2859",
        LOKI,
        loki('["1","one"]', '["2","cut \\ud83d"]', '["3","three"]'),
        ["one", "cut \ufffd", "three"],
        204,
    ),
    Report(
        "ozontech/file.d#899",
        LOKI,
        loki('["1","a",{"status":"304","bytes":38660}]'),
        ["a"],
        204,
        annotations={"metadata.bytes": "38660", "metadata.status": "304"},
    ),
    Report(
        "grafana/loki#1727, josephwoodward/Serilog-Sinks-Loki#12",
        "/api/prom/push",
        '{"streams":[{"labels":"{level=\\"info\\"}","entries":[{"ts":"2026-05-18T14:50:44.4335725+02:00","line":"x"}]}]}',
        ["x"],
        204,
        annotations={"labels.level": "info", "time": "1779108644433572500"},
    ),
    Report(
        "grafana/loki#9437 (times that are equal or descend)",
        LOKI,
        loki(
            '["1683665111628000000","a"]',
            '["1683665111628000000","b"]',
            '["1683665111628002000","c"]',
            '["1683665111628001000","d"]',
        ),
        ["a", "b", "c", "d"],
        204,
        event_times=[f"2023-05-09T20:45:11.{micros}" for micros in (628000, 628000, 628002, 628001)],
    ),
    Report(
        "grafana/loki#927, prometheus/prometheus#8515 (labels that are empty, or end with a quote or an escape)",
        "/api/prom/push",
        r"""{"streams":[{"labels":"{a=\"\",b=\"x\\\"\",c=\"\\u70ac\"}","entries":[{"ts":"2026-05-18T14:50:44Z","line":"x"}]}]}""",
        ["x"],
        204,
        annotations={"labels.a": "", "labels.b": 'x"', "labels.c": "\u70ac"},
    ),
    Report(
        "elastic/elasticsearch-rs#62, ropensci-archive/elastic#279 (the id 0, and all digits of a number)",
        BULK,
        '{"index":{"_id":0}}\n{"x":1.234567890123456789012}\n',
        ['{"x":1.234567890123456789012}'],
        text='"errors":false',
        annotations={"id": "0"},
    ),
    # OTLP
    Report(
        "grafana/loki#24423 (bytes that are not UTF-8, in JSON)",
        OTLP,
        otlp('{"body":{"stringValue":"before-%-after"}}').encode().replace(b"%", b"\xff\xfe"),
        [],
        400,
    ),
    Report(
        "quickwit-oss/quickwit#6786, openai/codex#30936 (no time but that of the observation)",
        OTLP,
        otlp('{"timeUnixNano":"0","observedTimeUnixNano":"1767225600000000000","body":{"stringValue":"x"}}'),
        ["x"],
        text="{}",
        event_times=["2026-01-01T00:00:00"],
    ),
    Report(
        "madesroches/micromegas#1123, fluent/fluent-bit#10793, oteldb/oteldb#1363 (no time at all)",
        OTLP,
        otlp(
            '{"timeUnixNano":"0","observedTimeUnixNano":"0","body":{"stringValue":"x"}}', '{"body":{"stringValue":"y"}}'
        ),
        ["x", "y"],
        text="{}",
        event_times=[None, None],
    ),
    Report(
        "open-telemetry/opentelemetry-rust#3289, fluent/fluent-bit#10672 (no body, or an empty one)",
        OTLP,
        otlp('{"eventName":"e"}', '{"body":{}}', '{"body":{"stringValue":""}}', '{"body":{"stringValue":"x"}}'),
        ["", "", "", "x"],
        text="{}",
    ),
    Report(
        "fluent/fluent-bit#10648 (null in a map)",
        OTLP,
        otlp('{"body":{"kvlistValue":{"values":[{"key":"a","value":{}},{"key":"b","value":{"intValue":1}}]}}}'),
        ['{"a":null,"b":1}'],
        text="{}",
    ),
    Report(
        "openobserve/openobserve#2532",
        OTLP,
        otlp('{"body":{"stringValue":"x"},"traceId":null,"spanId":null,"attributes":null,"severityText":null}'),
        ["x"],
        text="{}",
    ),
    Report(
        "planetf1/otelite#247",
        OTLP,
        otlp('{"body":{"stringValue":"x"},"attributes":[{"key":"n","value":{"intValue":"42"}}]}'),
        ["x"],
        annotations={"attributes.n": "42"},
    ),
    Report(
        "Necmttn/ax#850, corveil/crow#823",
        OTLP,
        otlp('{"body":{"stringValue":"x"},"attributes":[{"key":"n","value":{"intValue":83729}}]}'),
        ["x"],
        annotations={"attributes.n": "83729"},
    ),
    Report(
        "OpenTelemetry protocol: trace ids of 16 bytes",
        OTLP,
        otlp('{"body":{"stringValue":"a"},"traceId":"abcd","spanId":"00f067aa0ba902b7"}'),
        ["a"],
        text="1 malformed trace_id or span_id",
        annotations={"span_id": "00f067aa0ba902b7"},
    ),
    Report(
        "Logflare/logflare#3683",
        OTLP,
        otlp('{"body":{"stringValue":"a"},"traceId":"not hex"}', '{"body":{"stringValue":"b"}}'),
        ["b"],
        text='"rejectedLogRecords": "1"',
    ),
    Report(
        "jaegertracing/jaeger-ui#2589",
        OTLP,
        otlp('{"body":{"stringValue":"a"},"droppedAttributesCount":-1}', '{"body":{"stringValue":"b"}}'),
        ["b"],
        text='"rejectedLogRecords": "1"',
    ),
    Report(
        "getsentry/sentry-javascript#20245",
        OTLP,
        otlp('{"body":{"stringValue":"cut \\ud83d"}}', '{"body":{"stringValue":"b"}}'),
        ["cut \ufffd", "b"],
    ),
    Report(
        "open-telemetry/opentelemetry-specification#4392, PostHog/posthog-js#4583 (null in a list, and an empty value)",
        OTLP,
        otlp('{"body":{"arrayValue":{"values":[{"intValue":"1"},null,{},{"stringValue":""}]}}}'),
        ['[1,null,null,""]'],
        text="{}",
    ),
    Report(
        "open-telemetry/opentelemetry-proto#666 (a map without its values refuses its record alone)",
        OTLP,
        otlp('{"body":{"kvlistValue":[{"key":"type","value":{"stringValue":"x"}}]}}', '{"body":{"stringValue":"b"}}'),
        ["b"],
        text="kvlistValue is not an object",
    ),
    Report(
        "open-telemetry/opentelemetry-collector#8720, tracewayapp/traceway#130 (ids are hexadecimal, and no base64)",
        OTLP,
        otlp(
            '{"body":{"stringValue":"a"},"traceId":"0AF7651916CD43DD8448EB211C80319C"}',
            '{"body":{"stringValue":"b"},"traceId":"Z6z8LqVvEI+kU1/Ci6mXBQ=="}',
        ),
        ["a"],
        text="record 2: traceId has characters other than hexadecimal digits",
        annotations={"trace_id": "0af7651916cd43dd8448eb211c80319c"},
    ),
    # Elasticsearch's _bulk
    Report(
        "codelibs/elasticsearch-dataformat#44 (lines that end with CR LF, and a document in several lines)",
        BULK,
        '{"index":{}}\r\n{"a":1}\r\n\r\n{"create":{}}\r\n{"b":2}\r\n',
        ['{"a":1}', '{"b":2}'],
        text='"errors":false',
    ),
    Report("codelibs/elasticsearch-dataformat#44", BULK, '{"index":{}}\n{\n"a":1\n}\n', [], 400, "Malformed action"),
    Report(
        "elastic/elasticsearch#25740 (silent loss of the last one)",
        BULK,
        '{"index":{}}\n{"foo":"bar"}\n{"index":{}}\n{"foo":"barbar"}',
        ['{"foo":"bar"}', '{"foo":"barbar"}'],
        text='"errors":false',
    ),
    Report("elastic/elasticsearch#29309", BULK, '\n{"index":{"_id":"0"}}\n{"n":0.579}\n\n', ['{"n":0.579}']),
    Report(
        "hsen-dev/vscode-elastic#53",
        BULK,
        '{"index":{}}\n{"a":1}\n{"delete":{"_id":"2"}}\n{"create":{"_id":"3"}}\n{"b":3}\n',
        ['{"a":1}', '{"b":3}'],
        text='"errors":true',
    ),
    Report(
        "elastic/elasticsearch: index is missing",
        "/_bulk",
        '{"index":{}}\n{"a":1}\n',
        [],
        400,
        "1: index is missing;",
    ),
    Report(
        "slackhq/astra#753 (the time of a document was ignored; texts, times without a zone, numbers, and none)",
        BULK,
        '{"create":{}}\n{"@timestamp":"2024-01-27T10:00:00.123456+01:00","a":"@timestamp"}\n'
        '{"index":{}}\n{"a":{"@timestamp":"2024-01-27T00:00:00Z"},"@timestamp":"2024-01-27T10:00:00.5"}\n'
        '{"create":{}}\n{"@timestamp":1706346000123}\n{"create":{}}\n{"@timestamp":{"a":1}}\n'
        '{"create":{}}\n{"@timestamp":"yesterday"}\n{"create":{}}\n{"@timestamp":null}\n{"create":{}}\n{"time":1}\n',
        [
            '{"@timestamp":"2024-01-27T10:00:00.123456+01:00","a":"@timestamp"}',
            '{"a":{"@timestamp":"2024-01-27T00:00:00Z"},"@timestamp":"2024-01-27T10:00:00.5"}',
            '{"@timestamp":1706346000123}',
            '{"@timestamp":{"a":1}}',
            '{"@timestamp":"yesterday"}',
            '{"@timestamp":null}',
            '{"time":1}',
        ],
        event_times=[
            "2024-01-27T09:00:00.123456",
            "2024-01-27T10:00:00.5",
            "2024-01-27T09:00:00.123",
            *[None] * 4,
        ],
    ),
    Report(
        "slackhq/astra#753 (as JSON; an event has its own time)",
        PLAIN,
        '{"@timestamp":"2024-01-27T23:59:60Z"}\n[1]\n'
        '{"type":"t","uuid":"u","timestamp":1000,"@timestamp":"2024-01-27T10:00:00Z"}\n{"@timestamp":"a\\"b","type":1}',
        [
            '{"@timestamp":"2024-01-27T23:59:60Z"}',
            "1",
            '{"type":"t","uuid":"u","timestamp":1000,"@timestamp":"2024-01-27T10:00:00Z"}',
            '{"@timestamp":"a\\"b","type":1}',
        ],
        event_times=["1970-01-01T00:00:01", "2024-01-28T00:00:00", None, None],
    ),
    Report(
        "logstash-plugins/logstash-output-elasticsearch (numbers beyond doubles)",
        BULK,
        '{"create":{}}\n{"a":1e400}\n',
        ['{"a":1e400}'],
        text='"errors":false',
    ),
    Report(
        "VictoriaMetrics/VictoriaLogs#1286 (a repeated field)",
        BULK,
        '{"create":{}}\n{"app":"first","app":"second"}\n',
        ['{"app":"first","app":"second"}'],
        text='"errors":false',
    ),
    Report(
        "VictoriaMetrics/VictoriaLogs#1286 (its kind, in the action)",
        BULK,
        '{"create":{"_index":"a","_index":"b"}}\n{"x":1}\n',
        [],
        400,
        "Duplicate field '_index'",
    ),
    Report(
        "VictoriaMetrics/VictoriaLogs#1286 (its kind: two actions)",
        BULK,
        '{"index":{"_id":"1"},"index":{"_id":"2"}}\n{"x":1}\n',
        [],
        400,
        "Duplicate field 'index'",
    ),
    # JSON
    Report("fluent/fluent-bit#3972 (bad bytes)", PLAIN, b'{"a":1}\n{"b":"\xff"}\n{"c":3}', ['{"a":1}', '{"c":3}']),
    Report(
        "vectordotdev/vector#23472 (its kind, in JSON)", PLAIN, '[[1.10],{"a":1,"a":2}]', ["[1.10]", '{"a":1,"a":2}']
    ),
    Report(
        "fluent/fluent-bit#5810, #4011 (only the first of concatenated objects)",
        PLAIN,
        '{"1":1}{"2":"}{"}\n{"3":3} {"4":4.10}\r\n{"5":5}',
        ['{"1":1}', '{"2":"}{"}', '{"3":3}', '{"4":4.10}', '{"5":5}'],
    ),
    Report(
        "fluent/fluent-bit#5810 (its kind: a bad object among them)",
        PLAIN,
        '{"1":1}{"2":}\n{"3":3}',
        ['{"3":3}'],
        text='"refused":1',
    ),
    Report(
        "vectordotdev/vector#24891 (severities as name, digits and number; none loses a fraction or high bits)",
        OTLP,
        otlp(
            *with_severity('"SEVERITY_NUMBER_ERROR"', '"17"', "17", "1.7e1", "17.0"),
            *with_severity("17.5", "true", "4294967313", '"4294967313"', "1e400", '"17.5"'),
        ),
        ["x"] * 5,
        text='"rejectedLogRecords": "6"',
        annotations={"severity_number": "17"},
    ),
    Report(
        "tomnomnom/gron#23, ndjson/ndjson-spec#1 (documents of several lines: no line within them is a message)",
        PLAIN,
        '{\n "m": [\n  1,\n  {}\n ]\n}\n{\n "m": [\n  2.0\n ]\n}\n{"b":2}',
        ['{\n "m": [\n  1,\n  {}\n ]\n}', '{\n "m": [\n  2.0\n ]\n}', '{"b":2}'],
        text='"refused":0',
    ),
    Report(
        "reubenmiller/go-c8y-cli#345 (its kind: a bad document among them, and one that is not UTF-8)",
        PLAIN,
        b'{\n"a":\n1\n}\n{\n"a":\nnope\n}\n{\n"b":"\xff"\n}{\n"b":"\xc3\xa9"\n}\n',
        ['{\n"a":\n1\n}', '{\n"b":"\u00e9"\n}'],
        text='"refused":2',
    ),
    *(
        Report(
            f"FantasticFiasco/serilog-sinks-http#188, vectordotdev/vrl#1303 ({path})",
            path,
            "\ufeff" + body,
            messages,
            status,
        )
        for path, body, messages, status in [
            (PLAIN, '{"a":1}\n{"b":2}', ['{"a":1}', '{"b":2}'], 200),
            (PLAIN, '[{"a":1}]', ['{"a":1}'], 200),
            (HEC, '{"event":"a"}{"event":"b"}', ["a", "b"], 200),
            ("/services/collector/raw", "a\nb", ["a", "b"], 200),
            (BULK, '{"create":{}}\n{"a":1}\n', ['{"a":1}'], 200),
            ("/logs/_doc", '{"a":1}', ['{"a":1}'], 201),
            (LOKI, loki('["1","a"]'), ["a"], 204),
            (OTLP, otlp('{"body":{"stringValue":"a"}}'), ["a"], 200),
        ]
    ),
    # Sent as text or number, and back: what the sender wrote is kept
    Report(
        "JaniAnttonen/winston-loki#193, Julien-R44/pino-loki#48 (metadata that are not strings)",
        LOKI,
        loki('["1","a",{"count":5,"ok":true,"m":{"x":1.10}}]', '["2","b"]'),
        ["a", "b"],
        204,
    ),
    Report(
        "grafana/loki#13918 (line breaks in metadata)",
        LOKI,
        loki(r'["1723985681658755744","{}",{"message":"a\nb\nc"}]'),
        ["{}"],
        204,
        annotations={"metadata.message": "a\nb\nc"},
    ),
    Report(
        "grafana/loki#5645 (escaped quotes in a line that is JSON)",
        LOKI,
        loki(r'["1647550779000000000","{\"a\":\"\\\"q\\\"\"}"]'),
        [r'{"a":"\"q\""}'],
        204,
    ),
    Report(
        "splunk/kafka-connect-splunk#241 (fields and no event)",
        HEC,
        '{"time":"1596212700.000","host":"h","fields":{"hn":"x"}}',
        [],
        400,
        '"code":12',
    ),
    Report(
        "vectordotdev/vector#6185 (numbers and truth values as events)",
        HEC,
        '{"time":1596212700.5,"event":-0}{"time":1596212700.5,"event":1e2}{"time":1596212700.5,"event":true}',
        ["-0", "1e2", "true"],
        event_times=["2020-07-31T16:25:00.500"] * 3,
    ),
    Report(
        "PostHog/posthog-js#4571 (integers above 2^53, and beyond 64 bits)",
        OTLP,
        otlp('{"body":{"intValue":9007199254740993}}', '{"body":{"intValue":9223372036854775808}}'),
        ["9007199254740993", "9223372036854775808"],
    ),
    Report(
        "langfuse/langfuse#14047, #13297 (numbers as strings)",
        OTLP,
        otlp('{"body":{"intValue":"7"}}', '{"body":{"doubleValue":"1.50"}}', '{"body":{"doubleValue":-0.0}}'),
        ["7", "1.50", "-0.0"],
    ),
    Report(
        "open-telemetry/opentelemetry-collector#6153 (bytes)",
        OTLP,
        otlp('{"body":{"bytesValue":"AP8="}}', '{"body":{"arrayValue":{}}}', '{"body":{"boolValue":false}}'),
        ["AP8=", "[]", "false"],
    ),
    Report(
        "rhizomatics/remote_logger#22 (a value that is not an object refuses its record alone)",
        OTLP,
        otlp('{"body":"plain"}', '{"body":{"stringValue":"ok"}}'),
        ["ok"],
        text="a value is not an object",
    ),
    # Repeated members, and requests of another kind: accepted without a trace if a parser ignores them
    Report("HEC: event twice", HEC, '{"event":"x","event":"y"}', [], 400, "'event' occurs more than once"),
    Report("HEC: time twice", HEC, '{"event":"a"}{"event":"x","time":1,"time":2}', ["a"], 400, "'time' occurs more"),
    Report(
        "HEC: field twice",
        HEC,
        '{"event":"x","fields":{"a":"1","b":2,"a":3.10,"b":null}}',
        ["x"],
        annotations={"fields.a": "1\0003.10", "fields.b": "2"},
    ),
    Report("HEC: nested field twice", HEC, '{"event":"x","fields":{"a":{},"a":1}}', [], 400, "indexed fields"),
    Report(
        "OTLP: spans sent as logs", OTLP, '{"resourceSpans":[{}]}', [], 400, "has 'resourceSpans' and no resourceLogs"
    ),
    Report("OTLP: empty request", OTLP, "{}", []),
    Report("OTLP: no resources", OTLP, '{"resourceLogs":null}', []),
    Report(
        "OTLP before 0.15",
        OTLP,
        '{"resourceLogs":[{"instrumentationLibraryLogs":[{"logRecords":[{"body":{"stringValue":"x"}}]}]}]}',
        [],
        400,
        "instrumentationLibraryLogs",
    ),
    Report("OTLP: resources twice", OTLP, '{"resourceLogs":[],"resource_logs":[{}]}', [], 400, "more than once"),
    Report(
        "OTLP: records twice",
        OTLP,
        '{"resourceLogs":[{"scopeLogs":[{"logRecords":[{}],"logRecords":[{}]}]}]}',
        [],
        400,
        "occurs more than once",
    ),
    Report(
        "OTLP: body twice",
        OTLP,
        otlp('{"body":{"stringValue":"a"},"body":{"stringValue":"b"}}', '{"body":{"stringValue":"c"}}'),
        ["c"],
        text="body occurs more than once",
    ),
    *(
        Report(f"OTLP: no name of its own ({name})", OTLP, body, [], 400, f"'{name}' is not a")
        for name, body in [
            ("Value", otlp('{"body":{"Value":{"StringValue":"as Go\'s json.Marshal writes it"}}}')),
            ("message", otlp('{"message":"text"}')),
            ("name", otlp('{"body":{"stringValue":"x"},"attributes":[{"name":"a","text":"b"}]}')),
            ("logs", '{"resourceLogs":[{"scopeLogs":[{"logs":[{"body":{"stringValue":"x"}}]}]}]}'),
            ("logRecords", '{"resourceLogs":[{"logRecords":[{"body":{"stringValue":"x"}}]}]}'),
        ]
    ),
    Report(
        "OTLP: further names are ignored, as OTLP demands",
        OTLP,
        otlp('{"later":1,"body":{"stringValue":"x","later":2}}', '{"body":{}}', "{}"),
        ["x", "", ""],
    ),
    Report(
        "OTLP: value of two types",
        OTLP,
        otlp('{"body":{"stringValue":"a","intValue":"1"}}', '{"body":{"stringValue":"c"}}'),
        ["c"],
        text="a value has more than one type",
    ),
    Report(
        "grafana/loki#21039 (the same line at the same time, with other metadata)",
        LOKI,
        loki('["1764360000000000000","term",{"thread":"1"}]', '["1764360000000000000","term",{"thread":"2"}]'),
        ["term", "term"],
        204,
    ),
    Report(
        "mjfryc/mjaron-tinyloki-java#30, grafana/alloy#5615 (equal lines at one time, which stays theirs)",
        LOKI,
        loki('["1764360000000000001","two"]', '["1764360000000000001","two"]'),
        ["two", "two"],
        204,
        annotations={"time": "1764360000000000001"},
    ),
    Report(
        "grafana/loki#15425 (as OTLP)",
        OTLP,
        otlp(
            '{"timeUnixNano":"1","body":{"stringValue":"term"},"attributes":[{"key":"t","value":{"intValue":1}}]}',
            '{"timeUnixNano":"1","body":{"stringValue":"term"},"attributes":[{"key":"t","value":{"intValue":2}}]}',
        ),
        ["term", "term"],
    ),
    Report(
        "open-telemetry/opentelemetry-js#2643, triggerdotdev/trigger.dev#3794 (digits beyond a double)",
        OTLP,
        otlp('{"timeUnixNano":1764360000123456789,"body":{"stringValue":"x"}}'),
        ["x"],
        annotations={"time": "1764360000123456789"},
        event_times=["2025-11-28T20:00:00.123456"],
    ),
    Report(
        "openobserve/openobserve#3150 (a time as a string)",
        OTLP,
        otlp('{"timeUnixNano":"1764360000123456789","body":{"stringValue":"x"}}'),
        ["x"],
        annotations={"time": "1764360000123456789"},
    ),
    Report(
        "open-telemetry/opentelemetry-js#4062 (a time in two halves)",
        OTLP,
        otlp('{"timeUnixNano":{"low":1948385984,"high":395403571}}', '{"body":{"stringValue":"x"}}'),
        ["x"],
        text="record 1: ",
    ),
    Report(
        "BetterDB-inc/monitor#314 (a time through a double)",
        OTLP,
        otlp('{"timeUnixNano":1.764360000123456789e18,"body":{"stringValue":"x"}}'),
        ["x"],
        annotations={"time": "1764360000123456789"},
    ),
    Report(
        "metrico/gigapipe#610 (no time at all)",
        OTLP,
        otlp('{"severityNumber":9,"body":{"stringValue":"x"}}'),
        ["x"],
        event_times=[None],
    ),
    Report(
        "NOFireAI/ravel#1309, getsentry/relay#6106 (bodies of all types)",
        OTLP,
        otlp(
            '{"body":{"kvlistValue":{"values":[{"key":"a","value":{"intValue":"1"}}]}}}',
            '{"body":{"arrayValue":{"values":[{"stringValue":"a"},{"boolValue":true}]}}}',
            '{"body":{"doubleValue":1.5}}',
            '{"body":{"bytesValue":"AQI="}}',
        ),
        ['{"a":1}', '["a",true]', "1.5", "AQI="],
    ),
    Report(
        "open-telemetry/opentelemetry-go#8828 (a count of 32 bits, and one that is larger)",
        OTLP,
        otlp(
            '{"body":{"stringValue":"most"},"droppedAttributesCount":4294967295}',
            '{"body":{"stringValue":"x"},"droppedAttributesCount":4294967296}',
        ),
        ["most"],
        text="record 2: ",
        annotations={"dropped_attributes": "4294967295"},
    ),
    Report(
        "open-telemetry/opentelemetry-collector-contrib#47195, serilog-contrib/serilog-sinks-splunk#161 (microseconds)",
        HEC,
        '{"time":1764360000.123456,"event":"a"}{"time":"1764360000.1234569","event":"b"}',
        ["a", "b"],
        event_times=["2025-11-28T20:00:00.123456", "2025-11-28T20:00:00.123456"],
    ),
    Report(
        "open-telemetry/opentelemetry-collector-contrib#36571 (milliseconds)",
        HEC,
        '{"time":1732604863241,"event":"data"}',
        ["data"],
        event_times=["2024-11-26T07:07:43.241"],
    ),
    Report(
        "vectordotdev/vector#2376, splunk/fluentd-hec#5 (nanoseconds)",
        HEC,
        '{"time":1764360000.999999999,"event":"a"}',
        ["a"],
        annotations={"time": "1764360000.999999999"},
        event_times=["2025-11-28T20:00:00.999999"],
    ),
    Report(
        "uken/fluent-plugin-elasticsearch#434 (as many items as actions, also of equal documents)",
        BULK,
        '{"create":{"_id":"1"}}\n{"a":1}\n{"create":{"_id":"1"}}\n{"a":1}\n',
        ['{"a":1}', '{"a":1}'],
        text='"errors":false',
    ),
    Report(
        "Loki: streams twice", LOKI, '{"streams":[],"streams":[]}', [], 400, "the body: streams occurs more than once"
    ),
    Report(
        "Loki: values twice",
        LOKI,
        loki('["1","a"]').replace("values", 'entries":[],"values'),
        [],
        400,
        "more than once",
    ),
]


def received(report: Report) -> tuple[int, str, list[dict[str, Any]], str]:
    """Return status and text of the answer, the rows, and the codec."""
    protocols = [protocol() for protocol in REQUEST_PROTOCOLS]
    body = report.body if isinstance(report.body, bytes) else report.body.encode()
    request = make_request(report.path, body, JSON, report.method)
    protocol = find_protocol(protocols, report.method, request.path)
    assert protocol is not None
    try:
        outcome = protocol.receive(request)
    except Refused as refusal:
        outcome = protocol.refusal(refusal, request)
    if isinstance(outcome, Answer):
        return outcome.status, outcome.body.decode(), [], protocol.codec
    return outcome.answer.status, outcome.answer.body.decode(), as_batch(outcome.body).to_pylist(), protocol.codec


def event_times(rows: list[dict[str, Any]], codec: str) -> list[datetime | None]:
    columns = {
        "topic": "t",
        "source": "s",
        "codec": codec,
        "timestamp": RECEIVED_AT,
        "bucket": RECEIVED_AT,
        "received": RECEIVED_AT,
    }
    batch = pa.RecordBatch.from_pylist([{**row, **columns, "offset": n} for n, row in enumerate(rows)], schema=ROW)
    return [row["event_time"] for _, part in table_rows(batch, Rules(), None) for row in part.to_pylist()]


@pytest.mark.parametrize("report", REQUESTS, ids=lambda report: report.reference)
def test_request_gives_the_expected_answer_and_messages(report: Report) -> None:
    status, text, rows, codec = received(report)
    assert [row["payload"].decode() for row in rows] == report.messages
    assert status == report.status
    assert report.text in text
    for row in rows:
        assert dict(row["annotations"] or []).items() >= report.annotations.items()
    if report.event_times:
        assert event_times(rows, codec) == [time and in_utc(time) for time in report.event_times]


def in_utc(time: str) -> datetime:
    return datetime.fromisoformat(time).replace(tzinfo=UTC)


def test_items_of_a_bulk_request_are_answered_in_order() -> None:
    """elastic/elasticsearch#101921 (failures at other places), elastic/logstash#1631, syslog-ng/syslog-ng#3672."""
    lines = ['{"index":{"_id":"0"}}', '{"a":1}', '{"update":{"_id":"1"}}', '{"doc":{"a":1}}', '{"index":{"_id":"2"}}']
    lines += ["no JSON", '{"delete":{"_id":"3"}}', '{"create":{"_id":"4"}}', '{"b":1}']
    status, text, rows, _ = received(Report("", BULK, "\n".join(lines), []))
    items = [next(iter(item.values())) for item in json.loads(text)["items"]]
    assert status == 200
    assert [(item["_id"], item["status"]) for item in items] == [
        ("0", 201),
        ("1", 400),
        ("2", 400),
        ("3", 400),
        ("4", 201),
    ]
    assert [row["payload"] for row in rows] == [b'{"a":1}', b'{"b":1}']


RFC3339_TIMES = [
    ("ethlo/itu#4, ThreeTen/threeten#303 (a leap second)", "2016-12-31T23:59:60Z", "2017-01-01T00:00:00"),
    ("time-rs/time#404, #406 (with a zone and a fraction)", "1990-12-31T15:59:60.25-08:00", "1991-01-01T00:00:00.250"),
    ("time-rs/time#674 (a formatter that rounds up)", "2023-12-11T11:31:60.000Z", "2023-12-11T11:32:00"),
    (
        "rsyslog/rsyslog#5469, luigiberrettini/NLog.Targets.Syslog#224 (any number of digits)",
        "2024-10-16T18:00:00.12345678910+09:00",
        "2024-10-16T09:00:00.123456",
    ),
    ("RFC 3339, section 5.6 (small letters)", "2024-10-16t18:00:00.5z", "2024-10-16T18:00:00.500"),
    (
        "util-linux/util-linux#159 (a zone without a colon)",
        "2015-03-04T15:02:02.566782+0100",
        "2015-03-04T14:02:02.566782",
    ),
    ("no such day", "2015-02-29T23:59:60Z", None),
    ("no such second", "2016-12-31T23:59:61Z", None),
]


@pytest.mark.parametrize(("reference", "text", "time"), RFC3339_TIMES, ids=[row[0] for row in RFC3339_TIMES])
def test_time_of_rfc_3339_is_read_in_every_form(reference: str, text: str, time: str | None) -> None:
    events = [json.dumps({"time": each, "event": "x"}) for each in (text, "2020-01-01T00:00:00Z", "-")]
    _, _, rows, codec = received(Report(reference, HEC, "".join(events), []))
    assert event_times(rows, codec) == [time and in_utc(time), in_utc("2020-01-01T00:00:00"), None]
    line = loki(json.dumps([text.replace("+0100", "+01:00"), "x"]))
    status, _, rows, codec = received(Report(reference, LOKI, line, []))
    assert (status, event_times(rows, codec)) == ((204, [in_utc(time)]) if time else (400, []))


@pytest.mark.parametrize(("reference", "text", "time"), RFC3339_TIMES[:4], ids=[row[0] for row in RFC3339_TIMES[:4]])
def test_time_of_a_syslog_header_is_the_time_of_its_event(reference: str, text: str, time: str) -> None:
    sent = [f"<134>{begin}{text} h app{end} text".encode() for begin, end in (("1 ", " - - -"), ("", ":"))]
    rows = SyslogDecoder().decode(Datagrams.from_bytes(sent), 0.0).body.to_pylist()
    assert [dict(row["annotations"])["hostname"] for row in rows] == ["h", "h"], reference
    assert event_times(rows, "syslog") == [in_utc(time)] * 2


def gelf(**fields: Any) -> bytes:
    return json.dumps({"version": "1.1", "host": "h", "short_message": "m", **fields}).encode()


GELF = [
    ("Graylog2/graylog2-server#5501", gelf(timestamp=1545353025250), {}, "2018-12-21T00:43:45.250"),
    ("Graylog2/documentation#531", gelf(timestamp=1545353025250123), {}, "2018-12-21T00:43:45.250123"),
    ("datalust/seq-input-gelf#112", gelf(timestamp=1545353025250123456), {}, "2018-12-21T00:43:45.250123"),
    ("Graylog2/graylog2-server#9878", gelf(timestamp="1545353025.25"), {}, "2018-12-21T00:43:45.250"),
    ("t0xa/gelfj#117", gelf(timestamp="1539162937.998"), {"timestamp": "1539162937.998"}, "2018-10-10T09:15:37.998"),
    ("Graylog2/documentation#754", gelf(_stackTrace="a\nb"), {"_stackTrace": "a\nb"}, None),
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
    (
        "vectordotdev/vector#21610 (precision lowered to seconds)",
        gelf(timestamp=1729760002.1093864),
        {"timestamp": "1729760002.1093864"},
        "2024-10-24T08:53:22.109386",
    ),
    (
        "datalust/seq-input-gelf#84 (precision of a double)",
        b'{"host":"h","timestamp":1764360000.123456999}',
        {},
        "2025-11-28T20:00:00.123456",
    ),
    (
        "Graylog2/graylog2-server#4338 (a time with an exponent)",
        b'{"host":"h","timestamp":1.510331274123E9}',
        {"timestamp": "1.510331274123E9"},
        "2017-11-10T16:27:54.123",
    ),
    (
        "Graylog2/graylog2-server#310, #1315, #1632, Graylog2/gelfclient#29 (dots, truth values, lists)",
        b'{"browser.os":"MacOSX","_secure":true,"_off":false,"_extra":["a",1.10]}',
        {"browser.os": "MacOSX", "_secure": "true", "_off": "false", "_extra": '["a",1.10]'},
        None,
    ),
    ("fluent/fluent-bit#3457", b'{"host":"h","short_message":"incorrect \xd0 handling","_a":"b"}', {"_a": "b"}, None),
]


@pytest.mark.parametrize(("reference", "message", "annotations", "time"), GELF, ids=[row[0] for row in GELF])
def test_gelf_message_has_the_expected_fields_and_time(
    reference: str, message: bytes, annotations: dict[str, str], time: str | None
) -> None:
    rows = GelfDecoder().decode_lines(pa.array([message], pa.binary())).body.to_pylist()
    assert [row["payload"] for row in rows] == [message]
    assert dict(rows[0]["annotations"]).items() >= annotations.items()
    assert event_times(rows, "gelf") == [time and in_utc(time)]


LONG = gelf(full_message="x" * 3000)
OTHER = gelf(full_message="y" * 3000)


def chunks(message: bytes, name: bytes) -> list[bytes]:
    parts = [message[begin : begin + 500] for begin in range(0, len(message), 500)]
    return [b"\x1e\x0f" + name + bytes((number, len(parts))) + part for number, part in enumerate(parts)]


FIRST_CHUNKS, OTHER_CHUNKS = chunks(LONG, b"12345678"), chunks(OTHER, b"87654321")
GELF_CHUNKS: list[tuple[str, list[tuple[bytes, int]], list[bytes], dict[str, int]]] = [
    (
        "Graylog2/go-gelf#26 (chunks in any order, of several messages)",
        [(part, 1) for pair in zip(FIRST_CHUNKS[::-1], OTHER_CHUNKS, strict=True) for part in pair],
        [LONG, OTHER],
        {},
    ),
    (
        "t0xa/gelfj#95, jjchiw/gelf4net#29 (senders give their messages the same id)",
        [
            (part, port)
            for pair in zip(FIRST_CHUNKS, chunks(OTHER, b"12345678"), strict=True)
            for port, part in enumerate(pair)
        ],
        [LONG, OTHER],
        {},
    ),
    (
        "t0xa/gelfj#95 (an id that is the time: two messages of one sender, one after the other)",
        [(part, 1) for part in (*FIRST_CHUNKS, *chunks(OTHER, b"12345678"))],
        [LONG, OTHER],
        {"fragment.duplicate": 0},
    ),
    (
        "Graylog2/graylog2-server#1593 (each chunk twice, all of them in turn)",
        [(part, 1) for part in FIRST_CHUNKS * 2],
        [LONG],
        {"fragment.duplicate": len(FIRST_CHUNKS)},
    ),
    (
        "Graylog2/graylog2-server#1593 (each chunk twice)",
        [(part, 1) for part in FIRST_CHUNKS[:-1] * 2 + FIRST_CHUNKS[-1:]],
        [LONG],
        {"fragment.duplicate": len(FIRST_CHUNKS) - 1},
    ),
    (
        "mp911de/logstash-gelf#198, datalust/seq-input-gelf#43 (the rest of the chunks is missing)",
        [(FIRST_CHUNKS[0], 1), *((part, 1) for part in OTHER_CHUNKS)],
        [OTHER],
        {"open": 1},
    ),
    (
        "Graylog2/graylog2-server#5701 (a datagram that is too short ends nothing)",
        [(b"\x1e", 1), (b"\x1e\x0f", 1), (b"\x1f", 1), (gelf(), 1)],
        [b"\x1e", b"\x1f", gelf()],
        {},
    ),
    (
        "elastic/logstash#718 (chunks, then a message)",
        [*((part, 1) for part in FIRST_CHUNKS), (gelf(), 1)],
        [LONG, gelf()],
        {},
    ),
]


@pytest.mark.parametrize(
    ("reference", "datagrams", "messages", "counts"), GELF_CHUNKS, ids=[row[0] for row in GELF_CHUNKS]
)
def test_gelf_chunks_become_their_messages(
    reference: str, datagrams: list[tuple[bytes, int]], messages: list[bytes], counts: dict[str, int]
) -> None:
    data, ports = zip(*datagrams, strict=True)
    decoded = GelfDecoder().decode(Datagrams.from_bytes(list(data), ports=list(ports)), 0.0)
    assert sorted(row["payload"] for row in decoded.body.to_pylist()) == sorted(messages), reference
    assert {name: decoded.counts[name] for name in counts} == counts


NEWLINE_IN_FIELD = gelf(full_message="a\n\nb")
GELF_STREAMS = [
    ("Graylog2/graylog2-server#1525 (echo | nc)", NEWLINE_IN_FIELD + b"\n", [NEWLINE_IN_FIELD]),
    ("Graylog2/graylog2-server#1240", NEWLINE_IN_FIELD + b"\0" + gelf() + b"\0", [NEWLINE_IN_FIELD, gelf()]),
    ("rsyslog/rsyslog-doc#621 (no NUL)", gelf(_n=1) + b"\n" + gelf(_n=2) + b"\n", [gelf(_n=1), gelf(_n=2)]),
    ("apache/logging-log4j2#394", gelf(_n=1) + b"\n" + gelf(_n=2) + b"\n", [gelf(_n=1), gelf(_n=2)]),
    ("apache/logging-log4j2#394 (both)", gelf(_n=1) + b"\0\n" + gelf(_n=2) + b"\0\n", [gelf(_n=1), gelf(_n=2)]),
]


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(("reference", "stream", "messages"), GELF_STREAMS, ids=[row[0] for row in GELF_STREAMS])
def test_gelf_connection_gives_the_expected_messages(
    reference: str, stream: bytes, messages: list[bytes], size: int
) -> None:
    splitter = GelfSplitter(10_000)
    parts = [splitter.feed(stream[begin : begin + size]).lines for begin in range(0, len(stream), size)]
    lines = pa.concat_arrays([*parts, splitter.finish().lines]).to_pylist()
    assert [line for line in lines if line] == messages


def event_time(seconds: int, nanoseconds: int = 0) -> msgpack.ExtType:
    return msgpack.ExtType(0, struct.pack(">II", seconds, nanoseconds))


FORWARD: list[tuple[str, list[Any], str, str | None]] = [
    (
        "fluent/fluent-bit#11532 (after 2038)",
        ["t", event_time(2209161600, 123456000), {"a": 1}],
        '{"a":1}',
        "2040-01-03T00:00:00.123456",
    ),
    ("komamitsu/fluency#104", ["t", 2209161600, {"a": 1}], '{"a":1}', "2040-01-03T00:00:00"),
    (
        "fluent/fluent-bit#8641 (32 bits)",
        ["t", msgpack.Timestamp(1600000000), {"a": 1}],
        '{"a":1}',
        "2020-09-13T12:26:40",
    ),
    (
        "fluent/fluent-bit#8641 (64 bits)",
        ["t", msgpack.Timestamp(1600000000, 5000), {"a": 1}],
        '{"a":1}',
        "2020-09-13T12:26:40.000005",
    ),
    (
        "fluent/fluent-bit#8641 (96 bits)",
        ["t", msgpack.Timestamp(1 << 33, 5000), {"a": 1}],
        '{"a":1}',
        "2242-03-16T12:56:32.000005",
    ),
    ("fluent/fluent-bit#8641 (before 1970)", ["t", msgpack.Timestamp(-5), {"a": 1}], '{"a":1}', None),
    (
        "fluent/fluent-bit#11132 (a group's beginning)",
        ["t", [event_time(0xFFFFFFFF), {}], {"resource": {}}],
        '{"resource":{}}',
        None,
    ),
    (
        "fluent/fluent-bit#2371",
        ["test.test", 1593000000, {"key1": "value1"}],
        '{"key1":"value1"}',
        "2020-06-24T12:00:00",
    ),
    ("fluent/fluent-bit#377", ["t", 1505711309.0, {"source": "stderr"}], '{"source":"stderr"}', "2017-09-18T05:08:29"),
    ("Graylog2/graylog2-server#5501 (its kind)", ["t", 1545353025250, {"a": 1}], '{"a":1}', "2018-12-21T00:43:45.250"),
    ("digitalsleuth/time_decode#5 (a double)", ["t", 1764360000.123, {"a": 1}], '{"a":1}', "2025-11-28T20:00:00.123"),
    (
        "honeycombio/honeytail#120 (a double)",
        ["t", 1764360000.1234567, {"a": 1}],
        '{"a":1}',
        "2025-11-28T20:00:00.123456",
    ),
]


@pytest.mark.parametrize(("reference", "request_", "record", "time"), FORWARD, ids=[row[0] for row in FORWARD])
def test_forward_record_has_the_expected_time(
    reference: str, request_: list[Any], record: str, time: str | None
) -> None:
    lines = ForwardSplitter(10_000, 1 << 20).feed(msgpack.packb(request_))
    rows = ForwardDecoder().decode_lines(lines.lines).body.to_pylist()
    assert [row["payload"].decode() for row in rows] == [record]
    assert event_times(rows, "forward") == [time and in_utc(time)]


@pytest.mark.parametrize("compressed", [{"compressed": "text"}, {"compressed": None}, {}])
def test_forward_reads_chunks_that_say_they_are_not_compressed(compressed: dict[str, str | None]) -> None:
    """fluent/fluent-bit#2396, #2644: Fluentd's ``text``; fluent/fluentd#3763: the events as a string of msgpack."""
    events = msgpack.packb([1600000000, {"a": 1}]) + msgpack.packb([event_time(1600000001, 5), {"a": 2}])
    requests = [
        msgpack.packb(["t", events, compressed]),
        b"\x93\xa1t\xdb" + struct.pack(">I", len(events)) + events + msgpack.packb(compressed),
    ]
    lines = [ForwardSplitter(10_000, 1 << 20).feed(request).lines for request in requests]
    rows = ForwardDecoder().decode_lines(pa.concat_arrays(lines)).body.to_pylist()
    assert [row["payload"] for row in rows] == [b'{"a":1}', b'{"a":2}'] * 2


EVENT = [1600000000, {"a": 1}]
STREAM = msgpack.packb(EVENT) + msgpack.packb([1600000000, "text"]) + msgpack.packb(EVENT)
TAG_ONLY = b"\x93\xa5z.log"
FORWARD_REQUESTS: list[tuple[str, bytes, int, int, str]] = [
    ("fluent/fluentd#774, #5003 (a record that is not a map)", msgpack.packb(["t", STREAM]), 2, 1, ""),
    ("fluent/fluentd#176 (no record)", msgpack.packb(["t", [EVENT, [1600000000, None], EVENT]]), 2, 1, ""),
    ("fluent/fluentd#176", msgpack.packb(["t", 1600000000, None]) + msgpack.packb(["t", *EVENT]), 1, 1, ""),
    ("fluent/fluentd#2104 (tags within events)", msgpack.packb(["t", [["t", *EVENT], EVENT]]), 1, 1, ""),
    ("fluent/fluentd#5166 (a tag alone)", msgpack.packb(["z.log"]) + msgpack.packb(["t", *EVENT]), 0, 1, "protocol"),
    ("fluent/fluentd#5166 (seven bytes, again and again)", TAG_ONLY + TAG_ONLY, 0, 1, ""),
    ("fluent/fluent-bit#8057 (metrics)", msgpack.packb(["m", b"\x83\xa4meta", {"fluent_signal": 1}]), 0, 1, "protocol"),
    ("fluent/fluentd#671 (JSON)", b'["t",1600000000,{"a":1}]', 0, 1, "protocol"),
]


@pytest.mark.parametrize(
    ("reference", "sent", "stored", "damaged", "closed"), FORWARD_REQUESTS, ids=[row[0] for row in FORWARD_REQUESTS]
)
def test_forward_refuses_damaged_events_alone_and_counts_them(
    reference: str, sent: bytes, stored: int, damaged: int, closed: str
) -> None:
    splitter = ForwardSplitter(10_000, 1 << 20)
    parts = [splitter.feed(sent), splitter.finish()]
    rows = [row for part in parts for row in ForwardDecoder().decode_lines(part.lines).body.to_pylist()]
    assert [row["payload"] for row in rows] == [b'{"a":1}'] * stored, reference
    assert (sum(part.refused.get("damaged", 0) for part in parts), splitter.closed) == (damaged, closed)


@pytest.mark.parametrize("seconds", [1600000000, 0x81000000])
def test_forward_keeps_a_repeated_key_behind_a_time_of_96_bits(seconds: int) -> None:
    """The bytes of such a time may look like the header of a map with one key."""
    time = b"\xc7\x0c\xff" + bytes(4) + seconds.to_bytes(8, "big")
    lines = ForwardSplitter(10_000, 1 << 20).feed(b"\x93\xa1t" + time + b"\x82\xa1a\x01\xa1a\x02")
    rows = ForwardDecoder().decode_lines(lines.lines).body.to_pylist()
    assert [row["payload"] for row in rows] == [b'{"a":1,"a":2}']


@pytest.mark.parametrize("cut", [9, 12])
def test_forward_reads_all_parts_of_a_gzip(cut: int) -> None:
    """fluent/fluent-bit#8665, #9058: Fluentd concatenates gzip chunks, and only the first was read."""
    events = msgpack.packb([1600000000, {"a": 1}]) + msgpack.packb([1600000001, {"a": 2}])
    packed = gzip.compress(events[:cut]) + gzip.compress(events[cut:])
    lines = ForwardSplitter(10_000, 1 << 20).feed(msgpack.packb(["t", packed, {"compressed": "gzip", "size": 2}]))
    rows = ForwardDecoder().decode_lines(lines.lines).body.to_pylist()
    assert [row["payload"] for row in rows] == [b'{"a":1}', b'{"a":2}']


@pytest.mark.parametrize(
    ("reference", "time", "metadata"),
    [
        (
            "fluent/fluent-bit#11617, #11756, fluent/fluentd#5369",
            [event_time(1600000000), {"otlp": {"severity_number": 17, "trace_id": b"\xff"}}],
            '{"otlp":{"severity_number":17,"trace_id":"\xff"}}',
        ),
        (
            "fluent/fluent-bit#11132 (a group's beginning)",
            [event_time(0xFFFFFFFF), {"schema": "otlp", "resource_id": 0}],
            '{"schema":"otlp","resource_id":0}',
        ),
        ("keys of type bin", [1600000000, {b"a": float("nan")}], '{"a":"nan"}'),
        ("fluent/fluent-bit#11877 (none)", [event_time(1600000000), {}], None),
        ("no map", [1600000000, "x"], '["x"]'),
    ],
)
def test_forward_keeps_the_metadata_of_an_event(reference: str, time: list[Any], metadata: str | None) -> None:
    lines = [
        ForwardSplitter(10_000, 1 << 20).feed(msgpack.packb(request)).lines
        for request in (["t", [[time, {"a": 1}]]], ["t", msgpack.packb([time, {"a": 1}])])
    ]
    rows = ForwardDecoder().decode_lines(pa.concat_arrays(lines)).body.to_pylist()
    assert [row["payload"] for row in rows] == [b'{"a":1}'] * 2, reference
    assert [dict(row["annotations"]).get("metadata") for row in rows] == [metadata] * 2


def test_forward_keeps_a_repeated_key_of_metadata() -> None:
    lines = ForwardSplitter(10_000, 1 << 20).feed(b"\x92\xa1t\x91\x92\x92\x01\x82\xa1a\x01\xa1a\x02\x81\xa1b\x03")
    (row,) = ForwardDecoder().decode_lines(lines.lines).body.to_pylist()
    assert (row["payload"], dict(row["annotations"])["metadata"]) == (b'{"b":3}', '{"a":1,"a":2}')


@pytest.mark.parametrize("chunk", ["id", b"id", b"\xff", 7])
@pytest.mark.parametrize("key", ["chunk", b"chunk"])
def test_forward_acknowledges_a_chunk_whose_id_is_no_string(key: str | bytes, chunk: str | bytes | int) -> None:
    """fluent/fluentd#1388, #3361: a sender without the acknowledgement that it expects repeats its chunk forever."""
    request, splitters = msgpack.packb([b"t", [[1, {"a": 1}]], {key: chunk}]), [ForwardSplitter(10_000, 1 << 20)] * 2
    lines = [splitter.feed(request).lines for splitter in splitters]
    assert splitters[0].acknowledgements == [msgpack.packb({"ack": chunk})] * 2
    rows = ForwardDecoder().decode_lines(pa.concat_arrays(lines)).body.to_pylist()
    annotations = [dict(row["annotations"]) for row in rows]
    assert {each["tag"] for each in annotations} == {"t"}
    # The repeat is known by its uuid.
    assert annotations[0]["uuid"] == annotations[1]["uuid"]


def test_forward_unpacks_a_compression_named_in_type_bin() -> None:
    packed = gzip.compress(msgpack.packb([1, {"a": 1}]))
    lines = ForwardSplitter(10_000, 1 << 20).feed(msgpack.packb([b"t", packed, {b"compressed": b"gzip"}]))
    assert [row["payload"] for row in ForwardDecoder().decode_lines(lines.lines).body.to_pylist()] == [b'{"a":1}']


FORWARD_VALUES = [
    ("keys of type bin (Fluent Bit's Lua and C plugins)", {b"key": {b"a": b"x"}}, '{"key":{"a":"x"}}'),
    ("repeated key of type bin", b"\x82\xc4\x01a\x01\xc4\x01a\x02", '{"a":1,"a":2}'),
    (
        "an EventTime in a record",
        {"t": msgpack.ExtType(0, b"\0\0\0\1\0\0\0\2")},
        '{"t":"1970-01-01T00:00:01.000000002Z"}',
    ),
    ("a timestamp in a record", {"t": msgpack.Timestamp(1_600_000_000, 5)}, '{"t":"2020-09-13T12:26:40.000000005Z"}'),
    (
        "a timestamp beyond the year 9999",
        {"t": [msgpack.Timestamp(1 << 60, 5)]},
        '{"t":["1152921504606846976.000000005"]}',
    ),
    ("an extension", {"e": msgpack.ExtType(5, b"abc")}, '{"e":"YWJj"}'),
]


@pytest.mark.parametrize(("reference", "record", "payload"), FORWARD_VALUES, ids=[row[0] for row in FORWARD_VALUES])
def test_forward_record_has_the_values_of_the_sender(reference: str, record: Any, payload: str) -> None:
    encoded = record if isinstance(record, bytes) else msgpack.packb(record)
    lines = ForwardSplitter(10_000, 1 << 20).feed(b"\x93\xa1t\x01" + encoded)
    decoded = ForwardDecoder().decode_lines(lines.lines)
    assert [row["payload"].decode() for row in decoded.body.to_pylist()] == [payload]


@pytest.mark.parametrize("records", [1, 100])
def test_otlp_map_keeps_a_repeated_key(records: int) -> None:
    pairs = [KeyValue(key="a", value=AnyValue(int_value=number)) for number in (1, 2)]
    body = AnyValue(
        kvlist_value=KeyValueList(values=[KeyValue(key="m", value=AnyValue(kvlist_value={"values": pairs}))])
    )
    scope = ScopeLogs(log_records=[LogRecord(body=body)] * records)
    request = ExportLogsServiceRequest(resource_logs=[ResourceLogs(scope_logs=[scope])])
    logs = logs_of(request.SerializeToString(), 1 << 20)
    assert as_batch(logs.body).column("payload").to_pylist() == [b'{"m":{"a":1,"a":2}}'] * records


def test_otlp_scopes_of_old_senders_are_refused() -> None:
    records = b"\x12\x02\x2a\x00"  # records of field 1000 of a resource, which was field 2 before
    old = b"\xc2\x3e" + bytes([len(records)]) + records
    with pytest.raises(Refused, match="instrumentationLibraryLogs"):
        logs_of(b"\x0a" + bytes([len(old)]) + old, 1 << 20)


def test_otlp_body_that_is_not_utf8_is_stored_as_it_was_sent() -> None:
    """open-telemetry/opentelemetry-collector#11449, grafana/loki#24423 (replaced), mulgadc/predastore#55 (all lost)."""
    records = [LogRecord(body=AnyValue(string_value=text)) for text in ("before-%%-after", "good")]
    request = ExportLogsServiceRequest(resource_logs=[ResourceLogs(scope_logs=[ScopeLogs(log_records=records)])])
    logs = logs_of(request.SerializeToString().replace(b"%%", b"\xff\xfe"), 1 << 20)
    assert [row["payload"] for row in as_batch(logs.body).to_pylist()] == [b"before-\xff\xfe-after", b"good"]
