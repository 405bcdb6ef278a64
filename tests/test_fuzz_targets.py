"""Every parser that meets a socket or a file has a property test that hands it anything: what ``make fuzz`` runs.

A module parses where it calls something that makes values of bytes or of a file; all of ``wire/`` does. A new one
must be entered below: with its test, or with the reason why what it reads cannot be anything.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARSING = {
    *("loads", "unpack", "unpack_from", "iter_unpack", "frombuffer", "from_bytes", "fromhex", "fromfile", "b64decode"),
    *("FromString", "MergeFromString", "ParseDict", "parse_json", "parse_object", "decode_word", "decompressobj"),
    *("read_message", "read_record_batch", "read_schema", "open_stream", "open_file", "read_lines", "read_lines_from"),
    *("read_document", "read_text", "read_bytes", "pread", "preadv", "recv", "recv_into", "recvmsg", "recvmsg_into"),
    *("recvfrom", "recv_fds"),
}
"""Names of functions."""
OF_FILES, OF_FORMATS = ("read", "map"), ("load",)
"""Further ones, of a file system (``fs.read``) and of a format's module (``json.load``)."""
FORMATS = ("json", "tomllib", "pickle", "yaml", "np")

DAMAGED_FILES = "landing/test_any_bytes.py::test_any_bytes_are_read_or_an_error_of_ours"
ANY_SYSLOG = "wire/syslog/test_codec.py::test_any_bytes_are_a_message"
DATAGRAMS = "wire/test_properties.py::test_any_bytes_are_counted"
GELF = "wire/gelf/test_codec.py::test_any_bytes_are_counted"
FORWARD = "wire/forward/test_splitter.py::test_any_bytes_are_counted_however_they_arrive"
GARBAGE = "logbuffer/test_reshape.py::test_damaged_metadata_and_frames_raise_no_other_error"
OLD_PAGES = "logbuffer/test_recovery.py::test_writer_continues_after_a_power_cut_with_any_old_pages"
ANY_INDEX = "log/store/test_scan.py::test_random_index_is_accepted_without_an_error"
TOPIC_FILES = "log/store/test_recovery.py::test_damaged_topic_opens_and_each_offset_is_a_row_or_in_a_gap"
TOKEN = "config/test_daemon_access.py::test_arbitrary_bytes_are_a_valid_token_or_damage"
TOML = "config/test_sources.py::test_arbitrary_file_raises_only_config_errors"
ENDPOINTS = "supervise/test_reload.py::test_random_bytes_are_endpoints_or_empty"
REQUESTS = "server/grpc/test_call_errors.py::test_any_bytes_are_a_request_or_refused"
ANSWERS = "client/log/test_calls.py::test_random_answer_is_decoded_or_an_error_of_the_client"
BODIES = "server/http/test_request_bodies.py::test_any_body_is_an_object_or_an_api_error"
CTL = "cli/listener/test_ctl.py::test_any_answer_is_an_object_or_one_error_line"
METADATA = "handover/frames/test_frame.py::test_arbitrary_document_is_metadata_or_bad_batch"
BODY_DECOMPRESSION = "ingest/requests/test_body_decompression.py::test_any_body_is_unpacked_within_bounds_or_refused"
MESSAGE_COLUMNS = "console/components/test_message_fields.py::test_any_message_is_shown_as_columns"
DECRYPTION = "kafka/client/plugins/test_encryption.py::test_any_value_is_decrypted_or_refused"
FLINK_KEYS = "kafka/client/plugins/test_flink_partitioner.py::test_any_key_has_a_partition"
HASHES = "kafka/client/plugins/test_java_partitioner.py::test_hashes_of_a_batch_equal_those_of_single_keys"
CERTIFICATES = "config/keys/security/test_servers.py::test_arbitrary_certificates_are_refused_with_the_key"
PROTOBUF = "slogd/columns/test_decode.py::test_random_bytes_are_parsed_like_protobuf_or_refused"
VALUES = "files/test_json_values.py::test_arbitrary_bytes_raise_only_value_errors"
POSTS = "ledger/test_posts.py::test_any_document_is_parsed_or_refused"
KAFKA_RECORDS = "server/kafka/records/test_decode.py::test_any_bytes_with_a_good_checksum_are_records_or_refused"
KAFKA_REQUESTS = "server/kafka/schema/test_messages.py::test_any_bytes_are_a_request_or_refused"
REDACTION = "landing/transform/test_any_payload.py::test_any_payload_stays_one_row_and_fails_nothing"
ANY_OTLP = "wire/otlp/test_records.py::test_any_bytes_are_records_or_malformed"
ANY_CLIENT = "sql/postgres/test_server.py::test_any_bytes_end_one_connection_at_most"
TARGETS = {
    "audit/reports/check_history.py": "audit/reports/test_check_history.py::test_any_bytes_are_a_record_or_left_out",
    "audit/columns.py": "audit/test_columns.py::test_any_text_is_a_column_or_refused",
    "audit/fields.py": "audit/test_fields.py::test_any_text_is_a_pair_or_refused",
    "audit/sources/dead_letters.py": "audit/sources/test_dead_letters.py::test_any_headers_name_a_record_or_none",
    "audit/tables/parquet_folder.py": "audit/tables/test_parquet_folder.py::test_any_log_of_spark_is_read_or_refused",
    "audit/reports/receipt.py": "audit/reports/test_receipt.py::test_any_bytes_are_a_receipt_or_refused",
    "cli/listener/ctl.py": CTL,
    "cli/listener/listeners.py": CTL,
    "cli/log/connect.py": TOKEN,
    "cli/run/machine_checks.py": "cli/run/test_machine_checks.py::test_any_list_of_mounts_is_parsed",
    "client/log/admin_calls.py": ANSWERS,
    "client/log/calls.py": ANSWERS,
    "client/relay/positions.py": "client/relay/test_positions.py::test_any_file_is_a_position_or_an_error_of_ours",
    "client/tail/positions.py": "client/tail/test_positions.py::test_any_file_is_positions_or_an_error_of_ours",
    "client/tail/container_logs.py": (
        "client/tail/test_container_logs.py::test_any_bytes_are_entries_and_complete_bytes_end_a_line"
    ),
    "client/tail/journal_export.py": "client/tail/test_journal_export.py::test_any_bytes_are_entries_or_bad",
    "client/tail/journal_position.py": (
        "client/tail/test_journal_position.py::test_any_file_is_a_position_or_an_error_of_ours"
    ),
    "client/tail/file_content.py": "client/tail/test_file_content.py::test_any_bytes_are_lines_that_lose_nothing",
    "client/tail/followed_file.py": "client/tail/test_file_content.py::test_any_bytes_are_lines_that_lose_nothing",
    "process/ledger_posts.py": "process/test_ledger_posts.py::test_random_answer_gives_a_text",
    "config/toml_lines.py": TOML,
    "config/browser_access.py": ("config/test_browser_access.py::test_arbitrary_headers_are_admitted_or_refused"),
    "config/daemon_access.py": TOKEN,
    "config/syntax/json_path.py": "config/syntax/test_json_path.py::test_any_text_is_a_path_or_an_error",
    "config/keys/handlers.py": "config/keys/test_handlers.py::test_arbitrary_key_file_is_a_key_or_an_error",
    "config/keys/security/contexts.py": CERTIFICATES,
    "config/keys/values.py": "config/keys/test_tree.py::test_arbitrary_text_is_a_size_or_a_value_error",
    "config/sources.py": TOML,
    "console/login.py": "console/test_login.py::test_any_cookie_is_parsed",
    "console/users.py": "console/test_users.py::test_any_file_is_users_or_refused",
    "console/components/result_grid.py": "console/components/test_result_grid.py::test_any_value_is_shown",
    "console/components/message_fields.py": MESSAGE_COLUMNS,
    "console/components/message_view.py": "console/components/test_message_view.py::test_any_message_is_shown",
    "files/change_log.py": "files/test_change_log.py::test_any_bytes_are_changes_or_skipped",
    "files/checked_document.py": "files/test_checked_document.py::test_error_names_a_damaged_file",
    "files/checked_lines.py": "files/test_checked_lines.py::test_arbitrary_bytes_raise_nothing",
    "files/checked_word.py": "files/test_checked_word.py::test_decode_detects_any_flipped_bit",
    "files/json_values.py": VALUES,
    "handover/frames/frame.py": "handover/frames/test_frame.py::test_arbitrary_payload_is_a_frame_or_bad_batch",
    "handover/held_frames.py": "handover/test_held_frames.py::test_arbitrary_file_yields_only_intact_frames",
    "handover/positions/position.py": "handover/positions/test_position.py::test_arbitrary_file_is_refused",
    "handover/frames/frame_metadata.py": METADATA,
    "handover/sender_reading.py": "handover/test_sender_table.py::test_arbitrary_file_is_a_table_or_none",
    "handover/sender_table.py": "handover/test_sender_table.py::test_arbitrary_file_is_a_table_or_none",
    "handover/state_page.py": "handover/test_state_page.py::test_changed_byte_leaves_an_intact_text",
    "handover/drain/topic_requests.py": "handover/drain/test_topic_requests.py::test_last_kt_tag_is_the_request",
    "ingest/requests/body_decompression.py": BODY_DECOMPRESSION,
    "ingest/requests/tokens.py": "ingest/requests/test_tokens.py::test_no_other_header_is_a_token",
    "ingest/slots.py": ("ingest/test_slots.py::test_any_bytes_give_no_slot_longer_than_a_datagram"),
    "ingest/tcp.py": "ingest/test_tcp.py::test_any_bytes_close_the_books",
    "ingest/udp.py": DATAGRAMS,
    "kafka/client/plugins/encryption.py": DECRYPTION,
    "kafka/client/plugins/flink_partitioner.py": FLINK_KEYS,
    "kafka/client/plugins/java_partitioner.py": HASHES,
    "ledger/hosts/host_files.py": "ledger/hosts/test_host_files.py::test_any_stored_document_is_read_or_set_aside",
    "ledger/hosts/host_posts.py": "ledger/hosts/test_hosts.py::test_any_document_is_a_post_or_refused",
    "ledger/hosts/host_states.py": "ledger/hosts/test_host_files.py::test_any_stored_document_is_read_or_set_aside",
    "ledger/hosts/kafka_hosts.py": "ledger/hosts/test_kafka_hosts.py::test_any_document_is_a_post_or_refused",
    "ledger/hosts/hosts.py": "ledger/hosts/test_hosts.py::test_any_document_is_a_post_or_refused",
    "kafka/large/assembler.py": "kafka/large/test_assembler.py::test_any_record_is_accepted_or_refused",
    "kafka/large/headers.py": "kafka/large/test_headers.py::test_any_value_is_decoded_or_refused",
    "kafka/large/safe_offsets.py": "kafka/large/test_safe_offsets.py::test_any_metadata_is_accepted",
    "kafka/large/chunks.py": "kafka/large/test_chunks.py::test_any_bytes_are_decoded_without_an_error",
    "landing/requests/backfill_requests.py": DAMAGED_FILES,
    "upkeep/export/exporter.py": "upkeep/export/test_exporter.py::test_any_state_is_read_or_called_damaged",
    "server/metrics/recorded_metrics.py": (
        "server/api/test_monitoring.py::test_any_state_of_an_export_is_a_time_or_no_sample"
    ),
    "landing/damaged_files.py": DAMAGED_FILES,
    "landing/daemon_connection.py": (
        "landing/test_daemon_connection.py::test_no_text_raises_anything_but_bad_connection"
    ),
    "landing/from_kafka/range_assembler.py": (
        "landing/from_kafka/test_range_assembler.py::test_any_bytes_are_accepted"
    ),
    "landing/duplicates/hash_run.py": ("landing/duplicates/test_hash_run.py::test_any_other_file_raises_bad_run"),
    "landing/requests/conditions.py": ("landing/requests/test_conditions.py::test_any_text_is_parsed_or_refused"),
    "landing/requests/deletions.py": DAMAGED_FILES,
    "landing/duplicates/landed_keys.py": DAMAGED_FILES,
    "landing/history.py": DAMAGED_FILES,
    "landing/journal.py": DAMAGED_FILES,
    "landing/spark_checkpoint.py": ("landing/test_spark_checkpoint.py::test_any_bytes_are_a_plan_or_refused"),
    "landing/mirror_lag.py": DAMAGED_FILES,
    "landing/rows/type_schemas.py": DAMAGED_FILES,
    "proof/watermarks.py": DAMAGED_FILES,
    "landing/typed/typed_delta.py": DAMAGED_FILES,
    "landing/typed/typed_tables.py": DAMAGED_FILES,
    "landing/rows/data_text.py": ("landing/rows/test_data_text.py::test_data_keeps_every_digit"),
    "landing/rows/engine.py": (
        "landing/rows/test_engine.py::test_rows_are_found_by_their_bytes_also_in_a_part_of_a_column"
    ),
    "landing/transform/json_texts.py": REDACTION,
    "landing/transform/redaction.py": REDACTION,
    "landing/rows/payload_fault.py": (
        "landing/rows/test_payload_fault.py::test_any_quarantined_payload_has_a_fault_inside_it"
    ),
    "landing/rows/json_events.py": "landing/rows/test_json_events.py::test_no_bytes_raise_errors",
    "landing/rows/strict_json.py": "landing/rows/test_json_events.py::test_no_bytes_raise_errors",
    "landing/table/deletion_vectors.py": "landing/table/test_deletion_vectors.py::test_any_bytes_are_rows_or_refused",
    "landing/table/file_entries.py": DAMAGED_FILES,
    "landing/table/landed_table.py": DAMAGED_FILES,
    "landing/table/delta_table.py": DAMAGED_FILES,
    "landing/table/table_reader.py": DAMAGED_FILES,
    "landing/from_kafka/offset_map.py": DAMAGED_FILES,
    "upkeep/promote/promotion.py": DAMAGED_FILES,
    "proof/proofs.py": DAMAGED_FILES,
    "proof/proofs_table.py": DAMAGED_FILES,
    "proof/rollup.py": DAMAGED_FILES,
    "upkeep/quarantine/fixes.py": "upkeep/quarantine/test_fixes.py::test_fixes_accept_any_payload",
    "upkeep/quarantine/send_once.py": DAMAGED_FILES,
    "landing/topics/from_flight.py": (
        "landing/topics/test_from_flight.py::test_any_answer_is_parsed_or_raises_client_error"
    ),
    "ledger/book/book_from_topics.py": POSTS,
    "ledger/book/checkpoint.py": ("ledger/book/test_checkpoint.py::test_lines_that_no_ledger_wrote_are_refused"),
    "ledger/posts.py": POSTS,
    "log/cursors.py": "log/test_cursors.py::test_random_bytes_give_a_readable_offset",
    "log/plausible_clock.py": ("log/test_plausible_clock.py::test_log_starts_with_any_bytes_in_the_clock_file"),
    "log/read/filter_syntax.py": "log/read/test_filters.py::test_any_text_is_parsed_or_raises_bad_filter",
    "log/read/glance.py": "log/read/test_glance.py::test_file_of_random_bytes_is_not_intact",
    "log/read/segment_view.py": (
        "log/read/test_topic_reader.py::test_reader_finds_only_existing_rows_with_random_side_files"
    ),
    "log/read/topic_reader.py": "log/read/test_row_times.py::test_random_index_gives_a_time_or_none",
    "log/retention/compaction.py": ANY_INDEX,
    "log/retention/verify.py": ANY_INDEX,
    "log/settings.py": "log/test_settings.py::test_random_changes_give_settings_or_a_clear_error",
    "log/store/row_format.py": "log/store/test_row_format.py::test_damaged_body_is_rows_or_bad_batch",
    "log/store/batch_format.py": "log/store/test_batch_format.py::test_random_bytes_raise_only_bad_batch",
    "log/store/batch_copies.py": "log/store/test_batch_copies.py::test_random_bytes_are_read_without_an_error",
    "log/store/gaps.py": "log/store/test_gaps.py::test_random_bytes_are_read_without_an_error",
    "log/store/index.py": ANY_INDEX,
    "log/store/recovery.py": TOPIC_FILES,
    "log/store/scan.py": "log/store/test_scan.py::test_random_bytes_are_scanned_without_an_error",
    "log/store/segment_files.py": TOPIC_FILES,
    "log/store/visibility.py": "log/store/test_visibility.py::test_readers_continue_with_any_bytes_in_the_word",
    "log/topic_state.py": "log/test_topic_state.py::test_random_bytes_are_settings_or_refused",
    "log/transactions/atomic_commit.py": (
        "log/transactions/test_transactions.py::test_intent_of_random_bytes_is_rolled_back_or_renamed"
    ),
    "log/transactions/staging.py": (
        "log/transactions/test_transactions.py::test_damaged_staged_rows_are_committed_unchanged_or_not_at_all"
    ),
    "logbuffer/aeron/blocks.py": "logbuffer/aeron/test_blocks.py::test_block_ends_at_the_end_of_aerons_scanner",
    "logbuffer/aeron/inspector.py": "logbuffer/aeron/test_inspector.py::test_damaged_file_is_printed_or_refused",
    "logbuffer/frame_search.py": GARBAGE,
    "logbuffer/mapped.py": GARBAGE,
    "logbuffer/recovery.py": OLD_PAGES,
    "logbuffer/reshape.py": "logbuffer/test_reshape.py::test_file_of_random_bytes_is_refused_with_one_line",
    "records.py": "test_records.py::test_arbitrary_bytes_raise_only_bad_batch",
    "server/api/administration.py": VALUES,
    "server/auth/rights.py": "server/auth/test_rights.py::test_any_header_without_a_token_is_refused",
    "server/auth/server_tls.py": CERTIFICATES,
    "server/flight/actions.py": (
        "server/flight/test_actions.py::test_any_action_returns_documents_or_raises_an_api_error"
    ),
    "server/flight/batch_messages.py": (
        "server/flight/test_batch_messages.py::test_any_bytes_are_flight_data_or_refused"
    ),
    "server/flight/puts.py": "server/flight/test_tickets.py::test_any_command_of_a_put_is_a_destination_or_refused",
    "server/flight/tickets.py": (
        "server/flight/test_tickets.py::test_any_bytes_are_refused_or_a_ticket_that_round_trips"
    ),
    "server/grpc/call_errors.py": REQUESTS,
    "server/grpc/service.py": REQUESTS,
    "server/alarms/register.py": "server/alarms/test_register.py::test_any_bytes_are_a_state_or_forgotten",
    "server/http/request_bodies.py": BODIES,
    "server/http/routes.py": ("server/http/test_openapi_examples.py::test_every_answer_matches_the_document"),
    "server/reading/query.py": "server/reading/test_query.py::test_any_query_is_parsed_or_raises_bad_request",
    "server/kafka/groups/group_offsets.py": (
        "server/kafka/groups/test_group_offsets.py::test_any_name_is_a_distinct_group_or_refused"
    ),
    "server/kafka/connection/frames.py": "server/kafka/connection/test_frames.py::test_any_bytes_are_frames_or_refused",
    "server/kafka/schema/messages.py": KAFKA_REQUESTS,
    "server/kafka/schema/reading.py": KAFKA_REQUESTS,
    "server/kafka/connection/requests.py": (
        "server/kafka/connection/test_requests.py::test_any_bytes_are_parsed_alike_with_and_without_template"
    ),
    "kafka/broker_connection.py": "kafka/test_broker_connection.py::test_any_answer_is_parsed_or_refused",
    "kafka/records/batch_headers.py": "kafka/records/test_batch_headers.py::test_any_bytes_are_batches_or_refused",
    "kafka/records/compression.py": KAFKA_RECORDS,
    "server/kafka/records/decode.py": KAFKA_RECORDS,
    "server/kafka/records/few_records.py": (
        "server/kafka/records/test_few_records.py::test_any_bytes_are_rows_or_none"
    ),
    "server/kafka/records/headers.py": KAFKA_RECORDS,
    "kafka/records/varints.py": KAFKA_RECORDS,
    "slogd/columns/decode.py": PROTOBUF,
    "slogd/columns/gathered.py": PROTOBUF,
    "slogd/columns/ipc_message.py": "slogd/columns/test_ipc_message.py::test_any_bytes_are_a_message_or_none",
    "slogd/json/append_request.py": "slogd/json/test_append_request.py::test_random_bytes_raise_only_bad_request",
    "slogd/json/entry_documents.py": "slogd/json/test_entry_documents.py::test_random_any_has_a_document",
    "slogd/json/values.py": "slogd/json/test_values.py::test_random_bytes_are_a_value_or_refused",
    "spark/query/proof_worker.py": DAMAGED_FILES,
    "spark/source/options.py": "spark/source/test_options.py::test_any_text_is_parsed_or_refused",
    "sql/error_text.py": "sql/test_error_text.py::test_any_error_is_one_line",
    "sql/flight_sql/commands.py": "sql/flight_sql/test_commands.py::test_any_bytes_are_a_command_or_refused",
    "sql/flight_sql/server.py": "sql/flight_sql/test_server.py::test_any_request_ends_with_a_code",
    "sql/postgres/session/copying.py": "sql/postgres/session/test_copying.py::test_any_text_is_read_or_refused",
    "sql/postgres/session/cursors.py": "sql/postgres/session/test_cursors.py::test_any_words_are_a_cursor_or_refused",
    "sql/postgres/messages.py": "sql/postgres/test_messages.py::test_any_bytes_are_messages_or_refused",
    "sql/postgres/session/extended_query.py": ANY_CLIENT,
    "sql/postgres/session/portals.py": ANY_CLIENT,
    "sql/postgres/session/preparation.py": ANY_CLIENT,
    "sql/postgres/rows.py": "sql/postgres/test_rows.py::test_binary_numeric_is_read_as_it_is_written",
    "sql/postgres/server.py": ANY_CLIENT,
    "sql/postgres/session/session.py": ANY_CLIENT,
    "sql/postgres/parameters.py": "sql/postgres/test_parameters.py::test_any_parameter_is_one_literal_or_refused",
    "supervise/endpoints.py": ENDPOINTS,
    "upkeep/backup.py": "upkeep/test_backup.py::test_any_manifest_is_read_or_refused",
    "supervise/succession.py": "supervise/test_succession.py::test_inheritance_survives_the_environment",
    "supervise/installation.py": "supervise/test_installation.py::test_any_request_is_read_or_refused",
    "supervise/reload.py": "supervise/test_reload.py::test_random_bytes_are_an_outcome_or_none",
    "wire/http/bulk.py": "wire/http/test_bulk.py::test_any_bytes_are_items_or_refused",
    "wire/datagrams.py": "wire/test_datagrams.py::test_payloads_are_the_datagrams_wherever_they_lie",
    "wire/decoded.py": ("wire/test_decoded.py::test_tags_are_those_of_plog_without_empty_ones_and_the_last_key_counts"),
    "wire/framing/compressed_streams.py": (
        "wire/framing/test_compressed_streams.py::test_other_connections_are_split_as_before"
    ),
    "wire/json_text.py": "wire/http/test_hec.py::test_any_bytes_are_events_or_refused",
    "wire/http/hec.py": "wire/http/test_hec.py::test_any_bytes_are_events_or_refused",
    "wire/http/json_documents.py": "wire/http/test_json_documents.py::test_any_bytes_are_documents_or_refused",
    "wire/http/loki.py": "wire/http/test_loki.py::test_any_bytes_are_a_push_or_refused",
    "wire/otap/batches.py": "wire/otap/test_batches.py::test_any_columns_are_messages_or_malformed",
    "wire/otap/cbor.py": "wire/otap/test_cbor.py::test_any_bytes_are_a_document_or_malformed",
    "wire/otap/ipc_messages.py": "wire/otap/test_ipc_messages.py::test_any_damage_is_read_or_malformed",
    "wire/otap/streams.py": "wire/otap/test_streams.py::test_any_damage_is_messages_or_malformed",
    "wire/otlp/protocol.py": ANY_OTLP,
    "wire/otlp/json_requests.py": "wire/otlp/test_protocol.py::test_any_json_is_a_request_or_refused",
    "wire/otlp/records.py": ANY_OTLP,
    "wire/otlp/few_records.py": (
        "wire/otlp/test_few_records.py::test_any_bytes_are_decoded_as_in_columns_or_left_to_them"
    ),
    "wire/otlp/values.py": ANY_OTLP,
    "wire/protobuf.py": "wire/test_protobuf.py::test_any_bytes_are_fields_or_malformed",
    "wire/requests.py": "wire/http/test_hec.py::test_any_bytes_are_events_or_refused",
    "wire/framing/line_framing.py": "wire/framing/test_lines.py::test_lines_do_not_depend_on_the_sizes_of_reads",
    "wire/framing/lines.py": "wire/framing/test_lines.py::test_lines_do_not_depend_on_the_sizes_of_reads",
    "wire/own_codec.py": "wire/test_own_codec.py::test_any_bytes_are_a_row_or_refused",
    "wire/forward/codec.py": FORWARD,
    "wire/forward/handshake.py": FORWARD,
    "wire/forward/event_rows.py": FORWARD,
    "wire/forward/requests.py": FORWARD,
    "wire/forward/splitter.py": FORWARD,
    "wire/gelf/chunks.py": GELF,
    "wire/gelf/codec.py": GELF,
    "wire/gelf/fields.py": "wire/gelf/test_fields.py::test_any_bytes_have_fields_or_none",
    "wire/gelf/unpacking.py": "wire/gelf/test_unpacking.py::test_any_bytes_are_unpacked_or_refused",
    "wire/gelf/splitter.py": "wire/gelf/test_splitter.py::test_reads_do_not_change_the_messages",
    "wire/plog/codec.py": DATAGRAMS,
    "wire/plog/commands.py": "wire/plog/test_commands.py::test_any_bytes_are_a_known_verb_or_none",
    "wire/plog/fragments.py": DATAGRAMS,
    "wire/plog/grouping.py": DATAGRAMS,
    "wire/plog/header.py": DATAGRAMS,
    "wire/plog/holes.py": "wire/plog/test_holes.py::test_any_ids_in_one_batch_or_one_by_one_count_the_same",
    "wire/plog/reassembly.py": DATAGRAMS,
    "wire/raw.py": "wire/test_raw.py::test_every_datagram_that_is_not_empty_is_a_message_as_it_is",
    "wire/sender_text.py": "wire/test_sender_text.py::test_columns_become_valid_strings",
    "wire/framing/multiline.py": (
        "wire/framing/test_multiline.py::test_nothing_is_lost_and_how_lines_arrive_makes_no_difference"
    ),
    "wire/unpacking.py": "wire/test_unpacking.py::test_any_bytes_are_unpacked_within_bounds_or_refused",
    "wire/message_ids.py": "wire/test_message_ids.py::test_equal_parts_have_equal_ids",
    "wire/syslog/codec.py": ANY_SYSLOG,
    "wire/syslog/columns.py": "wire/syslog/test_columns.py::test_any_bytes_have_columns",
    "wire/syslog/few_messages.py": "wire/syslog/test_few_messages.py::test_any_messages_are_equal_to_those_of_columns",
    "wire/syslog/framing.py": ANY_SYSLOG,
    "wire/syslog/headers.py": ANY_SYSLOG,
    "wire/syslog/octets.py": ANY_SYSLOG,
    "wire/syslog/structured_data.py": ANY_SYSLOG,
    "wire/syslog/times.py": "wire/syslog/test_times.py::test_any_text_is_a_time_or_none_whatever_stands_beside_it",
    "wire/source_annotations.py": ("wire/test_source_annotations.py::test_address_follows_existing_annotations"),
}
"""The test of each parser, below ``tests``."""
KERNEL, PARENT, COMPARED = "what the kernel says", "a pipe from its own parent", "compared as bytes, not parsed"
PASSED_ON, OWN, PACKAGE = "bytes passed on as they are", "the process's own memory", "a file of the package"
CHECKED = "a document beneath a checksum that ``files.checked_document`` has checked"
NO_PARSERS = {
    "kafka/client/administration.py": "statistics of the client's library",
    "spark/versions.py": "the version file of the installed pyspark; what does not match is imported",
    "upkeep/catalog_entries.py": "the schema of a Delta table, which delta-rs has parsed",
    "upkeep/unity_catalog.py": "answers of a server that the operator names; any error ends the command with a line",
    "upkeep/typed/refill.py": CHECKED,
    "server/alarms/delivery_process.py": "a task of the log daemon, and a mail that it wrote",
    "landing/landing_lock.py": KERNEL,
    "landing/md5_columns.py": "bytes of any content are hashed",
    "landing/typed/contracts.py": "bounds of the configuration, checked when it is read",
    "landing/storage/bloom_filters.py": "48 bytes of a filter; one that is not understood excludes nothing",
    "cli/tables/explain.py": "bytes of a payload, parsed in wire and landing",
    "upkeep/explain.py": "decoders and protocols of wire, and the rules of the landing",
    "cli/balance.py": "what the daemon answered, parsed in client and config",
    "cli/options.py": "the source of the commands, for their help",
    "landing/table/synced_files.py": "bytes of a file, written again as they are",
    "cli/common.py": "what the daemon answered, parsed in client and config",
    "cli/log/topic_list.py": "what the daemon answered, parsed in client and config",
    "ingest/requests/otlp_grpc.py": "files of certificates, for gRPC; requests go to wire",
    "wire/request_protocols.py": "the table of protocols",
    "ingest/tls.py": "bytes of a connection, passed to OpenSSL and on",
    "upkeep/deletion/certificate.py": "documents beneath a checksum that ``files.checked_document`` has checked",
    "proof/posts/ends.py": "the pipeline's id beneath a checksum that ``files.checked_document`` has checked",
    "proof/commit_notes.py": "versions and texts beneath a checksum that ``files.checked_document`` has checked",
    "upkeep/deletion/returned_rows.py": "dates beneath a checksum that ``files.checked_document`` has checked",
    "proof/foreign_deletions.py": "a version beneath a checksum that ``files.checked_document`` has checked",
    "spark/views.py": "file names of the table, from delta-rs",
    "landing/table/one_writer.py": "a name beneath a checksum that ``files.checked_document`` has checked",
    "spark/query/part_results.py": OWN,
    "cli/kafka/files.py": PASSED_ON,
    "cli/audit.py": PASSED_ON,
    "cli/command_line.py": PACKAGE,
    "cli/run/api_reference.py": PACKAGE,
    "cli/run/config.py": PASSED_ON,
    "cli/run/sample_messages.py": PASSED_ON,
    "cli/run/serve.py": PARENT,
    "cli/tables/pipeline.py": PARENT,
    "client/log/connection.py": "PEM, for OpenSSL",
    "client/send_many.py": OWN,
    "client/relay/registration.py": "answers of its own daemon, whose errors leave the counts as they are",
    "client/relay/relay.py": PARENT,
    "console/main.py": PARENT,
    "console/pages/sql.py": PACKAGE,
    "console/components/theme.py": PACKAGE,
    "drill/faults.py": "the drill's own word to its processes",
    "files/file_system.py": PASSED_ON,
    "files/regular_files.py": PASSED_ON,
    "handover/disk_id.py": "a text beneath a checksum that ``files.checked_document`` has checked",
    "handover/positions/lock_holder.py": KERNEL,
    "ingest/receiver.py": PARENT,
    "ingest/local_sockets.py": KERNEL,
    "ingest/sockets.py": KERNEL,
    "java/runtime.py": COMPARED,
    "kafka/broker.py": "a test broker's log, shown when it does not start",
    "logbuffer/aeron/appender.py": OWN,
    "logbuffer/aeron/publication.py": OWN,
    "process/kernel.py": KERNEL,
    "process/freeze.py": KERNEL,
    "process/child.py": "a text for people, from its own child",
    "landing/topics/continuity.py": CHECKED,
    "landing/from_kafka/continuity.py": CHECKED,
    "process/forked.py": "single bytes between a process and its own child",
    "console/kernel_drops.py": KERNEL,
    "process/servers/port_owner.py": KERNEL,
    "process/tuning.py": KERNEL,
    "server/daemon.py": PARENT,
    "server/grpc/reflection.py": PACKAGE,
    "sinks/forwarder.py": PARENT,
    "sinks/handler_check.py": PARENT,
    "sinks/kafka.py": "statistics from librdkafka, in this process",
    "spark/class_archive.py": COMPARED,
    "spark/package_zip.py": COMPARED,
    "spark/session.py": COMPARED,
    "spark/source/sink.py": OWN,
    "sql/query.py": "DuckDB's own JSON of a text that it parsed",
    "sql/servers.py": PARENT,
    "supervise/daemon_channel.py": "a pair of sockets of one supervisor and its daemon",
    "supervise/listener_checks.py": KERNEL,
    "wire/codecs.py": "a table",
    "wire/growth.py": "numbers of its own",
    "wire/meters.py": "numbers of its own",
    "wire/plog/cutting.py": "for senders",
    "wire/plog/statistics.py": "numbers of its own",
}
"""Why a module that looks like a parser needs no such test."""


def parses(path: Path) -> bool:
    """Report whether a module calls a function that creates values from bytes or from a file."""
    calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    return any(map(_parses, calls))


def _parses(call: ast.expr) -> bool:
    if isinstance(call, ast.Name):
        return call.id in PARSING
    if not isinstance(call, ast.Attribute):
        return False
    owner = getattr(call.value, "attr", getattr(call.value, "id", "")).lstrip("_")
    of_files = call.attr in OF_FILES and owner in ("fs", "OS")
    return call.attr in PARSING or of_files or (call.attr in OF_FORMATS and owner in FORMATS)


@functools.cache
def modules() -> list[str]:
    """Return all modules that parse."""
    parsers = []
    for path in sorted((ROOT / "penstock").rglob("*.py")):
        name = str(path.relative_to(ROOT / "penstock"))
        if path.name == "__init__.py" or name.startswith("testing/"):
            continue
        if name.startswith("wire/") or parses(path):
            parsers.append(name)
    return parsers


def test_each_parser_has_a_fuzz_target_or_a_reason() -> None:
    unknown = [name for name in modules() if name not in TARGETS and name not in NO_PARSERS]
    assert not unknown, "enter each in TARGETS with its test, or in NO_PARSERS with a reason"


def test_listed_modules_exist_and_are_listed_once() -> None:
    missing = [name for name in (*TARGETS, *NO_PARSERS) if not (ROOT / "penstock" / name).exists()]
    assert not missing
    assert not TARGETS.keys() & NO_PARSERS.keys()
    assert NO_PARSERS.keys() <= set(modules()), "no reason is needed for what is not a parser"


@functools.cache
def _parse(path: Path) -> ast.Module:
    """Return the syntax tree of a file, which several targets share."""
    return ast.parse(path.read_text())


@pytest.mark.parametrize("target", sorted(set(TARGETS.values())))
def test_target_is_a_property_test_of_make_fuzz(target: str) -> None:
    name, _, test_name = target.partition("::")
    tree = _parse(ROOT / "tests" / name)
    (test,) = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == test_name)
    marks = [ast.unparse(mark) for node in ast.walk(test) for mark in getattr(node, "decorator_list", ())]
    assert any(re.match(r"(hypothesis\.)?given\(", mark) for mark in marks), "it is a property test"
    assert not any("soak" in mark for mark in marks), "soak tests are left out"


def test_new_parser_is_detected(tmp_path: Path) -> None:
    for code in ("json.loads(x)", "parse_object(x)", "self._fs.read(p)", "p.read_bytes()", "json.load(f)", "s.recv(9)"):
        (tmp_path / "new.py").write_text(f"{code}\n")
        assert parses(tmp_path / "new.py"), code
    (tmp_path / "new.py").write_text("log.load(x)\nfile.read()\n")
    assert not parses(tmp_path / "new.py")
