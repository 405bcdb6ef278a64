"""The commands of ``penstock``: the module, the section of the help and the examples of each.

Imports no command, so that the list is made without the libraries that commands need.
"""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """A command with examples for the help, or a group of commands.

    A group has an entry for each command in it: examples if its own module registers the command, or a ``Command`` that
    names another module, which is imported only when that command is called.
    """

    module: str
    """Module below ``penstock.cli`` whose function, or group of commands, has the name of the command."""
    examples: list[str] | dict[str, list[str] | Command]


OTHER_NAMES = {
    **dict.fromkeys(
        ("start", "run"), "`penstock up` starts everything, `penstock serve` all but Spark and the console"
    ),
    **dict.fromkeys(("stop", "kill", "down"), "press Ctrl-C where `penstock up` runs, or send SIGTERM to its process"),
    "status": "`penstock balance`, `penstock pipeline status` and `penstock doctor` show how it runs",
    **dict.fromkeys(("init", "setup"), "`penstock config init` writes a configuration file"),
    **dict.fromkeys(("check", "validate"), "`penstock config check` and `penstock doctor` check this machine"),
    "help": "`penstock --help` lists the commands",
    **dict.fromkeys(("list", "ls"), "`penstock topics` lists topics"),
    **dict.fromkeys(
        ("logs", "read", "cat"), "`penstock consume TOPIC` prints messages, `penstock events` what happened"
    ),
    **dict.fromkeys(("query", "select"), "`penstock sql QUERY` needs no Spark, `penstock pipeline query` asks Spark"),
    **dict.fromkeys(
        ("write", "publish", "append"), "`penstock produce TOPIC` appends lines, `penstock send` sends them"
    ),
    **dict.fromkeys(("delete", "forget"), "`penstock tables delete` deletes rows, `penstock topic delete` a topic"),
    "restore": "`penstock backup FOLDER --restore NEW` restores a backup",
    **dict.fromkeys(("upgrade", "update"), "install the new version, then `penstock restart` loses no datagram"),
    "quarantine": "`penstock pipeline quarantine` lists and repairs invalid events",
}
"""The next step for a word that is no command, but is one in other programs."""

SECTIONS: dict[str, dict[str, Command]] = {
    "Run": {
        "up": Command("run.up", ["penstock up", "penstock up --no-spark -o log.http=127.0.0.1:9000"]),
        "serve": Command("run.serve", ["penstock serve --config /etc/penstock/penstock.toml"]),
        "reload": Command("run.daemon_commands", ["penstock reload --config /etc/penstock/penstock.toml"]),
        "restart": Command("run.daemon_commands", ["penstock restart --config /etc/penstock/penstock.toml"]),
        "console": Command("run.serve", ["penstock console --http 127.0.0.1:8840"]),
        "postgres": Command("run.serve", ["penstock postgres --address 127.0.0.1:8847"]),
        "config": Command(
            "run.config",
            {
                "init": ["penstock config init"],
                "check": ["penstock config check --config /etc/penstock/penstock.toml"],
                "explain": ["penstock config explain retention", "penstock config explain --changed"],
                "reference": ["penstock config reference http"],
                "add": Command(
                    "run.config",
                    {"listener": ["penstock config add listener --name web --protocol http --port 4318"]},
                ),
            },
        ),
        "users": Command(
            "run.users",
            {
                "add": ["penstock users add ann --role operator", "penstock users add bob@example.org --proxy-only"],
                "remove": ["penstock users remove ann"],
                "list": ["penstock users list"],
            },
        ),
        "doctor": Command("run.doctor", ["penstock doctor"]),
        "clock": Command("run.daemon_commands", ["penstock clock", "penstock clock --accept"]),
        "drill": Command("run.drill", ["penstock drill --minutes 2", "penstock drill --no-spark --seed 7"]),
        "backup": Command(
            "run.backup",
            [
                "penstock backup /srv/backups/monday",
                "penstock backup /srv/backups/monday --restore /var/lib/penstock-2",
            ],
        ),
        "tls": Command(
            "run.tls",
            {
                "init": ["penstock tls init", "penstock tls init /etc/penstock/tls --name logs.example.org"],
            },
        ),
    },
    "Send": {
        "send": Command(
            "listener.send", ["seq 1000 | penstock send", "penstock send app.log --listener events-tcp --tag kt:app"]
        ),
        "tail": Command(
            "log.tail",
            [
                "penstock tail '/var/log/nginx/*.log' --topic nginx",
                "penstock tail --journal --unit nginx.service",
            ],
        ),
        "produce": Command(
            "log.entries",
            ["penstock produce orders < orders.jsonl", "echo paid | penstock produce orders --annotate shop=north"],
        ),
        "ctl": Command(
            "listener.ctl",
            {
                "ping": ["penstock ctl ping --listener events-udp"],
                "stat": ["penstock ctl stat --listener events-udp --json"],
                "envi": ["penstock ctl envi --listener events-udp"],
                "kill": ["penstock ctl kill --listener events-udp"],
            },
        ),
        "stress": Command(
            "listener.stress", ["penstock stress --listener events-udp --rate 20000 --stop-after 100000"]
        ),
    },
    "Read": {
        "consume": Command(
            "log.entries",
            [
                "penstock consume orders --follow",
                "penstock consume orders --from earliest -n 10 --format payload",
                "penstock consume syslog --filter 'k:app_name v:sshd' --cursor watch --follow",
            ],
        ),
        "topics": Command("log.topic_list", ["penstock topics", "penstock topics --rate 5"]),
        "topic": Command(
            "log.topics",
            {
                "create": ["penstock topic create orders stale_after=30d compression=zstd"],
                "configure": ["penstock topic configure orders retain_bytes=10GiB"],
                "show": ["penstock topic show orders"],
                "delete": ["penstock topic delete orders --yes"],
                "forget-cursor": ["penstock topic forget-cursor orders billing"],
            },
        ),
        "sql": Command(
            "tables.sql",
            [
                "penstock sql 'select type, count(*) from events group by type'",
                "penstock sql 'select * from quarantine' --csv > quarantine.csv",
            ],
        ),
        "trace": Command(
            "tables.trace",
            ["penstock trace 4b0e9c53", "penstock trace events:1200", "penstock trace 'connection reset'"],
        ),
        "explain": Command(
            "tables.explain",
            [
                """penstock explain --via gelf '{"short_message": "hello"}'""",
                "penstock explain --file payload.bin --via forward",
            ],
        ),
    },
    "Account": {
        "balance": Command(
            "balance", ["penstock balance", "penstock balance --since 1h --by listener", "penstock balance --rebuild"]
        ),
        "senders": Command(
            "senders", ["penstock senders", "penstock senders --listener events-udp --search 192.0.2. --json"]
        ),
        "events": Command("run.daemon_commands", ["penstock events --since 1h", "penstock events --follow"]),
        "alarms": Command(
            "run.alarms",
            {
                "list": ["penstock alarms list", "penstock alarms list --history"],
                "ack": ["penstock alarms ack PenstockKernelDrops --label listener=web --note 'larger buffer ordered'"],
                "mute": ["penstock alarms mute PenstockTablesBehind --for 2h --note 'planned backfill'"],
                "unmute": ["penstock alarms unmute PenstockTablesBehind"],
                "test": ["penstock alarms test"],
            },
        ),
        "changes": Command("run.users", ["penstock changes", "penstock changes -n 1000 --json"]),
        "audit": Command(
            "audit",
            [
                "penstock audit kafka://broker:9092/orders /data/orders",
                "penstock audit kafka://broker:9092/orders s3://lake/orders --since 24h --json",
            ],
        ),
    },
    "Tables": {
        "pipeline": Command(
            "tables.pipeline",
            {
                "wait": Command("tables.wait", ["penstock pipeline wait --until 14:00 --timeout 10m"]),
                "backfill": Command(
                    "tables.backfill",
                    ["penstock pipeline backfill --topic orders --from 2026-01-31T00:00 --to 2026-02-01T00:00"],
                ),
                "replay": Command(
                    "tables.replay",
                    ["penstock pipeline replay --table events --where \"type = 'order'\" --to orders-again"],
                ),
                "run": ["penstock pipeline run", "penstock pipeline run --once"],
                "query": ["penstock pipeline query 'select count(*) from events'"],
                "status": ["penstock pipeline status --json"],
                "compact": ["penstock pipeline compact"],
                "quarantine": Command(
                    "tables.quarantine",
                    {
                        "groups": ["penstock pipeline quarantine groups"],
                        "list": ["penstock pipeline quarantine list --where missing_uuid -n 5"],
                        "history": ["penstock pipeline quarantine history"],
                        "replay": ["penstock pipeline quarantine replay --where missing_uuid --set uuid '{hash}'"],
                    },
                ),
            },
        ),
        "tables": Command(
            "tables.contents",
            {
                "changes": Command(
                    "tables.changes",
                    [
                        "penstock tables changes --since 1200 --view events",
                        "penstock tables changes --since 1200.3.-1.1770000000000000 --format jsonl",
                    ],
                ),
                "certificate": Command("tables.delete", ["penstock tables certificate 3"]),
                "delete": Command("tables.delete", ["penstock tables delete --where \"uuid='4b0e9c53'\" --yes"]),
                "fill": Command("tables.schema", ["penstock tables fill click"]),
                "refill": Command("tables.schema", ["penstock tables refill click"]),
                "files": ["penstock tables files --view events --json"],
                "rows": ["penstock tables rows"],
                "spark-config": ["penstock tables spark-config --json"],
                "register": [
                    "penstock tables register glue --namespace logs",
                    "penstock tables register thrift://metastore:9083 --namespace logs --json",
                    "penstock tables register https://unity:8443 --namespace main.logs --token-file unity.token",
                ],
                "repair": ["penstock tables repair"],
            },
        ),
        "export": Command(
            "tables.export",
            {
                "list": ["penstock export list"],
                "check": ["penstock export check warehouse", "penstock export check warehouse --json"],
                "run": ["penstock export run warehouse"],
                "rebuild": ["penstock export rebuild warehouse --yes"],
            },
        ),
        "schema": Command(
            "tables.schema",
            {
                "infer": ["penstock schema infer click"],
                "diff": ["penstock schema diff click", "penstock schema diff click --sample 3"],
                "violations": ["penstock schema violations", "penstock schema violations order --json"],
            },
        ),
    },
    "Files": {
        "log": Command(
            "log.topic_files",
            {
                "verify": ["penstock log verify", "penstock log verify orders --json"],
                "compact": ["penstock log compact orders"],
            },
        ),
        "cleanup": Command("log.topics", ["penstock cleanup"]),
        "inspect": Command(
            "listener.inspect",
            [
                "penstock inspect",
                "penstock inspect events-udp --batches",
                "penstock inspect events-udp 64 --format ascii",
            ],
        ),
    },
    "Kafka": {
        "kafka": Command(
            "kafka.broker",
            {
                "start": ["penstock kafka start --port 9092"],
                "produce": ["penstock kafka produce pictures *.png --bootstrap 127.0.0.1:9092"],
                "consume": ["penstock kafka consume pictures --into pictures --bootstrap 127.0.0.1:9092"],
            },
        ),
        "promote": Command("kafka.promote", ["penstock promote orders --to kafka --bootstrap kafka1:9092"]),
    },
}
"""The commands by section, as the help lists them."""
COMMANDS = {name: command for commands in SECTIONS.values() for name, command in commands.items()}


OTHER_EXAMPLES = {"": ["penstock up", "seq 1000 | penstock send", "penstock balance"], "version": ["penstock version"]}


def examples_of(words: str) -> list[str]:
    """Return the examples of a command, named by its words without ``penstock``; a group has one of each command."""
    if words in OTHER_EXAMPLES:
        return OTHER_EXAMPLES[words]
    entries: list[str] | dict[str, list[str] | Command] = {**COMMANDS}
    for name in words.split():
        if not isinstance(entries, dict):
            return []
        entry = entries.get(name, [])
        entries = entry.examples if isinstance(entry, Command) else entry
    if not isinstance(entries, dict):
        return entries
    # Not for ``penstock`` itself, which has examples of its own.
    return [examples_of(f"{words} {name}")[0] for name in entries] if words else []
