"""Rules of the alarms. ``evaluation`` computes them; ``examples/prometheus/penstock.rules.yml`` is generated from
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MINUTE = 60


@dataclass(frozen=True, slots=True)
class Growth:
    """A counter, summed by labels, has grown within a window: ``names`` are values of ``label``, with * for any end."""

    metric: str
    by: tuple[str, ...]
    label: str
    names: tuple[str, ...]
    window: int = 5 * MINUTE


@dataclass(frozen=True, slots=True)
class NotZero:
    """A gauge is not 0."""

    metric: str


@dataclass(frozen=True, slots=True)
class Above:
    """A gauge, by labels, is above a limit."""

    metric: str
    by: tuple[str, ...]
    limit: float


@dataclass(frozen=True, slots=True)
class Behind:
    """A time, by labels, is more than ``seconds`` ago."""

    metric: str
    by: tuple[str, ...]
    seconds: int


@dataclass(frozen=True, slots=True)
class Share:
    """More than ``part`` of a counter's growth within a window has one of the names."""

    part: float
    of: Growth


@dataclass(frozen=True, slots=True)
class Stuck:
    """Messages wait, by labels, and a counter of the same labels does not grow."""

    waiting: str
    progress: Growth


@dataclass(frozen=True, slots=True)
class Away:
    """A metric is missing; only an outside observer can see that."""

    metric: str


Condition = Growth | NotZero | Above | Behind | Share | Stuck | Away


@dataclass(frozen=True, slots=True)
class Rule:
    """An alarm rule. ``hold``: seconds that the condition must last. ``summary`` contains ``{value}`` and names of
    labels.
    """

    name: str
    severity: str
    condition: Condition
    summary: str
    hold: int = 0
    advice: str = ""


LISTENER, ROUTE, TOPIC, SENDER = ("listener",), ("listener", "handler"), ("topic",), ("listener", "sender")
COUNTS, FATES, TOPICS = "penstock_listener_count_total", "penstock_route_fate_total", "penstock_topic_fate_total"
RULES = (
    Rule(
        "PenstockUnaccounted",
        "critical",
        NotZero("penstock_unaccounted"),
        "{value} messages are unaccounted for",
        5 * MINUTE,
        "penstock balance says in which topic and minute; penstock balance --rebuild counts all again",
    ),
    Rule(
        "PenstockAway",
        "critical",
        Away("penstock_unaccounted"),
        "the log daemon does not answer; receivers go on until their log buffers are full",
        2 * MINUTE,
    ),
    Rule(
        "PenstockDiskFull",
        "critical",
        Above("penstock_log_unwritable_seconds", (), 0),
        "the log has not been written for {value} s: the disk is full, or log.max_bytes is reached",
        advice="free space (penstock cleanup), or lower log.topic_defaults.retain_bytes, stale_after and "
        "pipeline.retention; datagrams are lost once the log buffers are full",
    ),
    Rule(
        "PenstockDiskLow",
        "warning",
        Above("penstock_disk_missing_bytes", ("folder",), 0),
        "the disk of {folder} is nearly full: {value} bytes below alarms.disk_free",
        advice="free space (penstock cleanup), or lower log.topic_defaults.retain_bytes, stale_after and "
        "pipeline.retention, before the log cannot be written",
    ),
    Rule(
        "PenstockCannotStart",
        "critical",
        Above("penstock_process_not_started_seconds", ("process",), 0),
        "the {process} has not been able to start for {value} s",
        advice="penstock events and penstock balance say why; it starts by itself once the cause is removed",
    ),
    Rule(
        "PenstockReceiverStopped",
        "warning",
        Above("penstock_receiver_silent_seconds", LISTENER, 3),
        "the receiver of listener {listener} has been stopped for {value} s",
        advice="the kernel drops datagrams once its buffer is full; continue the process with kill -CONT, or kill it",
    ),
    Rule(
        "PenstockForwarderStopped",
        "warning",
        Above("penstock_forwarder_silent_seconds", ROUTE, 3),
        "the forwarder of listener {listener} to handler {handler} has been silent for {value} s",
        advice="it is stopped (continue it with kill -CONT), or its handler hangs in a delivery; messages wait for it",
    ),
    Rule(
        "PenstockPipelineStopped",
        "warning",
        Above("penstock_pipeline_silent_seconds", (), 3),
        "the pipeline has been stopped for {value} s",
        advice="messages wait in the log; penstock pipeline status names the process: continue it with kill -CONT",
    ),
    Rule(
        "PenstockPipelineFails",
        "critical",
        Above("penstock_pipeline_failing_seconds", (), 0),
        "nothing has landed for {value} s because the pipeline fails",
        MINUTE,
        "penstock pipeline status names the cause and the next step; messages wait in the log until retention",
    ),
    Rule(
        "PenstockKernelDrops",
        "warning",
        Growth(COUNTS, LISTENER, "name", ("kernel_dropped",)),
        "the kernel dropped {value} datagrams of listener {listener}: see penstock doctor",
    ),
    Rule(
        "PenstockIncomplete",
        "warning",
        Growth(COUNTS, LISTENER, "name", ("incomplete.*", "bad_checksum")),
        "listener {listener} lost {value} messages whose fragments did not all come whole",
        15 * MINUTE,
    ),
    Rule(
        "PenstockPolicyDrop",
        "warning",
        Growth(FATES, ROUTE, "fate", ("policy_drop",)),
        "handler {handler} of {listener} missed {value} messages",
        advice="it was too slow, or the log could not be written because the disk was full: penstock events says which",
    ),
    Rule(
        "PenstockHandlerFailed",
        "warning",
        Growth(FATES, ROUTE, "fate", ("handler_failed",)),
        "handler {handler} of {listener} failed on {value} messages",
    ),
    Rule(
        "PenstockExpiredUnread",
        "critical",
        Growth(TOPICS, TOPIC, "fate", ("gap.expired_unread",), 15 * MINUTE),
        "{value} entries of topic {topic} expired before their reader came to them",
    ),
    Rule(
        "PenstockCorrupt",
        "critical",
        Growth(TOPICS, TOPIC, "fate", ("gap.corrupt",), 15 * MINUTE),
        "{value} entries of topic {topic} are corrupt: look at the disk",
    ),
    Rule(
        "PenstockQuarantine",
        "warning",
        Share(0.01, Growth(TOPICS, TOPIC, "fate", ("quarantined.*",), 15 * MINUTE)),
        "more than 1 % of topic {topic} goes into quarantine: penstock pipeline quarantine",
        15 * MINUTE,
    ),
    Rule(
        "PenstockTablesBehind",
        "warning",
        Behind("penstock_watermark_timestamp_seconds", ("table", "topic"), 600),
        "table {table} of topic {topic} is {value} s behind",
        5 * MINUTE,
    ),
    Rule(
        "PenstockSilentSender",
        "warning",
        Above("penstock_sender_silent_seconds", SENDER, 0),
        "sender {sender} of listener {listener} has been silent for {value} s",
        # No hold: the silence itself has lasted, and a hold would add to the limit that expect sets.
        advice="it stopped, or the network to it; penstock senders shows its usual pause, and expect sets a limit",
    ),
    Rule(
        "PenstockNewSender",
        "info",
        Above("penstock_sender_new", SENDER, 0),
        "listener {listener} has a new sender {sender}",
        advice="penstock alarms mute PenstockNewSender --label listener=NAME if new senders are usual there",
    ),
    Rule(
        "PenstockHostSilent",
        "warning",
        Above("penstock_host_silent_seconds", ("host",), 0),
        "host {host} has relayed nothing for {value} s",
        5 * MINUTE,
        "its relay, the network to it or the host is away; penstock balance --hosts shows the last minute",
    ),
    Rule(
        "PenstockExportBehind",
        "warning",
        Behind("penstock_export_timestamp_seconds", ("export",), 600),
        "export {export} is {value} s behind",
        5 * MINUTE,
        "penstock export list says why",
    ),
    Rule(
        "PenstockAuditIncomplete",
        "critical",
        Above("penstock_audit_status", ("topic", "table"), 0),
        "table {table} is not complete for topic {topic}, or that cannot be decided (audit status {value})",
        advice="the console's page Audits shows partitions, ranges and commits",
    ),
    Rule(
        "PenstockAuditSilent",
        "warning",
        Behind("penstock_audit_due_timestamp_seconds", ("topic", "table"), 60),
        "the audit of topic {topic} and table {table} is {value} s late",
        5 * MINUTE,
        "start penstock audit again, or delete its file in the folder audits of the data directory",
    ),
    Rule(
        "PenstockBufferFills",
        "warning",
        Stuck("penstock_route_in_buffer", Growth(FATES, ROUTE, "fate", ("delivered",))),
        "handler {handler} of {listener} takes nothing; {value} messages wait",
        5 * MINUTE,
    ),
)


def prometheus_file() -> str:
    """Return the rules as Prometheus' rule file."""
    return HEAD + "".join(_entry(rule) for rule in RULES)


HEAD = """# Made from the rules that run inside, too. Name this file under rule_files in prometheus.yml; a scrape:
#   scrape_configs:
#     - job_name: penstock
#       static_configs: [{targets: ["127.0.0.1:8844"]}]
groups:
  - name: penstock
    rules:
"""


def _entry(rule: Rule) -> str:
    summary = rule.summary.replace("{value}", "{{ $value }}")
    for label in ("listener", "handler", "topic", "table", "sender", "host", "export", "folder", "process"):
        summary = summary.replace(f"{{{label}}}", f"{{{{ $labels.{label} }}}}")
    lines = [f"      - alert: {rule.name}", "        expr: >-", f"          {expression(rule.condition)}"]
    lines += [f"        for: {rule.hold // MINUTE}m"] if rule.hold else []
    lines += [
        f"        labels: {{severity: {rule.severity}}}",
        "        annotations:",
        f'          summary: "{summary}"',
    ]
    lines += [f'          description: "{rule.advice}"'] if rule.advice else []
    return "\n".join([*lines, ""])


def expression(condition: Condition) -> str:
    """Return a condition in PromQL."""
    match condition:
        case Growth():
            return f"{_promql_sum('increase', condition)} > 0"
        case NotZero():
            return f"{condition.metric} != 0"
        case Above():
            return f"{_aggregated('max', condition.by, condition.metric)} > {condition.limit:g}"
        case Behind():
            return f"time() - {condition.metric} > {condition.seconds}"
        case Share():
            total = _promql_sum("rate", condition.of, is_total=True)
            return f"{_promql_sum('rate', condition.of)} > {condition.part:g} * {total}"
        case Stuck():
            waiting = _aggregated("sum", condition.progress.by, condition.waiting)
            return f"{waiting} > 0 and {_promql_sum('rate', condition.progress)} == 0"
        case Away():
            # Only Prometheus can evaluate this: a daemon that is away evaluates nothing.
            return f"absent({condition.metric})"


def _promql_sum(function: str, growth: Growth, is_total: bool = False) -> str:
    pattern = "|".join(name.replace(".", "[.]").replace("*", ".*") for name in growth.names)
    sign = "=~" if "*" in pattern or "|" in pattern else "="
    matched = pattern if sign == "=~" else growth.names[0]
    selector = "" if is_total else f'{{{growth.label}{sign}"{matched}"}}'
    return _aggregated("sum", growth.by, f"{function}({growth.metric}{selector}[{growth.window // MINUTE}m])")


def _aggregated(operator: str, labels: Sequence[str], series: str) -> str:
    """Return an aggregation in PromQL, by labels or, without any, of all series."""
    return f"{operator} by ({', '.join(labels)}) ({series})" if labels else f"{operator}({series})"
