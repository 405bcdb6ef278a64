"""Public reports on other receivers of syslog: what was sent, and what Penstock makes of it.

A new report is one more row: its reference, the bytes, the messages, and what the header of the last message says.
Texts are shortened, and names and addresses are replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from penstock.counts import Counts, open_books
from penstock.wire.datagrams import Datagrams
from penstock.wire.lines import LineSplitter, line_counts
from penstock.wire.syslog.codec import SyslogDecoder

MAX_LINE = 1000


@dataclass(frozen=True)
class Connection:
    """``pieces`` come with half a second of silence after each; ``header``: of the last of ``messages``."""

    reference: str
    pieces: Sequence[bytes]
    messages: Sequence[bytes]
    header: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Datagram:
    """The message is what was sent; ``header``: all that it says besides facility and severity."""

    reference: str
    sent: bytes
    header: dict[str, str]
    received: str = "2026-11-22T10:00:00+00:00"
    zone: str = "UTC"


def counted(*messages: bytes, end: bytes = b"") -> bytes:
    return b"".join(b"%d %b%b" % (len(message), message, end) for message in messages)


FIRST, SECOND = b"<13>Oct 11 22:14:15 h app: first", b"<13>Oct 11 22:14:16 h app: second"
HELLO = b"<6>Sep 10 00:00:00 localhost logger: hello!"
BLANK_AT_END = b"<13>1 2024-02-28T03:32:00.313226+00:00 192.0.2.1 inactive - - -  partition is p2 "
WITH_SEQUENCE = b'<139>1 2017-08-30T14:09:39+00:00 host app 34 - [meta sequenceId="1"] [autoindex:error] Some message'
TRACEBACK = b"<11>Oct 11 22:14:15 h app: error\n  File x\nValueError: y"
CEF = [b"2019-02-19T12:02:5%d.464+01:00 192.0.2.94 CEF:0|Vendor| src=192.0.2.%d" % (i, i) for i in range(4)]

CONNECTIONS = [
    Connection("rsyslog/rsyslog#3484", [b"\n".join([*CEF, b""])], CEF, {"hostname": "192.0.2.94"}),
    Connection(
        "rsyslog/rsyslog#3484 (numbers)",
        [b"%b\n12 disks are degraded:\n%b\n" % (FIRST, SECOND)],
        [FIRST, b"12 disks are degraded:", SECOND],
    ),
    Connection(
        "DataDog/datadog-agent#54492",
        [FIRST + b"\n", b"404 not found\n", SECOND + b"\n"],
        [FIRST, b"404 not found", SECOND],
    ),
    Connection("serioussam/syslogappender#2", [counted(FIRST, SECOND, end=b"\r\n")], [FIRST, SECOND]),
    Connection(
        "rsyslog/rsyslog#5128",
        [b"%b\n2026/10/11 GET\n10.0.0.1 GET\n%b\n" % (FIRST, SECOND)],
        [FIRST, b"2026/10/11 GET", b"10.0.0.1 GET", SECOND],
    ),
    Connection("rsyslog/rsyslog#1165", [counted(TRACEBACK, TRACEBACK)], [TRACEBACK, TRACEBACK], {"app_name": "app"}),
    Connection("rsyslog/rsyslog#5078", [counted(FIRST, FIRST, FIRST + b"x" * 2000, SECOND)], [FIRST, FIRST, SECOND]),
    Connection("rsyslog/rsyslog#3638", [FIRST + b"x" * 2000 + b"\n" + SECOND + b"\n"], [SECOND]),
    Connection("rsyslog/rsyslog#7603", [b"<13>test" + b"x" * 192 + b"\n"], [b"<13>test" + b"x" * 192]),
    Connection("rsyslog/rsyslog#3125", [FIRST + b"\n" + SECOND + b"\n"], [FIRST, SECOND], {"app_name": "app"}),
    Connection(
        "open-telemetry/opentelemetry-collector-contrib#31477",
        [counted(BLANK_AT_END)],
        [BLANK_AT_END],
        {"hostname": "192.0.2.1", "app_name": "inactive"},
    ),
    Connection(
        "open-telemetry/opentelemetry-collector-contrib#12485", [counted(FIRST), counted(SECOND)], [FIRST, SECOND]
    ),
    Connection("fluent/fluentd#2298", [counted(FIRST) + b"3", b"3 " + SECOND[:9], SECOND[9:]], [FIRST, SECOND]),
    Connection("fluent/fluentd#2771", [counted(HELLO, HELLO)], [HELLO, HELLO], {"app_name": "logger"}),
    Connection("fluent/fluentd#2982", [b"44 " + HELLO + b"\n" + b"44 " + HELLO + b"\n"], [HELLO, HELLO]),
    Connection("fluent/fluentd#1679", [counted(WITH_SEQUENCE, end=b"\n")], [WITH_SEQUENCE], {"meta.sequenceId": "1"}),
    Connection("fluent/fluentd#2767", [counted(TRACEBACK + b"\n", FIRST)], [TRACEBACK, FIRST]),
    Connection("fluent/fluentd#1270", [FIRST + b"\0" + SECOND + b"\0"], [FIRST, SECOND]),
    Connection("fluent/fluent-bit#10910", [counted(HELLO, TRACEBACK, HELLO)], [HELLO, TRACEBACK, HELLO]),
    Connection(
        "Graylog2/graylog2-server#2374", [b"<34>Oct 11 22:14:15 h su: failed\n"], [b"<34>Oct 11 22:14:15 h su: failed"]
    ),
]


def fields(*texts: str) -> dict[str, str]:
    """Return timestamp, host, app and process, each if a text is present."""
    names = ("timestamp", "hostname", "app_name", "proc_id")
    return {name: text for name, text in zip(names, texts, strict=False) if text}


SD = b"<165>1 2003-10-11T22:14:15.003Z h evntslog - ID47 "
SD_HEADER = fields("2003-10-11T22:14:15.003Z", "h", "evntslog") | {"msg_id": "ID47"}
IOS = "%SYS-5-CONFIG_I"

DATAGRAMS = [
    Datagram("Graylog2/graylog2-server#12546", b"<134>1 1650972789.426960608 device urls src=10.10.10.1:53347 x", {}),
    Datagram("fluent/fluentd#4113", b"<134>1 1650972789.426960608 MX flows src=10.10.10.1 dst=10.10.10.2", {}),
    Datagram("Graylog2/graylog2-server#4631", b"<189>82: 00:20:10: %SYS-5-CONFIG_I: by x", fields("", "", IOS)),
    Datagram(
        "Graylog2/graylog2-server#4631 (zone)",
        b"<189>93: *Feb 28 2010 00:20:10.663 UTC: %SYS-5-CONFIG_I: by x",
        fields("2010-02-28T00:20:10.663000Z", "", IOS),
    ),
    Datagram(
        "Graylog2/graylog2-server#1031",
        b"<187>23063: sw2: Mar 4 2015 07:03:58.336 UTC: %LINK-3-UPDOWN: Interface",
        fields("2015-03-04T07:03:58.336000Z", "sw2", "%LINK-3-UPDOWN"),
    ),
    Datagram(
        "Graylog2/graylog2-server#3091",
        b"<13>Nov 22 11:00:00 h tomcat: x",
        fields("2026-11-22T10:00:00Z", "h", "tomcat"),
        zone="Europe/Berlin",
    ),
    Datagram(
        "Graylog2/graylog2-server#21472",
        b"<13>Dec 31 20:00:00 h app: x",
        fields("2025-01-01T01:00:00Z", "h", "app"),
        "2025-01-01T01:00:02+00:00",
        "America/New_York",
    ),
    Datagram(
        "troglobit/sysklogd#92",
        b"<13>Oct 25 02:30:00 h a: x",
        fields("2026-10-25T00:30:00Z", "h", "a"),
        "2026-10-25T00:30:01+00:00",
        "Europe/Berlin",
    ),
    Datagram(
        "mcuadros/go-syslog#37",
        b"<13>Oct 25 02:30:00 h a: x",
        fields("2026-10-25T01:30:00Z", "h", "a"),
        "2026-10-25T01:30:01+00:00",
        "Europe/Berlin",
    ),
    Datagram(
        "rsyslog/rsyslog#4765",
        b"<13>Dec 31 23:59:59 h a: x",
        fields("2021-12-31T23:59:59Z", "h", "a"),
        "2022-01-01T00:00:01+00:00",
    ),
    Datagram(
        "rsyslog/rsyslog#4765 (ahead)",
        b"<13>Jan 01 00:00:00 h a: x",
        fields("2022-01-01T00:00:00Z", "h", "a"),
        "2021-12-31T23:59:58+00:00",
    ),
    Datagram(
        "troglobit/sysklogd#43",
        b"<13>Jan 19 03:14:08 h a: x",
        fields("2038-01-19T03:14:08Z", "h", "a"),
        "2038-01-19T03:14:10+00:00",
    ),
    Datagram(
        "vectordotdev/vector#9928",
        b"<190>Nov  5 14:01:20 10.1.186.49 87117903: 87117909: Nov  5 14:01:19.115: %FMANFP-6-IPACCESSLOGP: F0",
        fields("2026-11-05T14:01:20Z", "10.1.186.49", "%FMANFP-6-IPACCESSLOGP"),
    ),
    Datagram(
        "vectordotdev/vector#7796",
        b"<13>Jun 08 09:32:33 h apache: [x] text",
        fields("2026-06-08T09:32:33Z", "h", "apache"),
    ),
    Datagram(
        "vectordotdev/vector#5441",
        b"Dec 8 16:48:11 node-01 auditd[38707]: Audit daemon",
        fields("2026-12-08T16:48:11Z", "node-01", "auditd", "38707"),
    ),
    Datagram(
        "vectordotdev/vector#12013",
        b'<150>1 2022-03-29T18:04:30.415522+02:00 h x: [2022-03-29T18:04:30.415+0200] a - - - "CONNECT"',
        {
            "timestamp": "2022-03-29T18:04:30.415522+02:00",
            "hostname": "h",
            "app_name": "x:",
            "proc_id": "[2022-03-29T18:04:30.415+0200]",
            "msg_id": "a",
        },
    ),
    Datagram(
        "vectordotdev/vector#20886",
        b"Jul 19 11:08:59 _gateway date=2024-07-19 time=11:05:36 devname=FG",
        fields("2026-07-19T11:08:59Z", "_gateway"),
    ),
    Datagram("vectordotdev/vector#9824", SD + rb'[x@1 k="a\"b\\c\]d"] text', SD_HEADER | {"x@1.k": 'a"b\\c]d'}),
    Datagram(
        "vectordotdev/vector#14523",
        SD + rb'[x@1 k="\"Hello\" \A/World"] text',
        SD_HEADER | {"x@1.k": '"Hello" \\A/World'},
    ),
    Datagram(
        "elastic/beats#40445",
        SD + rb'[x@1 k="[value\] more"][y@1 c="high"] text',
        SD_HEADER | {"x@1.k": "[value] more", "y@1.c": "high"},
    ),
    Datagram(
        "elastic/beats#43944",
        SD + rb'[x@1 k="workgroup\\user"][meta sequenceId="10"] text',
        SD_HEADER | {"x@1.k": "workgroup\\user", "meta.sequenceId": "10"},
    ),
    Datagram("elastic/beats#49594", SD + rb'[x@1 a="1" b="1\\2"] text', SD_HEADER | {"x@1.a": "1", "x@1.b": "1\\2"}),
    Datagram("solzimer/nsyslog-parser#12", SD + rb'[c q="\""]', SD_HEADER | {"c.q": '"'}),
    Datagram(
        "rsyslog/rsyslog#1826",
        SD + rb'[mdc@18060 message="[1,2,3\],[1,2]" priority="INFO"]',
        SD_HEADER | {"mdc@18060.message": "[1,2,3],[1,2]", "mdc@18060.priority": "INFO"},
    ),
    Datagram(
        "open-telemetry/opentelemetry-collector-contrib#27871",
        b'<189>date=2023-10-11 time=15:44:14 devname="FG" srcip=192.0.2.16',
        {},
    ),
    Datagram(
        "open-telemetry/opentelemetry-collector-contrib#33344",
        b"<188>Oct  3 2024 13:19:33 Huawei WLAN/4/ONLINE_NOTIFY:OID 1.3.6",
        fields("2024-10-03T13:19:33Z", "Huawei", "WLAN/4/ONLINE_NOTIFY"),
    ),
    Datagram(
        "open-telemetry/opentelemetry-collector-contrib#47765",
        b"Apr 20 13:14:15 MacBook-Pro syslogd[123]: Notice",
        fields("2026-04-20T13:14:15Z", "MacBook-Pro", "syslogd", "123"),
        "2026-04-20T13:14:16+00:00",
    ),
    Datagram(
        "open-telemetry/opentelemetry-collector-contrib#12485 (udp)",
        b'<30>device_name="SFW" timestamp="2022-07-15T10:03:08+0200"',
        {},
    ),
    Datagram(
        "fluent/fluent-bit#2967",
        b"<14>1 2021-01-25T13:07:42+00:00 h php - - - x",
        fields("2021-01-25T13:07:42+00:00", "h", "php"),
    ),
    Datagram(
        "fluent/fluent-bit#1387",
        b"<14>Jun 14 18:35:42 HOST 2019-06-14 18:35:42,144 INFO  [a.b.C] x",
        fields("2026-06-14T18:35:42Z", "HOST"),
    ),
    Datagram(
        "fluent/fluentd#4158",
        b"<14> Apr 25 16:43:29 SW1-1 General[procLOG]: main.c(257) x",
        fields("2027-04-25T16:43:29Z", "SW1-1", "General", "procLOG"),
    ),
    Datagram("fluent/fluentd#2877", b"<13>Oct 11 22:14:15 h app: a>1 b", fields("2026-10-11T22:14:15Z", "h", "app")),
    Datagram(
        "splunk/splunk-connect-for-syslog#571",
        b"<166>Jul 22 2020 13:17:43 fw1  %FTD-1-430003: DeviceUUID: 0",
        fields("2020-07-22T13:17:43Z", "fw1", "%FTD-1-430003"),
    ),
    Datagram(
        "splunk/splunk-connect-for-syslog#571 (RFC 5424)",
        b"<166>2018-06-27T12:17:46Z firepower : %FTD-6-110002: Failed",
        fields("2018-06-27T12:17:46Z", "firepower", "%FTD-6-110002"),
    ),
    Datagram(
        "splunk/splunk-connect-for-syslog#660",
        b"<30>Aug 24 2020 08:52:00 ace1 : %ACE-6-302026: Built",
        fields("2020-08-24T08:52:00Z", "ace1", "%ACE-6-302026"),
    ),
    Datagram(
        "splunk/splunk-connect-for-syslog#1819",
        b'<12>Sep 20 00:23:01 name_here@AZ01 Mnsvc_unique[13255]:  "x"',
        fields("2026-09-20T00:23:01Z", "name_here@AZ01", "Mnsvc_unique", "13255"),
    ),
    Datagram(
        "splunk/splunk-connect-for-syslog#2180",
        b"<135>2023-09-27 06:04:24,445 10.1.2.3 CPPM_System_Event 6 1 0 x",
        fields("2023-09-27T06:04:24.445000Z", "10.1.2.3"),
    ),
    Datagram(
        "splunk/splunk-connect-for-syslog#2737",
        b"<14>Apr 17 10:45:25 IB-a1: IB-a1: 00000068.01eeebaf 05331d56 Thu Apr 17 2025",
        fields("2025-04-17T10:45:25Z", "IB-a1"),
        "2025-04-17T10:45:26+00:00",
    ),
    Datagram(
        "splunk/splunk-connect-for-syslog#1811",
        b"<86>Original Address=192.0.2.1 Sep  6 10:32:40 host sshd[13721]: x",
        {},
    ),
    Datagram(
        "splunk/splunk-connect-for-syslog#2372",
        b'<182>1 2024-03-18T16:54:33.000+01:00 h tvcs - - [meta sequenceId="1447"] 2024-03-18T16:54:33.209 tvcs: x',
        fields("2024-03-18T16:54:33.000+01:00", "h", "tvcs") | {"meta.sequenceId": "1447"},
    ),
    Datagram(
        "syslog-ng/syslog-ng#3214",
        b"<12>Mar 31 22:50:49 pa.example.net 1,2020/03/31 22:50:49,unknown",
        fields("2020-03-31T22:50:49Z", "pa.example.net"),
        "2020-03-31T22:50:50+00:00",
    ),
    Datagram(
        "syslog-ng/syslog-ng#3535",
        b"<132>Jan 20 21:10:46 bigip5g warning tmm1[12512]: 01260013:4: x",
        fields("2027-01-20T21:10:46Z", "bigip5g"),
    ),
    Datagram(
        "syslog-ng/syslog-ng#3510",
        b"<189>115611: Dec  7 19:18:27.959 PST: %SYS-5-CONFIG_I: by x",
        fields("2026-12-07T19:18:27.959000Z", "", IOS),
    ),
    Datagram(
        "syslog-ng/syslog-ng#2931",
        b"<181> Sep 8 18:11:57 ISE-1 CISE_Failed_Attempts 000231543 1 0 x",
        fields("2026-09-08T18:11:57Z", "ISE-1"),
    ),
    Datagram(
        "syslog-ng/syslog-ng#4125",
        b"<188>%2SWPORT-W-LOCKPORTACTIVE: A packet",
        fields("", "", "%2SWPORT-W-LOCKPORTACTIVE"),
    ),
    Datagram(
        "syslog-ng/syslog-ng#1873",
        b"<78>Feb  5 16:30:01 host.loc CROND[48969] (root) CMD (x)",
        fields("2027-02-05T16:30:01Z", "host.loc", "CROND", "48969"),
    ),
    Datagram(
        "syslog-ng/syslog-ng#5008",
        b"<34>1 2003-10-11T22:14:15.003Z h su - 47 - 'su root' failed",
        fields("2003-10-11T22:14:15.003Z", "h", "su") | {"msg_id": "47"},
    ),
    Datagram(
        "ossec/ossec-hids#1794",
        b"<30>2019:11:06-00:08:03 utm httpd[5]: x",
        fields("2019-11-06T00:08:03Z", "utm", "httpd", "5"),
    ),
    Datagram("jeromer/syslogparser#23", b"<14>MiniSwitch 7483c04f9d75,USW_FLEX_MINI-1.8.6.694: NETDEV: x", {}),
    Datagram(
        "mingrammer/flog#60",
        b"<34>3 2026-10-11T22:14:15Z h app 1 ID47 - x",
        fields("2026-10-11T22:14:15Z", "h", "app", "1") | {"msg_id": "ID47"},
    ),
    Datagram(
        "awslabs/flowgger#61", SD + b'[a@1 i="3"][b@1 c="high"] hello', SD_HEADER | {"a@1.i": "3", "b@1.c": "high"}
    ),
]


def decoder_at(received: str, zone: str) -> SyslogDecoder:
    return SyslogDecoder(ZoneInfo(zone), datetime.fromisoformat(received).timestamp)


def header_of(annotations: list[tuple[str, str]]) -> dict[str, str]:
    return {name: text for name, text in annotations if name not in ("facility", "severity")}


@pytest.mark.parametrize("report", CONNECTIONS, ids=lambda report: report.reference)
def test_connection_gives_the_messages_that_were_sent(report: Connection) -> None:
    splitter, counts, arrays = LineSplitter(MAX_LINE, "auto"), Counts(), []
    for piece in report.pieces:
        for lines in (splitter.feed(piece), splitter.settle()):
            messages, _, of_lines = line_counts(lines, SyslogDecoder().statistics)
            arrays.append(messages)
            counts.absorb(of_lines)
    messages, _, of_lines = line_counts(splitter.finish(), SyslogDecoder().statistics)
    decoded = decoder_at("2026-11-22T10:00:00+00:00", "UTC").decode_lines(pa.concat_arrays([*arrays, messages]))
    counts.absorb(of_lines)
    counts.absorb(decoded.counts)
    assert decoded.body["payload"].to_pylist() == list(report.messages)
    assert header_of(decoded.body["annotations"].to_pylist()[-1]).items() >= report.header.items()
    assert open_books(counts) == []


@pytest.mark.parametrize("report", DATAGRAMS, ids=lambda report: report.reference)
def test_header_of_datagram_is_read(report: Datagram) -> None:
    decoded = decoder_at(report.received, report.zone).decode(Datagrams.from_bytes([report.sent]), 0.0)
    assert decoded.body["payload"].to_pylist() == [report.sent]
    assert header_of(decoded.body["annotations"].to_pylist()[0]) == report.header
