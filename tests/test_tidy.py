"""Rules for the language and the layout of rooms that are written in plain language.

A room is added to ``REWRITTEN`` once it follows the rules. ``SHORT_FILES`` and ``TESTED_BY`` list the exceptions.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE, TESTS = ROOT / "penstock", ROOT / "tests"

REWRITTEN = [
    "audit",
    "cli",
    "client",
    "compact_json",
    "config",
    "console",
    "counts",
    "drill",
    "errors",
    "files",
    "handover",
    "ingest",
    "java",
    "kafka",
    "landing",
    "lazy_names",
    "ledger",
    "log",
    "logbuffer",
    "process",
    "proof",
    "qualified_names",
    "records",
    "server",
    "sinks",
    "slogd",
    "spark",
    "sql",
    "supervise",
    "tables",
    "testing",
    "upkeep",
    "wire",
]
"""Rooms of the package that follow the rules, with their tests."""

MAX_FILLER_NAMES, MAX_FILLER_NAMES_IN_TESTS = 0.005, 0.02
"""Share of all assigned names: a few words, such as ``left`` next to ``right``, are filler only in most places."""

MIN_LINES = 60
SHORT_FILES: dict[str, str] = {
    "penstock/client/relay/clients.py": "credentials of two processes, apart from the order of a relay",
    "penstock/drill/injected/sitecustomize.py": "loaded by Python at its start",
    "penstock/files/regular_files.py": "one check, used by secrets and the start",
    "penstock/log/documents.py": "checked documents with the log's errors",
    "penstock/upkeep/repair/unreadable_files.py": "commands import it without delta-rs",
    "penstock/slogd/columns/ipc_message.py": "Arrow's format, apart from the log's, for gRPC and Flight",
    "penstock/log/store/provenance.py": "columns that readers add, apart from the files",
    "penstock/log/topic_patterns.py": "one rule for configuration and readers",
    "penstock/proof/kafka_records.py": "imports Kafka's client only if a table lands from Kafka",
    "penstock/proof/posts/tables.py": "what a rebuilt ledger reads of the tables",
    "penstock/proof/reread/flight.py": "reads over Flight, apart from the folder's reader",
    "penstock/proof/watermarks.py": "one file of the tables, read without the prover",
    "penstock/spark/worker_daemon.py": "a process of its own, which imports nothing else at first",
    "penstock/server/alarms/delivery_process.py": "the entry point of a process",
    "penstock/testing/spark_extensions.py": "settings of Spark's extensions, without the session",
    "penstock/spark/versions.py": "tested versions of Spark, imported before pyspark",
    "penstock/spark/query/part_results.py": "one format between worker and driver",
    "penstock/sql/catalog.py": "names and types, without a connection to the data",
    "penstock/sql/error_text.py": "words of errors, without a connection",
    "penstock/sql/configured.py": "the only module of the room that reads settings",
    "penstock/sql/postgres/session/output.py": "sends bytes, without knowing messages",
    "penstock/sql/postgres/session/startup.py": "one flow of messages, before there is a session",
    "penstock/sql/postgres/session/time_zones.py": "zones by their names, without a session",
    "penstock/sql/postgres/statements/parentheses.py": "one search in tokens, used by translation and arrays",
    "penstock/sql/servers.py": "the entry point of a process",
    "penstock/sql/search.py": "one query, used by console and commands",
    "penstock/sql/tables.py": "the type that all modules of the room share",
    "penstock/wire/forward/codec.py": "the decoder of one codec, as each codec has it",
    "penstock/wire/forward/handshake.py": "one exchange of a protocol, with its cryptography",
    "penstock/wire/gelf/chunks.py": "one wire format",
    "penstock/wire/gelf/unpacking.py": "one rule of GELF, for datagrams and for connections",
    "penstock/wire/growth.py": "limits for the supervisor, which runs without numpy and Arrow",
    "penstock/wire/message_ids.py": "one rule of several protocols",
    "penstock/wire/plog/commands.py": "one wire format",
    "penstock/wire/plog/cutting.py": "the sending side of a format, for tests and stress",
    "penstock/wire/raw.py": "the decoder of one codec, as each codec has it",
    "penstock/wire/request_protocols.py": "imports every request protocol; each of these imports ``requests``",
    "penstock/wire/source_annotations.py": "one rule of all listeners",
    "penstock/ingest/acknowledgements.py": "one invariant, apart from the sockets",
    "penstock/ingest/handler_statistics.py": "a file format of other processes",
    "penstock/ingest/requests/tokens.py": "one rule of two servers, apart from their bodies",
    "penstock/ingest/requests/large_requests.py": "a thread of its own, for two receivers",
    "penstock/audit/redelivery.py": "the only part of an audit that writes",
    "penstock/audit/columns.py": "one list of names, without Arrow",
    "penstock/audit/fields.py": "one syntax, without Arrow",
    "penstock/audit/tables/snapshot_graph.py": "one graph, apart from the reading of files",
    "penstock/audit/pace.py": "one text, shared by all proofs",
    "penstock/audit/sources/dead_letters.py": "the headers of foreign frameworks, without Kafka",
    "penstock/audit/matching/decoder.py": "the only code of a user that an audit runs",
    "penstock/landing/table/landed_table.py": "the format version, checked apart from Delta",
    "penstock/landing/table/one_writer.py": "one property of tables in object stores",
    "penstock/landing/table/synced_files.py": "what a failed sync leaves, apart from Delta",
    "penstock/landing/table/plain_session.py": "settings of other programs, apart from what reads tables",
    "penstock/cli/completion.py": "imported before any command is",
    "penstock/cli/main.py": "the entry point, which imports nothing else at first",
    "penstock/cli/senders.py": "one command",
    "penstock/cli/progress.py": "imports rich.status, which commands without progress do without",
    "penstock/cli/tables/spark_session.py": "imported without the pipeline's modules",
    "penstock/console/components/findings_list.py": "shared by two pages",
    "penstock/console/components/search_input.py": "one grammar, used by three pages",
    "penstock/console/people.py": "imported by the login, the pages and a command",
    "penstock/console/pages/configuration.py": "one page",
    "penstock/console/pages/not_found.py": "one page",
    "penstock/handover/disk_id.py": "a file of its own, which relays and the daemon read",
    "penstock/handover/frames/frame_size.py": "used by the supervisor, which runs without numpy and Arrow",
    "penstock/handover/held_frames.py": "a file format of its own",
    "penstock/handover/positions/lock_holder.py": "reads /proc, apart from who asks",
    "penstock/handover/drain/topic_requests.py": "one rule of plog, on whole batches",
    "penstock/config/default_listeners.py": "read by sources and by the keys, without pydantic",
    "penstock/config/loader.py": "the entry point of the room",
    "penstock/config/syntax/json_path.py": "one rule for paths of fields",
    "penstock/config/nearest_name.py": "one rule for suggestions, without dependencies",
    "penstock/config/syntax/tables_url.py": "one type of value",
    "penstock/config/toml_lines.py": "one search, apart from what reads the file",
    "penstock/config/units.py": "values of fast commands, without pydantic",
    "penstock/config/keys/alarms.py": "one part of the tree",
    "penstock/config/keys/console.py": "one part of the tree",
    "penstock/config/keys/otel.py": "one part of the tree",
    "penstock/config/keys/secrets.py": "the one place that masks",
    "penstock/config/keys/sql.py": "one part of the tree",
    "penstock/config/keys/security/senders.py": "one part of the tree",
    "penstock/config/keys/values.py": "types of all parts of the tree",
    "penstock/files/checked_document.py": "a file format of its own",
    "penstock/files/disk_space.py": "one rule for full disks, used by several rooms",
    "penstock/files/secret_files.py": "one rule of access, used by the whole configuration",
    "penstock/process/servers/event_loop.py": "one workaround for asyncio",
    "penstock/files/checked_word.py": "a memory format of its own",
    "penstock/files/json_values.py": "strict JSON without the dependencies of the file formats",
    "penstock/sinks/handler_check.py": "the command of a process of its own",
    "penstock/sinks/handler.py": "the interface of handlers, without their dependencies",
    "penstock/supervise/endpoints.py": "read by commands, without the supervisor",
    "penstock/supervise/data_directory.py": "one lock, which commands check without the supervisor",
    "penstock/supervise/removed_handlers.py": "called by the supervisor, which must not load Arrow",
    "penstock/compact_json.py": "the encoder of every room, below all of them",
    "penstock/log/retention/sweeper.py": "a thread of its own, which imports the whole log",
    "penstock/process/servers/port_owner.py": "reads /proc/net and /proc/PID/fd, apart from who binds",
    "penstock/process/servers/bounded_calls.py": "one limit of all gRPC servers",
    "penstock/process/servers/connection_limit.py": "reads /proc/self/fd, apart from the calls of a server",
    "penstock/process/servers/in_flight_bytes.py": "one limit of two servers",
    "penstock/process/servers/lingering_transport.py": "a close that waits; imported by the connection",
    "penstock/process/kernel.py": "the calls of Linux",
    "penstock/process/process_end.py": "a workaround of its own",
    "penstock/process/module_search.py": "the search of modules, for each process that starts another one",
    "penstock/process/terminal.py": "two functions on texts, without dependencies",
    "penstock/qualified_names.py": "one rule of several rooms, below all of them",
    "penstock/lazy_names.py": "a helper of every room's __init__, below all of them",
    "penstock/client/log/admin.py": "one group of a client's operations",
    "penstock/client/log/async_client.py": "the public class, without the blocking client",
    "penstock/kafka/client/delivery_reports.py": "the reports of one message, without librdkafka",
    "penstock/kafka/client/message_batch.py": "the arguments of one call, without the producer",
    "penstock/kafka/client/properties.py": "names of librdkafka, shared by producer and consumer",
    "penstock/ledger/audit_counts.py": "counts next to the balance that are not a term of it",
    "penstock/ledger/checkpoint_keeper.py": "a thread of its own",
    "penstock/logbuffer/aeron/claims.py": "one class of Aeron's API",
    "penstock/logbuffer/aeron/fragments.py": "one class of Aeron's API",
    "penstock/logbuffer/frame_search.py": "one search of readers and recovery",
    "penstock/server/auth/server_tls.py": "used by every server, without their dependencies",
    "penstock/server/grpc/call_errors.py": "errors of gRPC and Flight, apart from their calls",
    "penstock/server/grpc/closed_calls.py": "one check, used by two servers",
    "penstock/server/http/body_limits.py": "joins limits of all HTTP servers with the API's errors",
    "penstock/server/http/docs_page.py": "imported when the page is first requested",
    "penstock/server/kafka/connection/sasl.py": "one protocol within the protocol",
    "penstock/server/kafka/limits.py": "read by the daemon, without the endpoint",
    "penstock/server/kafka/schema/stored_answers.py": "a fast path of its own",
    "penstock/server/metrics/topic_metrics.py": "reads files of topics, apart from the text format",
    "penstock/server/read_ahead/limits.py": "all limits of the room, which tests lower",
    "penstock/upkeep/compaction/annotation_repair.py": "a workaround for rows of an earlier version",
    "penstock/upkeep/compaction/typed_compaction.py": "typed tables, apart from the landed table",
    "penstock/upkeep/deletion/certificate.py": "a document for people, apart from the deletions",
    "penstock/upkeep/deletion/foreign.py": "deletions of other programs, apart from requested ones",
    "penstock/upkeep/deletion/typed_removal.py": "typed tables, apart from the landed table",
    "penstock/landing/mirror_lag.py": "one file, written by the mirror and read by maintenance",
    "penstock/upkeep/iceberg/synced_io.py": "a class that PyIceberg loads by its name",
    "penstock/upkeep/quarantine/preview.py": "reads only, apart from the code that sends",
    "penstock/upkeep/typed/fill.py": "one command",
    "penstock/landing/typed/contracts.py": "rules on values, apart from types and from events",
    "penstock/landing/damaged_files.py": "a file format of its own",
}
"""Reason of each file with fewer lines. ``__init__``, ``__main__`` and ``errors`` files need none."""

TESTED_BY: dict[str, str] = {
    "penstock/upkeep/repair/unreadable_files.py": "tests/upkeep/deletion/test_returned_rows.py",
    "penstock/ingest/line_publisher.py": "tests/ingest/test_tcp.py",
    "penstock/ingest/requests/otlp_export.py": "tests/ingest/requests/test_otlp_grpc.py",
    "penstock/client/relay/clients.py": "tests/client/relay/test_relay.py",
    "penstock/handover/sender_reading.py": "tests/handover/test_sender_table.py",
    "penstock/process/servers/call_queue.py": "tests/server/grpc/test_call_server.py",
    "penstock/process/servers/calls.py": "tests/server/grpc/test_call_server.py",
    "penstock/drill/disasters.py": "tests/drill/test_verdict.py",
    "penstock/drill/injected/sitecustomize.py": "tests/drill/test_faults.py",
    "penstock/drill/pipe.py": "tests/drill/test_verdict.py",
    "penstock/drill/senders.py": "tests/drill/test_verdict.py",
    "penstock/log/commit/deduplication.py": "tests/log/store/test_producers.py",
    "penstock/log/commit/writer.py": "tests/log/test_topic.py",
    "penstock/log/documents.py": "tests/log/test_topic_state.py",
    "penstock/landing/md5_columns.py": "tests/landing/test_row_sums.py",
    "penstock/landing/row_hashes.py": "tests/proof/test_row_proofs.py",
    "penstock/proof/deleted_rows.py": "tests/upkeep/deletion/test_removal.py",
    "penstock/proof/foreign_deletions.py": "tests/upkeep/deletion/test_foreign.py",
    "penstock/proof/commit_faults.py": "tests/upkeep/deletion/test_foreign.py",
    "penstock/proof/commit_notes.py": "tests/upkeep/deletion/test_foreign.py",
    "penstock/proof/kafka_records.py": "tests/spark/test_kafka_balance.py",
    "penstock/proof/proofs.py": "tests/proof/test_prover.py",
    "penstock/proof/reread/messages.py": "tests/proof/reread/test_flight.py",
    "penstock/proof/rows_of_batches.py": "tests/engines/test_foreign_writers.py",
    "penstock/upkeep/repair/reread_rows.py": "tests/upkeep/repair/test_restore.py",
    "penstock/upkeep/repair/lost_column.py": "tests/upkeep/repair/test_restore.py",
    "penstock/proof/posts/tables.py": "tests/spark/test_kafka_balance.py",
    "penstock/proof/watermarks.py": "tests/landing/test_damaged_files.py",
    "penstock/testing/spark_extensions.py": "tests/spark/test_versions.py",
    "penstock/spark/views.py": "tests/spark/query/test_landing_query.py",
    "penstock/sql/configured.py": "tests/system/test_sql.py",
    "penstock/sql/cut.py": "tests/sql/test_query.py",
    "penstock/sql/log_tail.py": "tests/sql/test_query.py",
    "penstock/sql/flight_sql/service.py": "tests/sql/flight_sql/test_server.py",
    "penstock/sql/postgres/session/client_catalog.py": "tests/sql/postgres/test_access.py",
    "penstock/sql/postgres/session/execution.py": "tests/sql/postgres/session/test_session.py",
    "penstock/sql/postgres/session/output.py": "tests/sql/postgres/session/test_session.py",
    "penstock/sql/postgres/catalog/system_tables.py": "tests/sql/postgres/catalog/test_system_catalog.py",
    "penstock/sql/tables.py": "tests/sql/test_query.py",
    "penstock/tables.py": "tests/engines/test_foreign_engines.py",
    "penstock/audit/sources/kafka_source.py": "tests/audit/test_audit.py",
    "penstock/audit/sources/open_source.py": "tests/audit/sources/test_table_source.py",
    "penstock/audit/outcome.py": "tests/audit/test_audit.py",
    "penstock/audit/source.py": "tests/audit/test_audit.py",
    "penstock/audit/matching/staging.py": "tests/audit/matching/test_content.py",
    "penstock/audit/reports/report.py": "tests/audit/test_audit.py",
    "penstock/audit/tables/delta.py": "tests/audit/test_audit.py",
    "penstock/audit/tables/landed.py": "tests/spark/query/test_kafka_landing.py",
    "penstock/audit/tables/history.py": "tests/audit/tables/test_iceberg.py",
    "penstock/audit/tables/iceberg_location.py": "tests/audit/tables/test_iceberg.py",
    "penstock/audit/tables/iceberg_scan.py": "tests/audit/tables/test_iceberg.py",
    "penstock/audit/tables/snapshot_graph.py": "tests/audit/tables/test_iceberg.py",
    "penstock/audit/tables/sql_databases.py": "tests/audit/tables/test_sql_table.py",
    "penstock/cli/audit.py": "tests/audit/test_audit.py",
    "penstock/landing/from_kafka/offset_map.py": "tests/upkeep/promote/test_promotion.py",
    "penstock/landing/from_kafka/read_back.py": "tests/proof/reread/test_kafka.py",
    "penstock/landing/requests/deletions.py": "tests/upkeep/deletion/test_removal.py",
    "penstock/landing/table/table_reader.py": "tests/landing/table/test_delta_table.py",
    "penstock/landing/event_rules.py": "tests/landing/rows/test_json_events.py",
    "penstock/landing/history.py": "tests/proof/test_rollup.py",
    "penstock/landing/landing_lock.py": "tests/spark/test_pipeline.py",
    "penstock/landing/table_paths.py": "tests/landing/table/test_row_counts.py",
    "penstock/landing/table_schema.py": "tests/landing/table/test_delta_table.py",
    "penstock/landing/storage/object_errors.py": "tests/landing/storage/test_object_path.py",
    "penstock/landing/table/plain_session.py": "tests/engines/test_foreign_engines.py",
    "penstock/landing/transform/json_texts.py": "tests/landing/transform/test_redaction.py",
    "penstock/landing/topics/from_folder.py": "tests/landing/topics/test_topic_store.py",
    "penstock/landing/typed/column_types.py": "tests/landing/typed/test_columns.py",
    "penstock/landing/typed/evaluation.py": "tests/landing/typed/test_columns.py",
    "penstock/landing/typed/typed_delta.py": "tests/landing/typed/test_typed_tables.py",
    "penstock/landing/typed/typed_files.py": "tests/landing/typed/test_typed_tables.py",
    "penstock/cli/balance_tables.py": "tests/cli/run/test_sample_tour.py",
    "penstock/cli/command_line.py": "tests/cli/test_main.py",
    "penstock/cli/kafka/files.py": "tests/cli/kafka/test_broker.py",
    "penstock/cli/kafka/promote.py": "tests/upkeep/promote/test_promotion.py",
    "penstock/cli/listener/send.py": "tests/system/test_stress.py",
    "penstock/cli/listener/stress.py": "tests/system/test_stress.py",
    "penstock/cli/log/connect.py": "tests/cli/log/test_topics.py",
    "penstock/cli/log/topic_list.py": "tests/cli/log/test_topics.py",
    "penstock/cli/run/api_reference.py": "tests/test_docs.py",
    "penstock/cli/run/backup.py": "tests/upkeep/test_backup.py",
    "penstock/cli/run/config_reference.py": "tests/test_docs.py",
    "penstock/cli/tables/explain.py": "tests/system/test_docs.py",
    "penstock/cli/tables/replay.py": "tests/system/test_docs.py",
    "penstock/cli/tables/spark_session.py": "tests/cli/tables/test_pipeline.py",
    "penstock/handover/positions/accounts.py": "tests/sinks/test_forwarder.py",
    "penstock/handover/frames/frame_metadata.py": "tests/handover/frames/test_frame.py",
    "penstock/handover/positions/lost_position.py": "tests/handover/test_buffer.py",
    "penstock/handover/paths.py": "tests/handover/test_whole_life.py",
    "penstock/handover/reader.py": "tests/handover/drain/test_drain.py",
    "penstock/handover/drain/splitter.py": "tests/handover/drain/test_drain.py",
    "penstock/console/main.py": "tests/system/test_console.py",
    "penstock/console/people.py": "tests/console/test_login.py",
    "penstock/cli/run/users.py": "tests/console/test_users.py",
    "penstock/console/components/receipt_details.py": "tests/system/test_newcomer.py",
    "penstock/console/components/theme.py": "tests/system/test_console.py",
    "penstock/console/pages/configuration.py": "tests/system/test_console.py",
    "penstock/console/pages/kafka.py": "tests/system/test_console.py",
    "penstock/console/pages/listeners.py": "tests/system/test_console.py",
    "penstock/console/pages/not_found.py": "tests/system/test_newcomer.py",
    "penstock/console/pages/overview.py": "tests/system/test_console.py",
    "penstock/console/pages/quarantine.py": "tests/system/test_newcomer.py",
    "penstock/console/pages/panels/receipt.py": "tests/system/test_newcomer.py",
    "penstock/console/pages/panels/send_message.py": "tests/system/test_newcomer.py",
    "penstock/console/pages/sql.py": "tests/system/test_console.py",
    "penstock/console/pages/topic.py": "tests/system/test_console.py",
    "penstock/console/pages/topics.py": "tests/system/test_newcomer.py",
    "penstock/config/default_listeners.py": "tests/config/keys/test_tree.py",
    "penstock/config/keys/alarms.py": "tests/server/alarms/test_delivery.py",
    "penstock/config/keys/console.py": "tests/config/test_explain.py",
    "penstock/config/keys/log.py": "tests/config/keys/test_tree.py",
    "penstock/config/keys/otel.py": "tests/server/metrics/test_opentelemetry.py",
    "penstock/config/keys/secrets.py": "tests/config/keys/test_handlers.py",
    "penstock/config/keys/security/senders.py": "tests/ingest/test_tls.py",
    "penstock/config/keys/sql.py": "tests/sql/postgres/test_server.py",
    "penstock/config/keys/values.py": "tests/config/keys/test_tree.py",
    "penstock/config/loader.py": "tests/config/test_sources.py",
    "penstock/config/units.py": "tests/config/keys/test_tree.py",
    "penstock/log/read/filter_syntax.py": "tests/log/read/test_filters.py",
    "penstock/log/read/segment_view.py": "tests/log/read/test_topic_reader.py",
    "penstock/log/retention/maintenance.py": "tests/log/retention/test_dropping.py",
    "penstock/log/transactions/atomic_commit.py": "tests/log/transactions/test_transactions.py",
    "penstock/log/transactions/staging.py": "tests/log/transactions/test_transactions.py",
    "penstock/sinks/handler.py": "tests/sinks/test_handler_factory.py",
    "penstock/sinks/handler_check.py": "tests/sinks/test_handler_factory.py",
    "penstock/supervise/waiting_frames.py": "tests/supervise/test_removed_handlers.py",
    "penstock/ingest/receiver.py": "tests/system/test_receivers.py",
    "penstock/supervise/data_directory.py": "tests/supervise/test_supervisor.py",
    "penstock/ledger/book/book_pages.py": "tests/ledger/book/test_checkpoint.py",
    "penstock/cli/host_balance.py": "tests/cli/test_balance.py",
    "penstock/server/metrics/recorded_metrics.py": "tests/server/api/test_monitoring.py",
    "penstock/cli/run/up_processes.py": "tests/cli/run/test_up.py",
    "penstock/audit/tables/address.py": "tests/audit/tables/test_table.py",
    "penstock/wire/codecs.py": "tests/wire/test_own_codec.py",
    "penstock/wire/forward/codec.py": "tests/wire/forward/test_splitter.py",
    "penstock/wire/forward/handshake.py": "tests/wire/forward/test_splitter.py",
    "penstock/wire/forward/event_rows.py": "tests/wire/forward/test_splitter.py",
    "penstock/wire/forward/requests.py": "tests/wire/forward/test_splitter.py",
    "penstock/wire/gelf/chunks.py": "tests/wire/gelf/test_codec.py",
    "penstock/wire/growth.py": "tests/wire/test_sender_text.py",
    "penstock/wire/framing/line_framing.py": "tests/wire/framing/test_lines.py",
    "penstock/wire/otlp/json_requests.py": "tests/wire/otlp/test_protocol.py",
    "penstock/wire/otlp/values.py": "tests/wire/otlp/test_records.py",
    "penstock/wire/requests.py": "tests/wire/http/test_hec.py",
    "penstock/wire/syslog/framing.py": "tests/wire/syslog/test_codec.py",
    "penstock/wire/syslog/octets.py": "tests/wire/syslog/test_headers.py",
    "penstock/testing/simulation/__main__.py": "tests/testing/simulation/test_run.py",
    "penstock/testing/simulation/daemon.py": "tests/testing/simulation/test_run.py",
    "penstock/testing/simulation/readers.py": "tests/testing/simulation/test_run.py",
    "penstock/testing/simulation/receiver.py": "tests/testing/simulation/test_run.py",
    "penstock/testing/simulation/senders.py": "tests/testing/simulation/test_run.py",
    "penstock/testing/simulation/stepped_run.py": "tests/testing/simulation/test_run.py",
    "penstock/testing/simulation/groups/administrators.py": "tests/testing/simulation/groups/test_run.py",
    "penstock/testing/simulation/groups/connections.py": "tests/testing/simulation/groups/test_producers.py",
    "penstock/testing/simulation/groups/event_loop.py": "tests/testing/simulation/groups/test_run.py",
    "penstock/testing/simulation/groups/members.py": "tests/testing/simulation/groups/test_run.py",
    "penstock/testing/simulation/groups/promises.py": "tests/testing/simulation/groups/test_run.py",
    "penstock/testing/simulation/groups/server.py": "tests/testing/simulation/groups/test_run.py",
    "penstock/testing/simulation/groups/transport.py": "tests/testing/simulation/groups/test_producers.py",
    "penstock/testing/simulation/sockets/faults.py": "tests/testing/simulation/sockets/test_run.py",
    "penstock/testing/simulation/sockets/kernel.py": "tests/testing/simulation/sockets/test_run.py",
    "penstock/testing/simulation/sockets/listeners.py": "tests/testing/simulation/sockets/test_run.py",
    "penstock/testing/simulation/sockets/promises.py": "tests/testing/simulation/sockets/test_run.py",
    "penstock/testing/simulation/sockets/recount.py": "tests/testing/simulation/sockets/test_run.py",
    "penstock/testing/simulation/sockets/replacements.py": "tests/testing/simulation/sockets/test_run.py",
    "penstock/testing/simulation/sockets/senders.py": "tests/testing/simulation/sockets/test_run.py",
    "penstock/testing/simulation/sockets/stream_senders.py": "tests/testing/simulation/sockets/test_run.py",
    "penstock/testing/simulation/sockets/streams.py": "tests/testing/simulation/sockets/test_run.py",
    "penstock/testing/simulation/landing/faults.py": "tests/testing/simulation/landing/test_run.py",
    "penstock/testing/simulation/landing/pipeline.py": "tests/testing/simulation/landing/test_run.py",
    "penstock/testing/simulation/landing/planner.py": "tests/testing/simulation/landing/test_run.py",
    "penstock/testing/simulation/landing/programs.py": "tests/testing/simulation/landing/test_run.py",
    "penstock/testing/simulation/landing/promises.py": "tests/testing/simulation/landing/test_run.py",
    "penstock/testing/simulation/landing/replacements.py": "tests/testing/simulation/landing/test_run.py",
    "penstock/testing/simulation/landing/tables_disk.py": "tests/testing/simulation/landing/test_run.py",
    "penstock/process/servers/http_limits.py": "tests/server/http/test_body_limits.py",
    "penstock/client/log/admin_calls.py": "tests/client/log/test_admin.py",
    "penstock/client/log/arrow_reads.py": "tests/client/log/test_flight_reads.py",
    "penstock/client/log/batching/async_batcher.py": "tests/client/log/batching/test_batcher.py",
    "penstock/client/log/channels.py": "tests/client/log/test_connection_retry.py",
    "penstock/client/log/connection.py": "tests/client/log/test_connection_retry.py",
    "penstock/client/log/operations.py": "tests/client/log/test_client.py",
    "penstock/client/log/retrying_caller.py": "tests/client/log/test_connection_retry.py",
    "penstock/client/log/types.py": "tests/client/log/test_client.py",
    "penstock/client/send_many.py": "tests/client/test_sender.py",
    "penstock/kafka/auditing/auditor.py": "tests/kafka/auditing/test_interval_auditor.py",
    "penstock/kafka/auditing/stats.py": "tests/kafka/auditing/test_log_auditor.py",
    "penstock/kafka/client/claim_check_advice.py": "tests/kafka/client/test_producer.py",
    "penstock/kafka/client/consumer.py": "tests/kafka/client/test_consumer_commit.py",
    "penstock/kafka/client/message_batch.py": "tests/kafka/client/test_producer.py",
    "penstock/kafka/client/properties.py": "tests/kafka/client/test_config.py",
    "penstock/kafka/client/seekable_consumer.py": "tests/kafka/client/test_consumer_seek.py",
    "penstock/kafka/client/start_offsets.py": "tests/kafka/client/test_consumer_seek.py",
    "penstock/kafka/records/compression.py": "tests/server/kafka/records/test_decode.py",
    "penstock/ledger/hosts/host_posts.py": "tests/ledger/hosts/test_hosts.py",
    "penstock/ledger/hosts/host_states.py": "tests/ledger/hosts/test_hosts.py",
    "penstock/ledger/hosts/over_kafka.py": "tests/ledger/hosts/test_kafka_hosts.py",
    "penstock/ledger/balance_from_topics.py": "tests/ledger/test_ledger.py",
    "penstock/ledger/book/book.py": "tests/ledger/test_balance.py",
    "penstock/ledger/checkpoint_keeper.py": "tests/ledger/book/test_book_from_topics.py",
    "penstock/logbuffer/aeron/appender.py": "tests/logbuffer/aeron/test_publication.py",
    "penstock/logbuffer/aeron/claims.py": "tests/logbuffer/aeron/test_publication.py",
    "penstock/logbuffer/appender.py": "tests/logbuffer/test_publication.py",
    "penstock/logbuffer/frame_search.py": "tests/logbuffer/test_lapped.py",
    "penstock/logbuffer/mapped.py": "tests/logbuffer/test_publication.py",
    "penstock/server/auth/permitted_topics.py": "tests/server/api/test_entries.py",
    "penstock/server/flight/puts.py": "tests/server/flight/test_server.py",
    "penstock/server/grpc/admin_calls.py": "tests/server/api/test_administration.py",
    "penstock/server/grpc/call_threads.py": "tests/server/grpc/test_call_server.py",
    "penstock/server/grpc/calls.py": "tests/server/grpc/test_call_server.py",
    "penstock/server/grpc/closed_calls.py": "tests/server/grpc/test_reflection.py",
    "penstock/server/grpc/pulled_answers.py": "tests/server/flight/test_server.py",
    "penstock/server/http/admin_routes.py": "tests/server/api/test_administration.py",
    "penstock/server/http/monitoring_routes.py": "tests/server/api/test_monitoring_rights.py",
    "penstock/server/kafka/calls.py": "tests/server/kafka/entries/test_produce.py",
    "penstock/server/kafka/connection/connection.py": "tests/server/kafka/test_limits.py",
    "penstock/server/kafka/endpoint.py": "tests/server/kafka/test_limits.py",
    "penstock/server/kafka/groups/groups.py": "tests/server/kafka/test_confluent.py",
    "penstock/server/kafka/metadata/cluster.py": "tests/server/kafka/test_limits.py",
    "penstock/server/kafka/metadata/topics.py": "tests/server/kafka/test_confluent.py",
    "penstock/server/kafka/records/headers.py": "tests/server/kafka/records/test_decode.py",
    "penstock/server/kafka/schema/reading.py": "tests/server/kafka/schema/test_messages.py",
    "penstock/server/read_ahead/limits.py": "tests/server/read_ahead/test_page_cache.py",
    "penstock/upkeep/compaction/typed_compaction.py": "tests/upkeep/deletion/test_typed_removal.py",
    "penstock/landing/mirror_lag.py": "tests/upkeep/iceberg/test_mirror.py",
    "penstock/upkeep/export/clickhouse.py": "tests/upkeep/export/test_exporter.py",
    "penstock/upkeep/export/delta_copy.py": "tests/upkeep/export/test_exporter.py",
    "penstock/upkeep/export/duckdb_file.py": "tests/upkeep/export/test_exporter.py",
    "penstock/upkeep/export/postgresql.py": "tests/upkeep/export/test_exporter.py",
    "penstock/upkeep/export/row_differences.py": "tests/upkeep/export/test_check.py",
    "penstock/upkeep/export/target.py": "tests/upkeep/export/test_exporter.py",
    "penstock/upkeep/iceberg/synced_io.py": "tests/upkeep/iceberg/test_mirrored_table.py",
    "penstock/upkeep/maintenance.py": "tests/upkeep/deletion/test_removal.py",
    "penstock/upkeep/promote/kafka_writer.py": "tests/upkeep/promote/test_promotion.py",
    "penstock/upkeep/quarantine/send_once.py": "tests/upkeep/quarantine/test_send_back.py",
    "penstock/upkeep/trace/find_message.py": "tests/upkeep/trace/test_tracer.py",
    "penstock/upkeep/trace/stations.py": "tests/upkeep/trace/test_tracer.py",
    "penstock/upkeep/typed/found_fields.py": "tests/upkeep/typed/test_differences.py",
}
"""Test of a module that has no test file of its own name."""

NAME_WORDS = """
again anew aside asked asks at begun beside done ended found given goes gone had has heard it its kept known left made
meant mine moved none nothing one ones other others own place places put said say says shown so some such taken tell
tells that them thing things this told wanted what whatever which who whoever whole whose
"""
FUNCTION_WORDS = "ask come find go keep know of out stand stands take went"
CONNECTING = "a all an and are as at by for from in is many much no not on or so the they to was were with"
FILLER_NAMES = frozenset(NAME_WORDS.split())
FILLER_FUNCTION_WORDS = FILLER_NAMES | frozenset(FUNCTION_WORDS.split())
CONNECTING_WORDS = frozenset(CONNECTING.split())

OPENING = re.compile(r"(?:Those|What|Who|Which|That|Where|How|As|Of|In|By|Likewise|So|Also|None|One|Its?)\b")
PHRASES = [
    r"\b(?:which|what|that) is none\b",
    r"\bthose (?:of|that|there|which)\b",
    r"\bthat there (?:is|are)\b",
    r"\b(?:is|are) to be\b",
    r"\b(?:anew|aside|beside|meanwhile|thereby|of late|as yet|how manieth)\b",
    r"\b(?:whoever|whatever|whichever|everybody|nobody)\b",
    r"\b(?:is|are|was|were) told\b|\btells? (?:by|how|of|what|which)\b",
    r"\bstands? (?:alone|at|behind|beside|for|in|there|with)\b",
    r"\bas (?:it|they) (?:is|are|was|were)\b",
    r"\bwhere (?:there|it|they) (?:is|are)\b",
]
MISSING_DOCUMENTS = re.compile(
    r"\b(?:the|that) seed(?:'s)? (?:asks|demands|requires|says|wants)\b|\b(?:of|in|see) the seed\b(?! of)"
    r"|\b[Ss]pecification [A-Z]\d|\bthe balance, section \d|\bsection [\d.]+ of the (?:balance|seed|specification)\b"
)
"""A reference to notes that are not in the repository."""
PAGE = re.compile(r"(?<![\w/.-])(?:docs/)?[\w./-]*\w\.md\b")


class Texts(NamedTuple):
    """The assigned names, functions and docstrings of a file, each with its line."""

    names: list[tuple[str, int]]
    functions: list[tuple[str, int]]
    plain_functions: list[tuple[str, int]]
    """The functions without a decorator."""
    docstrings: list[tuple[str, int]]


@cache
def texts_of(path: Path) -> Texts:
    """Return the texts of a file, which several tests read."""
    return find_texts(ast.parse(path.read_text()))


def find_texts(tree: ast.Module) -> Texts:
    """Return the texts of a syntax tree; names are variables, arguments, fields and attributes that are assigned."""
    texts = Texts([], [], [], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                texts.names.append((node.id, node.lineno))
        elif isinstance(node, ast.Attribute):
            if isinstance(node.ctx, ast.Store):
                texts.names.append((node.attr, node.lineno))
        elif isinstance(node, ast.arg):
            texts.names.append((node.arg, node.lineno))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            texts.functions.append((node.name, node.lineno))
            if not node.decorator_list:
                texts.plain_functions.append((node.name, node.lineno))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            texts.docstrings.append((node.value.value, node.lineno))
    return texts


def modules(room: str) -> list[Path]:
    """Return the files of a room."""
    paths = [*(PACKAGE / room).rglob("*.py"), *PACKAGE.glob(f"{room}.py")]
    return sorted(path for path in paths if "_pb2" not in path.name)


def test_files(room: str) -> list[Path]:
    """Return the files below the folder of tests of a room."""
    return sorted([*(TESTS / room).rglob("*.py"), *TESTS.glob(f"test_{room}.py")])


test_files.__test__ = False  # type: ignore[attr-defined]  # pytest collects functions by their name


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def is_filler_function(name: str) -> bool:
    """Report whether a name has only words that fit any function."""
    if name.startswith("__"):
        return False
    words = {word for word in name.strip("_").lower().split("_") if word}
    return words <= FILLER_FUNCTION_WORDS | CONNECTING_WORDS


def filler_names(paths: list[Path]) -> tuple[list[str], int]:
    """Return each filler name with its line, and the number of all names."""
    names = [(path, name, line) for path in paths for name, line in texts_of(path).names]
    paired = {path for path, name, _ in names if name.strip("_") == "right"}  # there `left` is a side
    filler = [
        f"{relative(path)}:{line} {name}"
        for path, name, line in names
        if (word := name.strip("_")) in FILLER_NAMES and not (word == "left" and path in paired)
    ]
    return filler, len(names)


def test_filler_names_and_functions_are_recognised() -> None:
    tree = ast.parse("found = 1\ndef f(told, row): self._kept, size = 2, 3\n")
    assert [name for name, _ in find_texts(tree).names if name.strip("_") in FILLER_NAMES] == ["found", "told", "_kept"]
    assert all(is_filler_function(name) for name in ("_told", "of", "_is_known", "made_of", "_find_out"))
    assert not any(
        is_filler_function(name) for name in ("__of__", "find_cached_page", "from_batch", "_load_known_keys")
    )


def test_references_to_missing_documents_are_recognised() -> None:
    missing = ["as the seed says", "specification B1", "section 5 of the balance", "the balance, section 5"]
    assert all(MISSING_DOCUMENTS.search(text) for text in missing)
    assert not any(
        MISSING_DOCUMENTS.search(text) for text in ("the seed of a random run", "docs/accounting.md, section 5")
    )
    assert PAGE.findall("See docs/accounting.md (section 5) and README.md.") == ["docs/accounting.md", "README.md"]


@pytest.mark.parametrize("room", REWRITTEN)
def test_names_say_what_they_hold(room: str) -> None:
    names, total = filler_names(modules(room))
    assert len(names) <= MAX_FILLER_NAMES * total, names


@pytest.mark.parametrize("room", REWRITTEN)
def test_names_in_tests_say_what_they_hold(room: str) -> None:
    names, total = filler_names(test_files(room))
    assert len(names) <= MAX_FILLER_NAMES_IN_TESTS * total, names


@pytest.mark.parametrize("room", REWRITTEN)
def test_functions_are_named_by_verb_and_object(room: str) -> None:
    paths = [*modules(room), *test_files(room)]
    defined = [(path, name, line) for path in paths for name, line in texts_of(path).functions]
    assert not [f"{relative(path)}:{line} {name}" for path, name, line in defined if is_filler_function(name)]


@pytest.mark.parametrize("room", REWRITTEN)
def test_names_of_tests_begin_with_a_subject(room: str) -> None:
    opening = re.compile(r"test_(?:what|who|where|when|which|how|it|of|those)_")
    defined = [(path, name) for path in test_files(room) for name, _ in texts_of(path).functions]
    assert not [f"{relative(path)} {name}" for path, name in defined if opening.match(name)]


@pytest.mark.parametrize("room", REWRITTEN)
def test_docstrings_are_plain_sentences(room: str) -> None:
    wrong = []
    for path in [*modules(room), *test_files(room)]:
        for text, line in texts_of(path).docstrings:
            hits = [match[0] for phrase in PHRASES if (match := re.search(phrase, text))]
            hits += [match[0] for match in [OPENING.match(text)] if match]
            wrong += [f"{relative(path)}:{line} {hit!r}" for hit in hits]
    assert not wrong


@cache
def docstrings_without_a_verb() -> list[str]:
    """Return ruff's findings in the package, one a line, from one run for all rooms."""
    command = [sys.executable, "-m", "ruff", "check", "--quiet", "--select", "D401", "--config", "lint.ignore=[]"]
    command += ["--output-format=concise", str(PACKAGE)]
    report = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert report.returncode in (0, 1), report.stderr
    return [line for line in report.stdout.splitlines() if ": D401" in line]


@pytest.mark.parametrize("room", REWRITTEN)
def test_docstrings_of_functions_begin_with_a_verb(room: str) -> None:
    places = (f"penstock/{room}/", f"penstock/{room}.py:")
    assert not [line for line in docstrings_without_a_verb() if line.startswith(places)]


@pytest.mark.parametrize("room", REWRITTEN)
def test_a_short_file_has_a_reason(room: str) -> None:
    free = {"__init__.py", "__main__.py", "errors.py"}
    short = {relative(p) for p in modules(room) if p.name not in free and len(p.read_text().splitlines()) < MIN_LINES}
    assert not short - {*SHORT_FILES}


@pytest.mark.parametrize("room", REWRITTEN)
def test_each_module_has_a_test_file(room: str) -> None:
    untested = []
    for path in modules(room):
        inner = path.relative_to(PACKAGE)
        if path.name in ("__init__.py", "errors.py") or (TESTS / inner.parent / f"test_{inner.name}").exists():
            continue
        test = ROOT / TESTED_BY.get(relative(path), "missing")
        if not test.exists():
            untested.append(relative(path))
    assert not untested


@cache
def words_of_the_package() -> dict[str, int]:
    """Return how often each private word is used in the package."""
    uses: dict[str, int] = {}
    for path in PACKAGE.rglob("*.py"):
        for word in re.findall(r"\b_[a-z]\w*", path.read_text()):
            uses[word] = uses.get(word, 0) + 1
    return uses


@pytest.mark.parametrize("room", REWRITTEN)
def test_each_private_function_is_called(room: str) -> None:
    # A decorator may register its function (validators, routes), and Python calls names in underscores (`_missing_`).
    unused = [
        f"{relative(path)}:{line} {name}"
        for path in modules(room)
        for name, line in texts_of(path).plain_functions
        if name.startswith("_") and not name.endswith("_")
        if words_of_the_package()[name] == 1
    ]
    assert not unused


@pytest.mark.parametrize("room", REWRITTEN)
def test_each_document_that_is_cited_is_in_the_repository(room: str) -> None:
    wrong = []
    for path in [*modules(room), *test_files(room)]:
        text = path.read_text()
        wrong += [f"{relative(path)} {match[0]!r}" for match in MISSING_DOCUMENTS.finditer(text)]
        if path.is_relative_to(PACKAGE):
            pages = {*PAGE.findall(text)}
            wrong += [
                f"{relative(path)} {page}"
                for page in pages
                if not ((ROOT / page).exists() or (ROOT / "docs" / page).exists())
            ]
    assert not wrong


def test_exceptions_are_still_needed() -> None:
    for path in [*SHORT_FILES, *TESTED_BY]:
        assert (ROOT / path).exists(), f"{path} is gone"
