"""``python -m bench.readme RESULT ...``: the table of docs/figures.md, from results of one machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.results import load

ROWS = {
    "UDP received without a loss": "{udp_lossless_messages_per_s:,} messages/s, {udp_receiver_cpu_us_per_message} us "
    "of CPU each (a plain loop around `recv` that does nothing else: {plain_recv_loop_cpu_us_per_message})",
    "flat out": "{udp_flat_out_offered_per_s:,} messages/s offered, {udp_flat_out_handled_per_s:,} handled, the rest "
    "counted as dropped by the kernel",
    "messages of 64 KiB in fragments of 1,400 bytes, without a loss": "{udp_lossless_fragments_per_s_64k:,} "
    "fragments/s",
    "TCP lines": "{tcp_lines_per_s:,}/s, {tcp_receiver_cpu_us_per_line} us of CPU each",
    "UDP into the synced log, without a loss": "{synced_log_lossless_messages_per_s:,} messages/s; "
    "{synced_log_receiver_cpu_us_per_message} us in the receiver, {synced_log_daemon_cpu_us_per_message} in the log",
    "events landed and proved": "{landed_and_proved_events_per_s:,}/s; one that is sent now is in the tables within "
    "{send_to_row_p50_s} s (p99 {send_to_row_p99_s} s)",
    "landed and proved without a pause": "{sustained_events_per_s:,} events/s, {sustained_cpu_us_per_event} us of CPU "
    "each; minute by minute {sustained_events_per_s_by_minute}",
    "append of one entry, synced, 1 and 64 callers": "{log_append_1_caller_per_s:,}/s, "
    "{log_append_64_callers_per_s:,}/s",
    "append of 1,000 entries, synced, 1 and 4 callers": "{log_append_1000_entries_1_caller_per_s:,} and "
    "{log_append_1000_entries_4_callers_per_s:,} entries/s",
    "memory of the log (anonymous): idle, with 1,000 topics written and read": "{log_daemon_pss_anon_idle_mib} MB, "
    "{log_daemon_pss_anon_loaded_mib} MB",
    "beside slogd, appends of one entry, 64 callers": "{penstock_append_64_callers_1_entries_per_s:,.0f}/s, "
    "slogd {slogd_append_64_callers_1_entries_per_s:,.0f}/s",
    "beside NATS JetStream, every message synced: appends of one entry, 64 callers": "{penstock_append_64_callers_"
    "1_entries_per_s:,.0f}/s, NATS {nats_append_64_callers_1_entries_per_s:,.0f}; not synced "
    "{nats_unsynced_append_64_callers_1_entries_per_s:,.0f}",
    "the same, 1,000 entries at once, 1 caller": "{penstock_append_1_callers_1000_entries_per_s:,.0f} entries/s, NATS "
    "{nats_append_1_callers_1000_entries_per_s:,.0f}; not synced "
    "{nats_unsynced_append_1_callers_1000_entries_per_s:,.0f}",
    "the same, memory of all processes (anonymous): idle, loaded": "{penstock_pss_anon_idle_mib:.0f} MB, "
    "{penstock_pss_anon_loaded_mib:.0f} MB; NATS {nats_pss_anon_idle_mib:.0f} MB, {nats_pss_anon_loaded_mib:.0f} MB",
    "beside Kafka with `flush.messages=1`: 1,000 bytes produced in batches of 512 KiB": "{kafka_log_1_KB_produced_"
    "large_batches_penstock_per_s:,}/s, Kafka {kafka_log_1_KB_produced_large_batches_kafka_flush_1_per_s:,}",
    "the same, memory of all processes (anonymous): idle, with what was produced": "{kafka_log_penstock_pss_anon_"
    "idle_mib:.0f} MB, {kafka_log_penstock_pss_anon_loaded_mib:.0f} MB; Kafka "
    "{kafka_log_kafka_pss_anon_idle_mib:.0f} MB, {kafka_log_kafka_pss_anon_loaded_mib:.0f} MB",
}
"""What a line says, where the result has all of its figures."""
_REQUESTS = {
    "1 record a request, 1 caller": "1_callers_1_records",
    "1 record a request, 16 callers": "16_callers_1_records",
    "100 records a request, 4 callers": "4_callers_100_records",
    "1,000 records a request, 4 callers": "4_callers_1000_records",
}
PEER_ROWS = {
    "UDP with segmentation offload, synced; the codec plog": (
        "rsyslog {rsyslog_udp_lossless_cpu_us:.1f} us, {rsyslog_udp_lossless_per_s:,.0f}/s",
        "{penstock_udp_lossless_cpu_us:.1f} us, {penstock_udp_lossless_per_s:,.0f}/s",
    ),
    "the same, the codec syslog": (
        "as above",
        "{penstock_syslog_udp_lossless_cpu_us:.1f} us, {penstock_syslog_udp_lossless_per_s:,.0f}/s",
    ),
    "UDP, each datagram sent alone, synced; the codec plog": (
        "rsyslog {rsyslog_udp_separate_lossless_cpu_us:.1f} us, {rsyslog_udp_separate_lossless_per_s:,.0f}/s",
        "{penstock_udp_separate_lossless_cpu_us:.1f} us, {penstock_udp_separate_lossless_per_s:,.0f}/s",
    ),
    "each datagram sent alone, the codec syslog": (
        "as above",
        "{penstock_syslog_udp_separate_lossless_cpu_us:.1f} us, {penstock_syslog_udp_separate_lossless_per_s:,.0f}/s",
    ),
    "TCP, RFC 5424 parsed into fields, synced": (
        "rsyslog to JSON {rsyslog_tcp_tcp_parsed_cpu_us:.1f} us",
        "{penstock_syslog_tcp_tcp_parsed_cpu_us:.1f} us",
    ),
    "append of one entry by gRPC, 1 caller": (
        "slogd {slogd_append_1_callers_1_entries_cpu_ms_a_request:.3f} ms",
        "{penstock_append_1_callers_1_entries_cpu_ms_a_request:.3f} ms",
    ),
    "the same, 64 callers": (
        "slogd {slogd_append_64_callers_1_entries_cpu_ms_a_request:.3f} ms",
        "{penstock_append_64_callers_1_entries_cpu_ms_a_request:.3f} ms",
    ),
    "landing from Kafka into Delta, 200-byte events": (
        "Spark job with `from_json` {landing_kafka_spark_cpu_us_per_event:.1f} us, first rows after "
        "{landing_kafka_spark_first_rows_s:.0f} s",
        "{landing_kafka_penstock_cpu_us_per_event:.1f} us, first rows after "
        "{landing_kafka_penstock_first_rows_s:.0f} s",
    ),
} | {
    f"OTLP over {transport}, {what}": (
        f"Collector {{collector_{protocol}_{load}_cpu_us_per_record:,.1f}} us",
        f"{{penstock_{protocol}_{load}_cpu_us_per_record:,.1f}} us, an answer after "
        f"{{penstock_{protocol}_{load}_p50_ms:.1f}} ms",
    )
    for transport, protocol in (("gRPC", "otlp_grpc"), ("HTTP", "otlp"))
    for what, load in _REQUESTS.items()
}
"""CPU and rate of a tuned peer and of Penstock for the same work, where the result has all of its figures."""


def table(document: dict[str, Any]) -> str:
    """Return Markdown: what it was taken on and with, then the lines of ROWS and PEER_ROWS that were measured."""
    machine, taken_with = document["machine"], document["load"]
    head = (
        f"Taken at {document['commit']} on {machine['cores']} cores ({machine['processor']}), "
        f"{machine['file_system']}, shared by sender and receiver; messages of {taken_with['message_bytes']} bytes, "
        f'`so_rcvbuf = "{taken_with["so_rcvbuf"]}"`, sender: {taken_with["sender"]}.'
    )
    figures = document["figures"]
    alone = _measured({what: (text,) for what, text in ROWS.items()}, figures)
    beside = _measured(PEER_ROWS, figures)
    lines = [head]
    if alone:
        lines += ["", "| what | figure |", "| --- | --- |", *alone]
    if beside:
        lines += ["", "| work | peer, tuned | Penstock |", "| --- | --- | --- |", *beside]
    return "\n".join(lines)


def _measured(rows: Mapping[str, tuple[str, ...]], figures: dict[str, Any]) -> list[str]:
    """Return the lines of a table whose figures were all measured."""
    lines = []
    for what, texts in rows.items():
        try:
            lines.append(" | ".join([f"| {what}", *(text.format_map(figures) for text in texts)]) + " |")
        except KeyError:  # that part was not measured
            continue
    return lines


def together(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """The first one with the figures of all. Each part is of one run, so figures of one line are, too.

    Peers that take appends belong into one run for that: ``--with slogd,nats``.
    """
    return documents[0] | {"figures": {name: value for one in documents for name, value in one["figures"].items()}}


if __name__ == "__main__":
    print(table(together([load(Path(name)) for name in sys.argv[1:]])))
