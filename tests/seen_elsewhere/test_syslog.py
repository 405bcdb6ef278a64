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
from penstock.wire.framing.lines import Framing, LineSplitter, separate_commands
from penstock.wire.syslog.codec import SyslogDecoder
from penstock.wire.syslog.columns import syslog_messages

MAX_LINE = 1000


@dataclass(frozen=True)
class Connection:
    """``pieces`` come with half a second of silence after each; ``header``: of the last of ``messages``."""

    reference: str
    pieces: Sequence[bytes]
    messages: Sequence[bytes]
    header: dict[str, str] = field(default_factory=dict)
    framing: Framing = "auto"


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
WITH_MARK = "<54>1 2019-06-26T09:48:06.979058+05:30 h Source_TCP 1 TestRfc5424 - \ufeffThis is 5424 Message".encode()
PHP = b"<133>1 2020-10-29T19:34:48.932381+00:00 i-0c3b php.access.log - - [] GET 200 468.829 ms 81.05% "
JBOSS = b"<14>1 2018-10-19T12:30:47.614468+00:00 7d551d68 default/pod/wildfly-54bf-jxbgl/wildfly - - -   JBoss"
HEROKU = b"<40>1 2012-11-30T06:45:29+00:00 host app web.3 - "
CEF = [b"2019-02-19T12:02:5%d.464+01:00 192.0.2.94 CEF:0|Vendor| src=192.0.2.%d" % (i, i) for i in range(4)]

OVERLONG = FIRST + b" at x\n" * 300
FORGED = b"\n" + counted(b"<86>Oct 11 22:14:17 h sshd: Accepted password for root") + b"\n"

CISE = b"<189>Jul 27 11:49:31 host CISE_Failed_Attempts 1 4 3  MS-CHAP-Error=\0E=691 R=0; }"
PROXY_V1 = b"PROXY TCP4 10.10.10.14 10.10.10.236 20000 4514\r\n"
PROXY_V2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes((10, 10, 10, 14, 10, 10, 10, 36, 78, 32, 17, 56))

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
    Connection(
        "fluent/fluent-bit#240 (logger of CentOS 6 ends with NUL, that of Ubuntu with LF)",
        [b"<5>Apr 26 14:14:32 app: one\0<13>Apr 26 12:16:29 app: two\0"],
        [b"<5>Apr 26 14:14:32 app: one", b"<13>Apr 26 12:16:29 app: two"],
        {"app_name": "app"},
    ),
    Connection("fluent/fluentd#2771", [counted(HELLO, HELLO)], [HELLO, HELLO], {"app_name": "logger"}),
    Connection("fluent/fluentd#2982", [b"44 " + HELLO + b"\n" + b"44 " + HELLO + b"\n"], [HELLO, HELLO]),
    Connection("fluent/fluentd#1679", [counted(WITH_SEQUENCE, end=b"\n")], [WITH_SEQUENCE], {"meta.sequenceId": "1"}),
    Connection("fluent/fluentd#2767", [counted(TRACEBACK + b"\n", FIRST)], [TRACEBACK, FIRST]),
    Connection("fluent/fluentd#1270", [FIRST + b"\0" + SECOND + b"\0"], [FIRST, SECOND]),
    Connection("fluent/fluent-bit#10910", [counted(HELLO, TRACEBACK, HELLO)], [HELLO, TRACEBACK, HELLO]),
    Connection(
        "VictoriaMetrics/VictoriaLogs#1365 (a line break in a message goes no further than its message)",
        [b"<78>Apr 29 17:43:00 h /usr/sbin/cron[38414]: (nobody) MAIL (got status 0x0001\n)\n", SECOND + b"\n"],
        [b"<78>Apr 29 17:43:00 h /usr/sbin/cron[38414]: (nobody) MAIL (got status 0x0001", b")", SECOND],
        {"app_name": "app"},
    ),
    Connection(
        "emertechie/SyslogNet#34 (the byte order mark is counted)",
        [counted(WITH_MARK, WITH_MARK)],
        [WITH_MARK, WITH_MARK],
        {"app_name": "Source_TCP", "msg_id": "TestRfc5424"},
    ),
    Connection(
        "syslog-ng/syslog-ng#2960 (the letters BOM, and a counted LF)",
        [counted(b"<187>1 2019-10-04T14:05:50.112Z - - - - - BOM%SYS-3-LOGGINGHOST_FAIL: failed \n", FIRST)],
        [b"<187>1 2019-10-04T14:05:50.112Z - - - - - BOM%SYS-3-LOGGINGHOST_FAIL: failed ", FIRST],
    ),
    Connection(
        "Aiven-Open/journalpump#193 (a count beyond its cut message takes bytes of the next; then counts are right)",
        [counted(FIRST, SECOND) + b"70 " + FIRST + b"\n" + counted(SECOND, FIRST, SECOND)],
        [FIRST, SECOND, FIRST + b"\n33 " + SECOND + b"3", b"2 " + FIRST, SECOND],
    ),
    Connection(
        "fluent/fluent-bit#2741 (a NUL in front of the LF)",
        [PHP + b"bad\0\n" + PHP + b"good\n"],
        [PHP + b"bad", PHP + b"good"],
    ),
    Connection(
        "fluent/fluent-bit#10437 (a NUL in a counted message)",
        [counted(FIRST + b"\0 more", SECOND)],
        [FIRST + b"\0 more", SECOND],
    ),
    Connection(
        "rsyslog/rsyslog#4281 (a message of the limit, and one whose LF is the byte behind it)",
        [b"<13>" + b"x" * 996 + b"\n<13>" + b"x" * 997 + b"\n" + SECOND + b"\n"],
        [b"<13>" + b"x" * 996, SECOND],
    ),
    Connection(
        "IonxSolutions/serilog-sinks-syslog#43, pivotal-cf/fluent-bit-out-syslog#19 (the count is read as text)",
        [counted(JBOSS, JBOSS)],
        [JBOSS, JBOSS],
        {"app_name": "default/pod/wildfly-54bf-jxbgl/wildfly"},
    ),
    Connection(
        "heroku/logplex#204 (without structured data)",
        [counted(HEROKU + b"State changed\n", HEROKU + b"Starting process with command `x`\n")],
        [HEROKU + b"State changed", HEROKU + b"Starting process with command `x`"],
        {"hostname": "host", "app_name": "app", "proc_id": "web.3"},
    ),
    Connection(
        "syslog-ng/syslog-ng#4388 (counts behind the header of a proxy, version 1)",
        [PROXY_V1 + counted(FIRST, SECOND)],
        [PROXY_V1[:-2], FIRST, SECOND],
    ),
    Connection(
        "syslog-ng/syslog-ng#4211 (counts behind the header of a proxy, version 2, in pieces)",
        [PROXY_V2[:3], PROXY_V2[3:15], PROXY_V2[15:] + counted(FIRST)[:9], counted(FIRST)[9:] + counted(SECOND)],
        [PROXY_V2, FIRST, SECOND],
    ),
    Connection(
        "syslog-ng/syslog-ng#4211 (lines behind the header of a proxy, version 2)",
        [PROXY_V2 + FIRST + b"\n" + SECOND + b"\n"],
        [PROXY_V2, FIRST, SECOND],
    ),
    Connection(
        "syslog-ng/syslog-ng#4211 (a setting says what ends the lines behind the header of a proxy)",
        [PROXY_V2[:5], PROXY_V2[5:] + FIRST + b"\n" + SECOND + b"\n"],
        [PROXY_V2, FIRST, SECOND],
        framing="lf",
    ),
    Connection(
        "syslog-ng/syslog-ng#4388 (NULs behind the header of a proxy, version 1)",
        [PROXY_V1[:-1], PROXY_V1[-1:] + FIRST + b"\0" + TRACEBACK + b"\0"],
        [PROXY_V1[:-2], FIRST, TRACEBACK],
        framing="nul",
    ),
    Connection(
        "syslog-ng/syslog-ng#4211 (NULs behind the header of a proxy, version 2)",
        [PROXY_V2 + FIRST + b"\0" + TRACEBACK + b"\0"],
        [PROXY_V2, FIRST, TRACEBACK],
        framing="nul",
    ),
    Connection(
        "rsyslog/rsyslog#5078 (an empty message states the length 0)",
        [counted(FIRST) + b"0 " + counted(SECOND), b"0 ", b"0 33 " + SECOND + b"0 errors\n"],
        [FIRST, SECOND, SECOND, b"0 errors"],
    ),
    Connection(
        "rsyslog/rsyslog#5078 (an empty message first)", [b"0 " + counted(FIRST, TRACEBACK)], [FIRST, TRACEBACK]
    ),
    Connection(
        "rsyslog/rsyslog#5078 (an empty message, and no PRI)",
        [b"3 one0 3 two"],
        [b"one", b"two"],
        framing="octet",
    ),
    Connection(
        "vectordotdev/vector#4895 (a length that ends inside the PRI; it was an endless loop)",
        [b"1 <23>4\n1 <23>4\n", b"1 <23>5\n"],
        [b"1 <23>4", b"1 <23>4", b"1 <23>5"],
    ),
    Connection(
        "vectordotdev/vector#3279 (lines that begin with a number)",
        [b"2020-07-13,15:20:17,asdl\n2020-07-13,15:20:18,adfk\n"],
        [b"2020-07-13,15:20:17,asdl", b"2020-07-13,15:20:18,adfk"],
    ),
    Connection(
        "vectordotdev/vector#4852 (a number without a blank in front of the PRI)",
        [b"5" + FIRST + b"\n6" + SECOND + b"\n"],
        [b"5" + FIRST, b"6" + SECOND],
    ),
    Connection(
        "wazuh/wazuh#4272 (several messages in one packet, and one over two)",
        [FIRST + b"\n" + SECOND + b"\n" + FIRST[:9], FIRST[9:] + b"\n" + SECOND + b"\n"],
        [FIRST, SECOND, FIRST, SECOND],
    ),
    Connection(
        "fluent/fluentd#1270 (a NUL in front of the first count)",
        [b"\0" + counted(FIRST, TRACEBACK)],
        [FIRST, TRACEBACK],
    ),
    Connection(
        "syslog-ng/syslog-ng#4388 (an unknown sender; text that only looks like a header is text)",
        [b"PROXY UNKNOWN\r\n" + counted(FIRST) + counted(b"<13>PROXY TCP4 is up")],
        [b"PROXY UNKNOWN", FIRST, b"<13>PROXY TCP4 is up"],
    ),
    Connection(
        "syslog-ng/syslog-ng#5167 (counts and lines at one port; .NET writes a byte order mark before the first count)",
        [b"\xef", b"\xbb\xbf" + counted(FIRST, SECOND)],
        [FIRST, SECOND],
    ),
    Connection(
        "hat-open/hat-syslog#4 (lines and no counts, with a byte order mark)",
        [b"\xef\xbb\xbf" + FIRST + b"\n" + SECOND + b"\n"],
        [b"\xef\xbb\xbf" + FIRST, SECOND],
    ),
    Connection(
        "elastic/beats#23663, logstash-plugins/logstash-input-syslog#83, Velocidex/velociraptor#4638",
        [counted(BLANK_AT_END, TRACEBACK, SECOND)],
        [BLANK_AT_END, TRACEBACK, SECOND],
    ),
    Connection(
        "syslog-ng/syslog-ng#881 (the first message is too long: the next ones were lost with it)",
        [counted(OVERLONG.replace(b"\n", b" "), SECOND, TRACEBACK, FIRST)],
        [SECOND, TRACEBACK, FIRST],
    ),
    Connection(
        "vectordotdev/vector#26439 (short, long, short: each comes alone)",
        [counted(FIRST), counted(OVERLONG)[:900], counted(OVERLONG)[900:], counted(TRACEBACK), counted(SECOND)],
        [FIRST, TRACEBACK, SECOND],
    ),
    Connection(
        "DataDog/datadog-agent#49742 (text in a message that is too long looks like messages)",
        [counted(FIRST, SECOND, OVERLONG + FORGED + b"x" * 99, SECOND, OVERLONG + FORGED[:-9], TRACEBACK)],
        [FIRST, SECOND, SECOND, TRACEBACK],
    ),
    Connection(
        "open-telemetry/opentelemetry-collector-contrib#45217 (a length that is shorter than its message)",
        [counted(FIRST, SECOND) + b"31 " + FIRST + counted(SECOND)],
        [FIRST, SECOND, FIRST[:31], FIRST[31:], SECOND],
    ),
    Connection(
        "Graylog2/graylog2-server#15231 (text without a PRI that ends with NUL: all messages became one)",
        [b"CEF:0|a|1|\0CEF:0|b|2|\0", b"CEF:0|c|3|\0CEF:0|d|4|\0"],
        [b"CEF:0|a|1|", b"CEF:0|b|2|", b"CEF:0|c|3|", b"CEF:0|d|4|"],
    ),
    Connection(
        "Graylog2/graylog2-server#15231 (without a pause)",
        [b"CEF:0|a|%b\0" % (b"x" * 600) * 60],
        [b"CEF:0|a|" + b"x" * 600] * 60,
    ),
    Connection(
        "Graylog2/graylog2-server#15231 (a NUL within lines of text)",
        [b"CEF:0|a\0b|\n", b"CEF:0|c\0d", b"|\nCEF:0|e|\n"],
        [b"CEF:0|a\0b|", b"CEF:0|c\0d|", b"CEF:0|e|"],
    ),
    Connection("its kind: NUL within text, and a pause", [b"one\0", b"two\0th", b"ree\0"], [b"one", b"two", b"three"]),
    Connection("its kind: NUL within the only line", [b"one\0tw", b"o\nthree\n"], [b"one\0two", b"three"]),
    Connection(
        "syslog-ng/syslog-ng#3733, #3755 (a NUL in a line behind the header of a proxy)",
        [PROXY_V1 + CISE + b"\n" + CISE + b"\n"],
        [PROXY_V1[:-2], CISE, CISE],
    ),
    Connection(
        "rsyslog/rsyslog#237 (a setting says that numbers are no lengths)",
        [counted(FIRST, end=b"\n") + SECOND + b"\n"],
        [counted(FIRST), SECOND],
        framing="lf",
    ),
    Connection(
        "rsyslog/rsyslog#1522 (lengths beyond integers)",
        [b"99999999999999999999 %b\n2147483648 %b\n" % (FIRST, SECOND)],
        [b"99999999999999999999 " + FIRST, b"2147483648 " + SECOND],
    ),
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
        "rsyslog/rsyslog#3069 (a counter and a sequence number)",
        b"<190>421370: 421366: Nov 23 22:23:27: %SYS-5-CONFIG_I: x",
        fields("2026-11-23T22:23:27Z", "", IOS),
    ),
    Datagram(
        "rsyslog/rsyslog#3069 (an operator's zone)",
        b"<189>7662: Nov 23 22:23:27.921 NewYork: %SYS-5-CONFIG_I: x",
        fields("2026-11-23T22:23:27.921000Z", "", IOS),
    ),
    Datagram(
        "rsyslog/rsyslog#3069 (an origin, and an operator's zone)",
        b"<188>179767: fakhost: Nov 23 22:23:27.833 NewYork: %SYS-5-CONFIG_I: x",
        fields("2026-11-23T22:23:27.833000Z", "fakhost", IOS),
    ),
    *(
        Datagram(
            f"rsyslog/rsyslog#3069 (the origin {origin})",
            f"<188>179767: {origin}: 12: *Nov 23 22:23:27 UTC: %SYS-5-CONFIG_I: x".encode(),
            fields("2026-11-23T22:23:27Z", origin, IOS),
        )
        for origin in ("192.0.2.1", "sw1.example.net", "3850-a")
    ),
    Datagram(
        "elastic/integrations#2607 (counter, origin, sequence number and uptime)",
        b"<165>7433: ASR920: 007439: 2y10w: %SYS-5-CONFIG_I: x",
        fields("", "ASR920", IOS),
    ),
    Datagram(
        "elastic/integrations#2607 (by way of a relay)",
        b"<165>Nov 23 22:23:27 192.0.2.1 7433: ASR920: 007439: *Nov 23 22:23:27.3: %SYS-5-CONFIG_I: x",
        fields("2026-11-23T22:23:27Z", "192.0.2.1", IOS),
    ),
    Datagram(
        "splunk/splunk-connect-for-syslog#1340 (a host in front of the node)",
        b"5007736: router-r01 RP/0/RSP1/CPU0:2021 Nov 17 17:54:44.971 MST: SSHD_[65651]: %SECURITY-SSHD-6-INFO : x",
        fields("2021-11-18T00:54:44.971000Z", "router-r01", "%SECURITY-SSHD-6-INFO", "65651"),
    ),
    Datagram(
        "napalm-automation/napalm-logs#78",
        b"<149>12345678: edge01.aaa01 RP/0/RSP1/CPU0:Nov 23 15:08:30.941 UTC: bgp[1051]: %ROUTING-BGP-5-MAXPFX : x",
        fields("2026-11-23T15:08:30.941000Z", "edge01.aaa01", "%ROUTING-BGP-5-MAXPFX", "1051"),
    ),
    *(
        Datagram(
            f"splunk/splunk-connect-for-syslog, tests of CyberArk and LEEF (no field behind the host: {text[:9]}{end})",
            f"<134>1 2026-10-11T22:14:15Z h1 {text}".encode(),
            fields("2026-10-11T22:14:15Z", "h1"),
        )
        for end, text in (
            ("", 'CEF:0|Cyber-Ark|Vault|9.20|7|Logon|5|act="Logon" suser=PasswordManager fname= dvc= x'),
            ("", "LEEF:2.0|Vendor|Product|Version|EventID|^|src=192.0.2.0^dst=172.50.123.1"),
            (", a hyphen where structured data would be", "LEEF:1.0|Palo Alto Networks - x"),
        )
    ),
    Datagram(
        "splunk/splunk-connect-for-syslog, test of Prisma SD-WAN (a tag with a colon behind RFC 5424's time)",
        b'<134>1 2026-10-11T22:14:15Z h1 log: ION_HOST="ion7k" DEVICE_TIME="2018-02-14T10:44:58.881Z" MSG="sshd-login"',
        fields("2026-10-11T22:14:15Z", "h1", "log"),
    ),
    Datagram(
        "splunk/splunk-connect-for-syslog, test of Prisma SD-WAN (its kind, with a process)",
        b"<134>1 2026-10-11T22:14:15Z h1 sshd[12]: text",
        fields("2026-10-11T22:14:15Z", "h1", "sshd", "12"),
    ),
    Datagram(
        "splunk/splunk-connect-for-syslog, test of Cisco UCS Manager (a blank behind the zone)",
        b"<134>: 2026 Oct 11 22:14:15 CEST : %UCSM-6-AUDIT: [session][internal]",
        fields("2026-10-11T20:14:15Z", "", "%UCSM-6-AUDIT"),
    ),
    *(
        Datagram(
            f"splunk/splunk-connect-for-syslog, tests of F5 and Stealthbits (fields are no host: {text[:20]})",
            f"<134>Oct 11 22:14:15 {text}".encode(),
            fields("2026-10-11T22:14:15Z"),
        )
        for text in (
            "h1,f5_irule=Splunk-iRule-HTTP,http_host=test.url.com:80,x",
            "h1,f5_irule=Splunk-iRule-DNS,question=a b",
            "NumberOfLogins=15801 UsedLoginProtocols=NTLM x: y",
        )
    ),
    *(
        Datagram(
            f"splunk/splunk-connect-for-syslog, test of UniFi ({host})",
            f"<30>Oct 11 22:14:15 {host}: logread[5495]: Logread connected".encode(),
            fields("2026-10-11T22:14:15Z", host, "logread", "5495"),
        )
        for host in ("U7PG2,788a2056b182,v4.0.66.10832", "788a2056b183,v4.0.66.10832")
    ),
    *(
        Datagram(
            f"rsyslog/rsyslog, test of Cisco IOS (the zone in small letters, at a listener in {zone})",
            b"<14>123456789: HOSTNAME: May 21 12:00:01.123 gmt: %IOSXE-6-PLATFORM: F0: cpp_cp: QFP:0.0 Thread:105",
            fields("2026-05-21T12:00:01.123000Z", "HOSTNAME", "%IOSXE-6-PLATFORM"),
            "2026-05-21T12:00:02+00:00",
            zone,
        )
        for zone in ("UTC", "Asia/Tokyo")
    ),
    Datagram(
        "rsyslog/rsyslog#5098, #1789 (neither time nor host: no word of the text is one)",
        b"<38>User logged into the appliance. User: admin.",
        {},
    ),
    Datagram(
        "wazuh/wazuh#438 (RFC 3164, example 4 of section 5.4)",
        b"1990 Oct 22 10:52:01 scapegoat.dmz.example.org sched[0]: That's All Folks!",
        {
            "timestamp": "1990-10-22T10:52:01Z",
            "hostname": "scapegoat.dmz.example.org",
            "app_name": "sched",
            "proc_id": "0",
        },
    ),
    Datagram(
        "vectordotdev/vector#21353, vectordotdev/vrl#1471 (no time)",
        b"<7>1 - foo bar - - - message",
        fields("", "foo", "bar"),
    ),
    Datagram(
        "vectordotdev/vector#19042 (an IPv4 address in IPv6)",
        b'<14>1 2023-11-03T08:53:51.391+00:00 ::ffff:10.32.10.116 stdout - - [meta sequenceId="1"] {"kind":"Event"}',
        fields("2023-11-03T08:53:51.391+00:00", "::ffff:10.32.10.116", "stdout") | {"meta.sequenceId": "1"},
    ),
    Datagram(
        "vectordotdev/vector#26103, StephenWakely/syslog-loose#52 (an address that ends with colons)",
        b"<14>1 2023-11-03T08:53:51.391+00:00 2600:1f14:247e:5804:29e3:: app - - - m",
        fields("2023-11-03T08:53:51.391+00:00", "2600:1f14:247e:5804:29e3::", "app"),
    ),
    Datagram(
        "rsyslog/rsyslog#3012, wazuh/wazuh#13708",
        b"<30>Sep 11 13:56:05 2001:db8:115e:c0b::a:1 named[16548]: edns-disabled: success",
        fields("2026-09-11T13:56:05Z", "2001:db8:115e:c0b::a:1", "named", "16548"),
    ),
    Datagram(
        "syslog-ng/syslog-ng#1617",
        b"<30>Sep 11 13:56:05 fe80:: named: x",
        fields("2026-09-11T13:56:05Z", "fe80::", "named"),
    ),
    Datagram(
        "StephenWakely/syslog-loose#1 (a colon in the program)",
        b"<13>1 2020-05-22T14:59:09.250-03:00 MX204 CONTEUDO:rpd 6589 - - bgp_listen_accept: %DAEMON-4: x",
        fields("2020-05-22T14:59:09.250-03:00", "MX204", "CONTEUDO:rpd", "6589"),
    ),
    Datagram(
        "util-linux/util-linux#159 (a zone without a colon)",
        b"<13>1 2015-03-04T15:02:02.566782+0100 h app - - - x",
        fields("2015-03-04T14:02:02.566782Z", "h", "app"),
    ),
    Datagram(
        "spotify/syslog-redirector#6, luigiberrettini/NLog.Targets.Syslog#35 (more digits than RFC 5424 allows)",
        b"<13>1 2014-12-29T15:02:02.123456789Z h app - - - x",
        fields("2014-12-29T15:02:02.123456789Z", "h", "app"),
    ),
    Datagram("mpihlak/pg_logforward#8 (a date that is none)", b"<134>2017-01-14-14T13:49:17Z host app: text", {}),
    Datagram(
        "influxdata/telegraf#10791 (ESXi without a PRI)",
        b"2022-03-07T09:33:22.936Z esx1 Hostd: verbose hostd[79A7B80] [Originator@6876 sub=x] RecordOp",
        {"timestamp": "2022-03-07T09:33:22.936Z", "hostname": "esx1", "app_name": "Hostd"},
    ),
    Datagram(
        "wazuh/wazuh#30809 (several blanks behind the host)",
        b"<134>2025-07-09T18:39:52.480390+00:00 firewall.example   id=firewall sn=000000000001 pri=6",
        {"timestamp": "2025-07-09T18:39:52.480390+00:00", "hostname": "firewall.example"},
    ),
    Datagram(
        "grafana/alloy#2287 (QNAP)",
        b"<30>Dec 16 00:29:29 NAS qulogd[12945]: conn log: Users: admin",
        {"timestamp": "2026-12-16T00:29:29Z", "hostname": "NAS", "app_name": "qulogd", "proc_id": "12945"},
    ),
    Datagram(
        "a year behind the time is not a host",
        b"<141>Jul 16 15:47:47 2018 10.20.1.1 authmgr[3561]: <522008> x",
        {"timestamp": "2018-07-16T15:47:47Z", "hostname": "10.20.1.1", "app_name": "authmgr", "proc_id": "3561"},
    ),
    Datagram(
        "a host of digits is not a year",
        b"<141>Jul 16 15:47:47 2918 app: x",
        {"timestamp": "2026-07-16T15:47:47Z", "hostname": "2918", "app_name": "app"},
    ),
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
        fields("2026-12-08T03:18:27.959000Z", "", IOS),
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
        "VictoriaMetrics/VictoriaLogs#236 (a blank in front of the bracket, and text that looks like nils)",
        b'<134>1 2024-12-09T18:25:35.401631+00:00 ps999 account-server - - [sd@51059 project="secret" ] 1.2.3.4 - - [x',
        fields("2024-12-09T18:25:35.401631+00:00", "ps999", "account-server") | {"sd@51059.project": "secret"},
    ),
    Datagram(
        "VictoriaMetrics/VictoriaLogs#211 (Synology escapes brackets)",
        rb'<14>1 2025-02-11T12:31:28+01:00 synology Connection - - [synolog@6574 event="User [a\] from [x(x)\]."]'
        b'[meta sequenceId="3"] User [a] from',
        fields("2025-02-11T12:31:28+01:00", "synology", "Connection")
        | {"synolog@6574.event": "User [a] from [x(x)].", "meta.sequenceId": "3"},
    ),
    Datagram(
        "VictoriaMetrics/VictoriaLogs#337",
        b'<10>1 2024-06-18T23:37:20+00:00 sender tester - - [log sequenceId="1"] this is a log message',
        fields("2024-06-18T23:37:20+00:00", "sender", "tester") | {"log.sequenceId": "1"},
    ),
    Datagram(
        "StephenWakely/syslog-loose#2 (without structured data)",
        b"<11>1 2020-05-21T19:32:12.581Z ch.smedc.local. - 6993 void DB::Syst<...>fficial build))",
        fields("2020-05-21T19:32:12.581Z", "ch.smedc.local.", "", "6993") | {"msg_id": "void"},
    ),
    Datagram(
        "moby/moby#30694 (Docker before 17.03: without structured data)",
        b"<30>1 2016-09-28T12:00:00+02:00 host docker/abc 1234 docker/abc message text",
        fields("2016-09-28T12:00:00+02:00", "host", "docker/abc", "1234") | {"msg_id": "docker/abc"},
    ),
    Datagram(
        "log2timeline/plaso#931 (no host, and a bracket at the beginning of the text)",
        b"<5>Jan 18 08:30:20 kernel: [  997.390602] sda2: rw=0, want=66",
        fields("2027-01-18T08:30:20Z", "", "kernel"),
    ),
    Datagram(
        "VictoriaMetrics/VictoriaLogs#571 (FreeBSD leaves out the host)",
        b"<38>Aug  8 23:32:15 sshd-session[14308]: Received disconnect from 192.0.2.11 port 23755:11: by user",
        fields("2026-08-08T23:32:15Z", "", "sshd-session", "14308"),
    ),
    Datagram(
        "elastic/beats#13270 (pfSense leaves out the host)",
        b"<30>Aug 14 13:10:13 charon: 13[MGR] checkout IKEv1 SA by message with SPIs 7f41_i 49d7_r",
        fields("2026-08-14T13:10:13Z", "", "charon"),
    ),
    Datagram(
        "emabee/flexi_logger#108, syslog-ng/syslog-ng#2428 (RFC 5424 in RFC 3164: the outer header counts)",
        b"<13>Apr  1 09:54:08 myhostname 1 2022-04-01T09:54:08.509791468+02:00 myhostname bin 101741 mymsgid- x",
        fields("2027-04-01T09:54:08Z", "myhostname"),
    ),
    Datagram(
        "syslog-ng/syslog-ng#1591 (a blank in the tag)",
        b"<14>Jul  8 12:00:00 DiskStation Log Center: System test message",
        fields("2026-07-08T12:00:00Z", "DiskStation"),
    ),
    Datagram(
        "syslog-ng/syslog-ng#4821 (a second time is text)",
        b"<13>Feb  7 13:16:54 10.65.37.76 2024-02-07 13:44:18   reason=Allowed",
        fields("2027-02-07T13:16:54Z", "10.65.37.76"),
    ),
    Datagram(
        "librenms/librenms#3924 (two colons)",
        b"<22>Aug  1 20:00:38 h dovecot: lda(user@example.org): sieve: msgid=<2036@example.org>: stored mail",
        fields("2026-08-01T20:00:38Z", "h", "dovecot"),
    ),
    Datagram(
        "troglobit/sysklogd#105 (bytes from 128 to 159)",
        "<13>Nov 22 09:00:00 h app: Infix OS \u2014 Immutable".encode(),
        fields("2026-11-22T09:00:00Z", "h", "app"),
    ),
    Datagram(
        "systemd/systemd#4863 (text behind a NUL)",
        b"<13>Sep 15 15:07:58 HOST: null\0here",
        fields("2026-09-15T15:07:58Z", "", "HOST"),
    ),
    Datagram(
        "wazuh/wazuh#185 (HP's year behind the time is not a host)",
        b"<188>Jan 28 06:43:28 2017 HOSTNAME-SW01 %%10WEB/4/WEBOPT_LOGIN_FAIL(l): admin failed to log in",
        fields("2017-01-28T06:43:28Z", "HOSTNAME-SW01", "%%10WEB/4/WEBOPT_LOGIN_FAIL(l)"),
    ),
    Datagram(
        "jtmoon79/super-speedy-syslog-searcher#245, log2timeline/dfdatetime#268 (29 February, read in another year)",
        b"<30>Feb 29 00:00:01 h dhcpd[12345]: DHCPREQUEST",
        fields("2024-02-29T00:00:01Z", "h", "dhcpd", "12345"),
        "2025-03-01T00:00:00+00:00",
    ),
    Datagram(
        "elastic/logstash#4929, aws/aws-cli#5020 (29 February)",
        b"<30>Feb 29 06:46:02 h a: x",
        fields("2016-02-29T06:46:02Z", "h", "a"),
        "2016-02-29T06:46:03+00:00",
    ),
    Datagram(
        "daleharvey/dh_date#10 (a leap second)",
        b"<30>1 2015-06-30T23:59:60Z h a - - - x",
        fields("2015-06-30T23:59:60Z", "h", "a"),
    ),
    Datagram(
        "rsyslog/rsyslog#4079 (UTC at New Year, received where it is still December)",
        b"<189>Jan  1 03:13:14.663 UTC: %SYS-5-CONFIG_I: by x",
        fields("2020-01-01T03:13:14.663000Z", "", IOS),
        "2020-01-01T03:13:15+00:00",
        "America/New_York",
    ),
    Datagram(
        "rsyslog/rsyslog#1120 (text that looks like structured data)",
        b'<46>1 2016-08-18T10:35:20.662120+00:00 MYHOST rsyslogd - - - [origin software="rsyslogd"] start',
        fields("2016-08-18T10:35:20.662120+00:00", "MYHOST", "rsyslogd"),
    ),
    Datagram("rsyslog/rsyslog#1789 (text without a header)", b"Poor form RFC3164 without syslog header", {}),
    Datagram("rsyslog/rsyslog#5134 (no host)", b'<190>timestamp=1683715550 devname="FG" x', {}),
    Datagram(
        "rsyslog/rsyslog#437 (through the socket of a machine)",
        b"<29>1 2003-10-11T22:14:15Z mymachine.example.com su - ID47 - 'su root' failed",
        fields("2003-10-11T22:14:15Z", "mymachine.example.com", "su") | {"msg_id": "ID47"},
    ),
    Datagram(
        "syslog-ng/syslog-ng#1407 (a blank in the host, and no structured data)",
        b"<165>1 2017-04-04T03:22:40.348120+00:00 'Forwarder Name' logger - - subsys=forwarder",
        fields("2017-04-04T03:22:40.348120+00:00", "'Forwarder", "Name'", "logger"),
    ),
    Datagram(
        "poshsecurity/Posh-SYSLOG#10 (no colon behind the process)",
        b"<12>Nov 23 10:00:43 DVD10VDB1 CreaRilascioNew.ps1[804] Errore: Parametri",
        fields("2026-11-23T10:00:43Z", "DVD10VDB1", "CreaRilascioNew.ps1", "804"),
    ),
    Datagram(
        "influxdata/telegraf#16364 (the year of a fixed text)",
        b"<13>Dec 2 16:31:03 host app: Test",
        fields("2025-12-02T16:31:03Z", "host", "app"),
        "2026-01-05T10:00:00+00:00",
    ),
    Datagram(
        "apache/logging-flume#275 (29 February, with a clock elsewhere in the leap year)",
        b"<13>Feb 29 10:00:00 h a: x",
        fields("2020-02-29T10:00:00Z", "h", "a"),
        "2020-03-01T00:00:00+00:00",
    ),
    Datagram(
        "syslog-ng/syslog-ng#3453 (a zone between time and host)",
        b"<13>Oct 11 22:14:15 CET host app[5]: text",
        fields("2026-10-11T21:14:15Z", "host", "app", "5"),
    ),
    Datagram(
        "syslog-ng/syslog-ng#3453 (a host with the name of a zone)",
        b"<13>Oct 11 22:14:15 CET app: text",
        fields("2026-10-11T22:14:15Z", "CET", "app"),
    ),
    Datagram(
        "syslog-ng/syslog-ng#3453 (a zone of several countries is the listener's)",
        b"<13>Oct 11 22:14:15 CST web01 app: text",
        fields("2026-10-11T14:14:15Z", "web01", "app"),
        zone="Asia/Shanghai",
    ),
    Datagram(
        "syslog-ng/syslog-ng#3453 (the listener's own names)",
        b"<13>Oct 11 22:14:15 PST web-a app: text",
        fields("2026-10-11T14:14:15Z", "web-a", "app"),
        zone="Asia/Manila",
    ),
    Datagram(
        "syslog-ng/syslog-ng#3453 (an offset between time and host)",
        b"<13>2026-10-11 22:14:15 +0200 host app: text",
        fields("2026-10-11T20:14:15Z", "host", "app"),
    ),
    Datagram(
        "rsyslog/rsyslog#4079 (a year behind a time with a fraction is not a host)",
        b"<14>Oct  1 22:14:15.123456 2024 h app: x",
        fields("2024-10-01T22:14:15.123456Z", "h", "app"),
    ),
    Datagram(
        "rsyslog/rsyslog#4079 (the year is known: the digits are a host)",
        b"<14>Oct 11 2026 22:14:15.5 2018 app: x",
        fields("2026-10-11T22:14:15.500000Z", "2018", "app"),
    ),
    Datagram(
        "rsyslog/rsyslog (months in any case, as it reads them)",
        b"<14>OCT 11 22:14:15 h app: x",
        fields("2026-10-11T22:14:15Z", "h", "app"),
    ),
    Datagram(
        "rsyslog/rsyslog (months in small letters)",
        b"<14>oct 11 22:14:15 h app: x",
        fields("2026-10-11T22:14:15Z", "h", "app"),
    ),
    Datagram("rsyslog/rsyslog (three letters and a blank)", b"<14>the quick: x", {}),
    Datagram(
        "rsyslog/rsyslog (a month in another language stays a text; the host is read)",
        b"<14>Okt 11 22:14:15 h app: x",
        fields("Okt 11 22:14:15", "h", "app"),
    ),
    Datagram("rsyslog/rsyslog#4079 (no mnemonic)", b"<13>Oct 11 22:14:15 UTC: x", fields("2026-10-11T22:14:15Z", "")),
    Datagram(
        "awslabs/flowgger#61", SD + b'[a@1 i="3"][b@1 c="high"] hello', SD_HEADER | {"a@1.i": "3", "b@1.c": "high"}
    ),
    Datagram(
        "elastic/logstash#1660 (a bracket without its counterpart)",
        b"<14>Aug 25 13:18:27 app-b gateway-daemon-traceme-ip[31 [traceme-6] Closed connection from 192.0.2.3:46572",
        {"timestamp": "2026-08-25T13:18:27Z", "hostname": "app-b"},
    ),
    Datagram(
        "fluent/fluentd#2835 (CEF is not a tag of its own)",
        b"<43>Feb 24 11:05:17 192.0.2.129 PowerShell CEF:0|Microsoft|Powershell|6.2|ID|PWSH|6|src=192.0.2.8",
        {"timestamp": "2027-02-24T11:05:17Z", "hostname": "192.0.2.129"},
    ),
    Datagram(
        "grafana/grafana#72703 (RFC 3339 in RFC 3164)",
        b'<191>2023-08-01T23:20:00Z 1ea890b853c1 grafana[1]: {"elapsed time":"77.588us","error":null}',
        {"timestamp": "2023-08-01T23:20:00Z", "hostname": "1ea890b853c1", "app_name": "grafana", "proc_id": "1"},
    ),
    Datagram(
        "vectordotdev/vector#20225 (FortiGate)",
        b'<189>date=2024-04-02 time=19:53:43 eventtime=1712058823590616443 tz="+0800" logid="0000000013"',
        {},
    ),
    Datagram(
        "vectordotdev/vector#12431",
        b'<1>1 2022-04-25T23:21:45.715740Z host.local 2d4d9490 79978 - [exampleSDID@32473 foo.baz="bar"] test message',
        {
            "timestamp": "2022-04-25T23:21:45.715740Z",
            "hostname": "host.local",
            "app_name": "2d4d9490",
            "proc_id": "79978",
            "exampleSDID@32473.foo.baz": "bar",
        },
    ),
    Datagram(
        "vectordotdev/vector#17654 (nginx)",
        b'<190>Jun  9 15:50:01 web nginx: 192.0.2.1 - - [09/Jun/2023:15:50:01 +0800] "GET / HTTP/1.1" 200 615',
        {"timestamp": "2026-06-09T15:50:01Z", "hostname": "web", "app_name": "nginx"},
    ),
    Datagram(
        "logstash-plugins/logstash-input-syslog#79 (a counted LF)",
        b"<182>1 2025-07-10T11:23:07.046641+02:00 leaf2 sr_lldp_mgr - - -  "
        b"lldp|3235|3235|00042|I: LLDP remote peer added",
        {"timestamp": "2025-07-10T11:23:07.046641+02:00", "hostname": "leaf2", "app_name": "sr_lldp_mgr"},
    ),
    Datagram(
        "logstash-plugins/logstash-input-syslog#31",
        b'<13>1 2016-11-11T09:58:55.745781+11:00 pinback joshua - - [timeQuality tzKnown="1" '
        b'isSynced="1" syncAccuracy="156351"] blah',
        {
            "timestamp": "2016-11-11T09:58:55.745781+11:00",
            "hostname": "pinback",
            "app_name": "joshua",
            "timeQuality.tzKnown": "1",
            "timeQuality.isSynced": "1",
            "timeQuality.syncAccuracy": "156351",
        },
    ),
    Datagram(
        "pfelk/pfelk#1 (no host)",
        b"<134>Dec 21 14:13:43 filterlog: 9,,,1000000103,em0,match,block,in,4,0x0,,255,19307",
        {"timestamp": "2026-12-21T14:13:43Z", "app_name": "filterlog"},
    ),
    Datagram(
        "splunk/splunk-connect-for-syslog#2720 (fields between tabs)",
        b"<14>Jan 30 14:16:58 host4 "
        b"MSWinEventLog\t1\tMicrosoft-Windows-TaskScheduler/Operational\t228868\tThu Jan 30 14:16:58 2025\t129",
        {"timestamp": "2027-01-30T14:16:58Z", "hostname": "host4"},
    ),
    Datagram(
        "splunk/splunk-connect-for-syslog#1665 (Sophos, fields only)",
        b'<30>device="SFW" date=2022-04-25 time=15:27:08 timezone="CDT" device_name="XG430"',
        {},
    ),
    Datagram(
        "splunk/splunk-connect-for-syslog#1786 (Palo Alto, no tag)",
        b"<14>Aug 15 18:47:51 palo_alto_host 1,2022/08/15 18:47:51,012501003398,TRAFFIC,end,2561",
        {"timestamp": "2026-08-15T18:47:51Z", "hostname": "palo_alto_host"},
    ),
    Datagram(
        "elastic/beats#28638 (no host)",
        b"2016:01:29-06:09:59 smtpd[905]: MASTER[NNN]: QR globally disabled",
        {"timestamp": "2016-01-29T06:09:59Z", "app_name": "smtpd", "proc_id": "905"},
    ),
    Datagram(
        "elastic/beats#28638 (with a host)",
        b"<30>2016:01:29-06:09:59 host smtpd[905]: MASTER[NNN]: QR globally disabled",
        {"timestamp": "2016-01-29T06:09:59Z", "hostname": "host", "app_name": "smtpd", "proc_id": "905"},
    ),
    Datagram(
        "microsoft/OMS-Agent-for-Linux#201",
        b"<164>Sep 14 2016 09:33:47 ASA-RE : %ASA-4-106023: Deny icmp src outside:192.0.2.98",
        {"timestamp": "2016-09-14T09:33:47Z", "hostname": "ASA-RE", "app_name": "%ASA-4-106023"},
    ),
    Datagram(
        "microsoft/OMS-Agent-for-Linux#201 (no device id)",
        b"<164>Sep 14 2016 10:07:20: %ASA-4-106023: Deny udp src inside:192.0.2.45/5860",
        {"timestamp": "2016-09-14T10:07:20Z", "app_name": "%ASA-4-106023"},
    ),
    Datagram(
        "fluent/fluentd#2759 (a message in a message)",
        b"<5>Jan  5 11:12:22 root: <34>1 2003-10-11T22:14:15.003Z mymachine su - ID47 - BOM'su root' failed",
        {"timestamp": "2027-01-05T11:12:22Z", "app_name": "root"},
    ),
    Datagram(
        "fluent/fluentd#3016 (JSON behind the host)",
        b'<14>Jun  2 11:08:52 nxfilter-77f69696c7-xkf2w {"Prefix":"NXFILTER","Time":"2020-06-02 11:08:52"}',
        {"timestamp": "2026-06-02T11:08:52Z", "hostname": "nxfilter-77f69696c7-xkf2w"},
    ),
    Datagram(
        "grafana/loki#17574 (Check Point's structured data is none)",
        b'<134>1 2025-05-05T11:21:46Z teststet CheckPoint 43031 - [action:"Accept"; '
        b'flags:"409600"; ifdir:"inbound"; policy:"product=VPN-1[db_tag={AA}\\]"; product:"x"]',
        {"timestamp": "2025-05-05T11:21:46Z", "hostname": "teststet", "app_name": "CheckPoint", "proc_id": "43031"},
    ),
    Datagram(
        "graylog-labs/graylog2-web-interface#1612 (an unset clock's mark)",
        b"<189>.Sep 21 16:05:29.558: %SFF8472-5-THRESHOLD_VIOLATION: Te1/1/22: Rx power low alarm",
        {"timestamp": "2026-09-21T16:05:29.558000Z", "app_name": "%SFF8472-5-THRESHOLD_VIOLATION"},
    ),
    Datagram(
        "Graylog2/graylog2-server#3599 (source= in a URL)",
        b'<189>date=2017-04-06 time=10:30:30 devname=FOOBAR url="/r?source=smarttag&x"',
        {},
    ),
    Datagram(
        "Graylog2/graylog2-server#549 (Juniper)",
        b"<14>1 2014-05-01T08:26:51.179Z fw01 RT_FLOW - RT_FLOW_SESSION_DENY "
        b'[junos@2636.1.1.1.2.39 source-address="1.2.3.4" username="N/A" encrypted="No "]',
        {
            "timestamp": "2014-05-01T08:26:51.179Z",
            "hostname": "fw01",
            "app_name": "RT_FLOW",
            "msg_id": "RT_FLOW_SESSION_DENY",
            "junos@2636.1.1.1.2.39.source-address": "1.2.3.4",
            "junos@2636.1.1.1.2.39.username": "N/A",
            "junos@2636.1.1.1.2.39.encrypted": "No ",
        },
    ),
    Datagram(
        "elastic/beats#40105 (a blank behind the PRI)",
        b"<14> Jun 27 12:00:32 192.0.2.50-1 General[-1248711972]: main_login.c(763) 1771 %% HTTP Session 5",
        {
            "timestamp": "2026-06-27T12:00:32Z",
            "hostname": "192.0.2.50-1",
            "app_name": "General",
            "proc_id": "-1248711972",
        },
    ),
    Datagram(
        "elastic/beats#13268 (a blank behind the PRI)",
        b"<13> Aug 16 12:25:24 192.0.2.2-1 TRAPMGR[53034492]: traputil.c(696) 135956 %% Link Up: g5.",
        {"timestamp": "2026-08-16T12:25:24Z", "hostname": "192.0.2.2-1", "app_name": "TRAPMGR", "proc_id": "53034492"},
    ),
    Datagram(
        "elastic/beats#13995 (no PRI)",
        b"2019-10-10T07:46:25+02:00 localhost haproxy[30143]: 127.0.0.1:39442 [10/Oct/2019:06:46:15.492] x",
        {"timestamp": "2019-10-10T07:46:25+02:00", "hostname": "localhost", "app_name": "haproxy", "proc_id": "30143"},
    ),
    Datagram(
        "cloudfoundry-community/logsearch-boshrelease#176 (an empty parameter)",
        b"<14>1 2020-04-09T20:12:14.707859Z 192.0.2.9 cloud_controller_ng rs2 - "
        b'[instance@47450 director="" deployment="cf-xxxxx"] I, [2020',
        {
            "timestamp": "2020-04-09T20:12:14.707859Z",
            "hostname": "192.0.2.9",
            "app_name": "cloud_controller_ng",
            "proc_id": "rs2",
            "instance@47450.director": "",
            "instance@47450.deployment": "cf-xxxxx",
        },
    ),
    Datagram(
        "grafana/alloy#6301, #5687 (no text: the structured data is the message)",
        b"<14>1 2014-05-01T08:26:51.179Z fw01 RT_FLOW - RT_FLOW_SESSION_CLOSE "
        b'[junos@2636.1.1.1.2.39 reason="TCP FIN" source-address="192.0.2.4"]',
        {
            "timestamp": "2014-05-01T08:26:51.179Z",
            "hostname": "fw01",
            "app_name": "RT_FLOW",
            "msg_id": "RT_FLOW_SESSION_CLOSE",
            "junos@2636.1.1.1.2.39.reason": "TCP FIN",
            "junos@2636.1.1.1.2.39.source-address": "192.0.2.4",
        },
    ),
    Datagram(
        "treasure-data/omnibus-td-agent#248 (a blank behind the structured data, and no text)",
        b"<30>1 2020-04-06T21:32:24Z compute-i-1.prod 2da252122640 9911 2da252122640 - ",
        {
            "timestamp": "2020-04-06T21:32:24Z",
            "hostname": "compute-i-1.prod",
            "app_name": "2da252122640",
            "proc_id": "9911",
            "msg_id": "2da252122640",
        },
    ),
    Datagram(
        "vectordotdev/vrl#1043 (an element without parameters)",
        b"<13>1 2019-02-13T19:48:34+00:00 74794bfb6795 root 8449 - [job 4711] qwerty",
        fields("2019-02-13T19:48:34+00:00", "74794bfb6795", "root", "8449"),
    ),
    Datagram(
        "vectordotdev/vrl#641 (New Year in the listener's zone, received in the old year's UTC)",
        b"<13>Jan  1 03:00:00 h a: x",
        fields("2023-12-31T19:00:00Z", "h", "a"),
        "2023-12-31T19:00:05+00:00",
        "Asia/Shanghai",
    ),
    Datagram(
        "elastic/integrations#2475 (a clock that is not synchronized, with a zone)",
        b"<190>2361044: sw01: .Jan  6 2022 22:11:43.398 EST: %FOO-6-BAR: Test date format.",
        fields("2022-01-07T03:11:43.398000Z", "sw01", "%FOO-6-BAR"),
    ),
    Datagram(
        "rsyslog/rsyslog#2542 (a tag without text)",
        b"Mar 14 09:25:26 uahqsrv-cpm01 CheckPoint[25801] ",
        fields("2027-03-14T09:25:26Z", "uahqsrv-cpm01", "CheckPoint", "25801"),
    ),
    *(
        Datagram(f"splunk/splunk-connect-for-syslog#2019 ({name})", begin + text, header)
        for name, text in (("CEF", b"CEF:0|CyberArk|PSM|1.0|PSM-45|x"), ("LEEF", b"LEEF:2.0|Lancope|SW|1.0|41|"))
        for begin, header in (
            (b"2023-02-06T14:45:01Z ", fields("2023-02-06T14:45:01Z")),
            (b"<134>Oct 11 22:14:15 h1 ", fields("2026-10-11T22:14:15Z", "h1")),
        )
    ),
    Datagram(
        "splunk/splunk-connect-for-syslog#1718 (an address in the tag)",
        b"<29>Mar 25 19:08:39 ServerName 10.192.1.45.nodes-86[4035]: Options error: --ca fails",
        fields("2027-03-25T19:08:39Z", "ServerName", "10.192.1.45.nodes-86", "4035"),
    ),
    Datagram(
        "splunk/splunk-connect-for-syslog#649 (RSA: commas, and no word of the text is a host)",
        b"<14>2020-08-20 13:38:39,933, h.prod.local, audit.runtime.com.rsa.ims.authn, INFO, 0bb6fd74",
        {},
    ),
    Datagram(
        "grafana/loki#4270, #3839 (a name of more than 48 letters closed the connection)",
        b"<13>1 2021-02-27T00:29:59.581-06:00 h %b - - - t" % (b"a" * 60),
        fields("2021-02-27T00:29:59.581-06:00", "h", "a" * 60),
    ),
    Datagram("grafana/alloy#2286 (the second half of a message, in a datagram of its own)", b'{"a":"half"}', {}),
    Datagram(
        "elastic/beats#26278 (a TLS handshake at a port of lines)",
        b"\x08\x0b\x04\x01\x05\x01\x06\x01\x04\x02\x05\x02\x06\x02",
        {},
    ),
    Datagram(
        "elastic/logstash#2552 (a tag in brackets is text)",
        b"<134>Feb  9 11:49:07 ryan-centos [Swift] text",
        {"timestamp": "2027-02-09T11:49:07Z", "hostname": "ryan-centos"},
    ),
]


def decoder_at(received: str, zone: str) -> SyslogDecoder:
    return SyslogDecoder(ZoneInfo(zone), datetime.fromisoformat(received).timestamp)


def header_of(annotations: list[tuple[str, str]]) -> dict[str, str]:
    return {name: text for name, text in annotations if name not in ("facility", "severity")}


@pytest.mark.parametrize("report", CONNECTIONS, ids=lambda report: report.reference)
def test_connection_gives_the_messages_that_were_sent(report: Connection) -> None:
    splitter, counts, arrays = LineSplitter(MAX_LINE, report.framing), Counts(), []
    for piece in report.pieces:
        for lines in (splitter.feed(piece), splitter.settle()):
            messages, _, of_lines = separate_commands(lines, SyslogDecoder().statistics)
            arrays.append(messages)
            counts.absorb(of_lines)
    messages, _, of_lines = separate_commands(splitter.finish(), SyslogDecoder().statistics)
    decoded = decoder_at("2026-11-22T10:00:00+00:00", "UTC").decode_lines(pa.concat_arrays([*arrays, messages]))
    counts.absorb(of_lines)
    counts.absorb(decoded.counts)
    assert decoded.body["payload"].to_pylist() == list(report.messages)
    assert header_of(decoded.body["annotations"].to_pylist()[-1]).items() >= report.header.items()
    assert open_books(counts) == []


def test_text_of_event_formats_keeps_their_name() -> None:
    """splunk/splunk-connect-for-syslog#2019: parsers of CEF and LEEF need the text from its first letter on."""
    texts = [b"CEF:0|CyberArk|PSM", b"LEEF:2.0|Lancope|SW", b"0|app|x"]
    sent = [b"<134>Oct 11 22:14:15 h1 " + text for text in (*texts[:2], b"CEFX:0|app|x")]
    messages = decoder_at("2026-11-22T10:00:00+00:00", "UTC").decode(Datagrams.from_bytes(sent), 0.0).body["payload"]
    assert syslog_messages(messages).to_pylist() == [text.decode() for text in texts]


@pytest.mark.parametrize("text", ['{"a": 1}', '{"a": 1, "b": 2, "c": 3}', '{"a":1}', "{"])
def test_json_behind_the_host_of_rfc_5424_is_the_text(text: str) -> None:
    body = (
        decoder_at("2026-11-22T10:00:00+00:00", "UTC")
        .decode(Datagrams.from_bytes([f"<134>1 2026-10-11T22:14:15Z h1 {text}".encode()]), 0.0)
        .body
    )
    assert syslog_messages(body["payload"]).to_pylist() == [text]
    assert header_of(body["annotations"].to_pylist()[0]) == fields("2026-10-11T22:14:15Z", "h1")


def test_text_behind_a_tag_of_rfc_5424_keeps_brackets_and_hyphens() -> None:
    """Behind a tag in place of RFC 5424's fields, neither structured data nor their nil follow."""
    texts = ["[error] no route", "- begin", "-", '[a@1 b="c"]']
    sent = [f"<134>1 2026-10-11T22:14:15Z h1 app[7]: {text}".encode() for text in texts]
    body = decoder_at("2026-11-22T10:00:00+00:00", "UTC").decode(Datagrams.from_bytes(sent), 0.0).body
    assert syslog_messages(body["payload"]).to_pylist() == texts
    assert header_of(body["annotations"].to_pylist()[0]) == fields("2026-10-11T22:14:15Z", "h1", "app", "7")


@pytest.mark.parametrize("report", DATAGRAMS, ids=lambda report: report.reference)
def test_header_of_datagram_is_read(report: Datagram) -> None:
    decoded = decoder_at(report.received, report.zone).decode(Datagrams.from_bytes([report.sent]), 0.0)
    assert decoded.body["payload"].to_pylist() == [report.sent]
    assert header_of(decoded.body["annotations"].to_pylist()[0]) == report.header
