"""Settings of a session, as ``SET`` changes and ``SHOW`` reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from penstock.sql.postgres import messages
from penstock.sql.postgres.catalog.system_catalog import SERVER_VERSION
from penstock.sql.postgres.catalog.system_tables import SCHEMA
from penstock.sql.postgres.messages import SqlError
from penstock.sql.postgres.session.preparation import StatementFailed
from penstock.sql.postgres.session.time_zones import DEFAULT, time_zone
from penstock.sql.postgres.statements.statement import Statement
from penstock.sql.postgres.statements.tokens import Token

MAX_SETTINGS, MAX_SETTING_CHARS = 200, 1_000
"""Limit: clients may invent names of settings with a dot, as in PostgreSQL."""
REPORTED = {
    "server_version": SERVER_VERSION,
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
    "is_superuser": "off",
    "in_hot_standby": "off",
    "default_transaction_read_only": "on",
}
"""Settings that a client hears of at the start."""
_SETTINGS = {
    **REPORTED,
    "server_version_num": "160000",
    "search_path": SCHEMA,
    "transaction_isolation": "read committed",
    "default_transaction_isolation": "read committed",
    "transaction_read_only": "on",
    "max_identifier_length": "63",
    "max_index_keys": "32",
    "block_size": "8192",
    "lc_collate": "C",
    "lc_ctype": "C",
    "lc_messages": "C",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "max_connections": "100",
    "extra_float_digits": "1",
    "client_min_messages": "notice",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "bytea_output": "hex",
    "statement_timeout": "0",
    "application_name": "",
    "session_authorization": "",
    "default_with_oids": "off",
    "password_encryption": "scram-sha-256",
}
_USER_SETTINGS = """
    array_nulls backend_flush_after backslash_quote check_function_bodies client_connection_check_interval
    commit_siblings constraint_exclusion cpu_index_tuple_cost cpu_operator_cost cpu_tuple_cost createrole_self_grant
    cursor_tuple_fraction debug_logical_replication_streaming debug_parallel_query debug_pretty_print debug_print_parse
    debug_print_plan debug_print_rewritten default_statistics_target default_table_access_method default_tablespace
    default_text_search_config default_toast_compression default_transaction_deferrable effective_cache_size
    effective_io_concurrency enable_async_append enable_bitmapscan enable_distinct_reordering enable_gathermerge
    enable_group_by_reordering enable_hashagg enable_hashjoin enable_incremental_sort enable_indexonlyscan
    enable_indexscan enable_material enable_memoize enable_mergejoin enable_nestloop enable_parallel_append
    enable_parallel_hash enable_partition_pruning enable_partitionwise_aggregate enable_partitionwise_join
    enable_presorted_aggregate enable_self_join_elimination enable_seqscan enable_sort enable_tidscan
    escape_string_warning exit_on_error file_copy_method from_collapse_limit geqo geqo_effort geqo_generations
    geqo_pool_size geqo_seed geqo_selection_bias geqo_threshold gin_fuzzy_search_limit gin_pending_list_limit
    hash_mem_multiplier icu_validation_level idle_session_timeout io_combine_limit jit jit_above_cost jit_expressions
    jit_inline_above_cost jit_optimize_above_cost jit_tuple_deforming join_collapse_limit local_preload_libraries
    log_parameter_max_length_on_error logical_decoding_work_mem maintenance_io_concurrency maintenance_work_mem
    max_parallel_maintenance_workers max_parallel_workers max_parallel_workers_per_gather md5_password_warnings
    min_parallel_index_scan_size min_parallel_table_scan_size parallel_leader_participation parallel_setup_cost
    parallel_tuple_cost password_encryption plan_cache_mode quote_all_identifiers random_page_cost
    recursive_worktable_factor restrict_nonsystem_relation_kind role row_security scram_iterations seed seq_page_cost
    session_replication_role ssl_renegotiation_limit stats_fetch_consistency synchronize_seqscans synchronous_commit
    tcp_keepalives_count tcp_keepalives_idle tcp_keepalives_interval tcp_user_timeout temp_buffers temp_tablespaces
    timezone_abbreviations trace_notify trace_sort transaction_deferrable transaction_timeout transform_null_equals
    vacuum_buffer_usage_limit vacuum_cost_delay vacuum_cost_limit vacuum_cost_page_dirty vacuum_cost_page_hit
    vacuum_cost_page_miss vacuum_failsafe_age vacuum_freeze_min_age vacuum_freeze_table_age
    vacuum_max_eager_freeze_failure_rate vacuum_multixact_failsafe_age vacuum_multixact_freeze_min_age
    vacuum_multixact_freeze_table_age vacuum_truncate wal_sender_timeout wal_skip_threshold work_mem xmlbinary xmloption
"""
"""Further settings that PostgreSQL 18 lets every user change; they change nothing here."""
_ACCEPTED = frozenset(_USER_SETTINGS.split())
_CHANGEABLE = {"client_encoding", "datestyle", "intervalstyle", "timezone"}
_FIXED = frozenset({"default_with_oids", *(name.lower() for name in REPORTED)} - _CHANGEABLE)
_UTF8 = ("UTF8", "UNICODE", "DEFAULT")
_REPORTED_CHANGES = ("application_name", "TimeZone")
"""Settings with an effect that a client hears of when they change."""
_TRUE = ("on", "true", "yes", "1")
_PHRASES = {
    "transaction isolation level": "transaction_isolation",
    "time zone": "timezone",
    "session authorization": "session_authorization",
}
"""Settings that ``SHOW`` and ``RESET`` name by several words."""
_OLD_NAMES = {
    "force_parallel_mode": "debug_parallel_query",
    "sort_mem": "work_mem",
    "vacuum_mem": "maintenance_work_mem",
}
"""Names of older versions that PostgreSQL 16 accepts."""


class SessionSettings:
    """Settings of one session by name, in ``texts``."""

    def __init__(self, user: str, application_name: str, zone: str = "") -> None:
        """Begin with what the client's first message asks for; a time zone that does not exist is UTC, as it hears."""
        application_name = application_name[:MAX_SETTING_CHARS]
        self.texts = {**_SETTINGS, "session_authorization": user, "application_name": application_name}
        self.texts["TimeZone"] = time_zone(zone) or DEFAULT
        self._initial = dict(self.texts)
        # Order: the end of a transaction decides which texts hold, after a rollback `_before`, after a commit `_after`.
        # `_before` is None outside of one.
        self._before: dict[str, str] | None = None
        self._after: dict[str, str] = {}

    def reported(self) -> Iterator[tuple[str, str]]:
        """Yield the settings that a client hears of at the start."""
        for name in (*REPORTED, "application_name", "session_authorization"):
            yield name, self.texts[name]

    def shown_name(self, words: Sequence[str]) -> str | None:
        """Return the setting that the words of ``SHOW`` name; None if it may be a table."""
        name = " ".join(words[1:])
        return self._name(_PHRASES.get(name) or _OLD_NAMES.get(name, name))

    def begin(self) -> None:
        """Begin a transaction: what it sets ends with its rollback, and what it sets by ``SET LOCAL`` with it."""
        if self._before is None:
            self._before, self._after = dict(self.texts), dict(self.texts)

    def end(self, committed: bool) -> bytes:
        """End the transaction, if there is one; return what the client hears of it."""
        if self._before is None:
            return b""
        texts, self._before = self._after if committed else self._before, None
        return self._replace(texts)

    def change(self, statement: Statement) -> bytes:
        """Carry out ``SET``; return what the client hears of it. Raises StatementFailed.

        An encoding is refused, and so is a time zone that does not exist.
        """
        significant = statement.significant[1:]
        if statement.words[1:2] == ["constraints"]:
            return self._set_constraints(statement.words[2:])
        is_local = bool(significant) and significant[0].is_word("local")
        if is_local or (significant and significant[0].is_word("session")):
            significant = significant[1:]
        if is_local and self._before is None:
            return messages.notice("SET LOCAL can only be used in transaction blocks", "25P01")
        if not significant or significant[0].is_word("transaction", "characteristics", "role", "authorization"):
            return b""
        name, values = _name_and_values(significant)
        setting = ", ".join(values)
        setting = setting[:MAX_SETTING_CHARS]
        if name == "client_encoding" and setting.replace("-", "").upper() not in _UTF8:
            raise StatementFailed(SqlError("22023", f"the encoding {setting[:40]!r} is not supported, only UTF8"))
        if name == "timezone":
            is_default = len(values) == 1 and significant[-1].is_word("default", "local")
            zone = self._initial["TimeZone"] if is_default else time_zone(setting)
            if zone is None:
                raise StatementFailed(SqlError("22023", f'invalid value for parameter "TimeZone": "{setting[:63]}"'))
            self._set("TimeZone", zone, is_local)
            return messages.parameter_status("TimeZone", zone)
        if name == "default_with_oids" and setting.lower() in _TRUE:
            raise StatementFailed(SqlError("0A000", "tables declared WITH OIDS are not supported"))
        if name in _FIXED:
            return b""
        existing = self._known_name(name)
        if existing is None and len(self.texts) >= MAX_SETTINGS:
            raise StatementFailed(SqlError("53400", f"a session has at most {MAX_SETTINGS} settings"))
        if len(values) == 1 and significant[-1].is_word("default"):
            setting = self._initial.get(existing or name, "")
        self._set(existing or name, setting, is_local)
        return messages.parameter_status(name, setting) if name == "application_name" else b""

    def reset(self, statement: Statement) -> bytes:
        """Carry out ``RESET``; return what the client hears of it. Raises StatementFailed."""
        requested = _PHRASES.get(" ".join(statement.words[1:])) or _name_and_values(statement.significant[1:])[0]
        if requested == "all":
            return self.reset_all()
        name = self._known_name(requested) if requested else None
        if name is None:
            return b""
        changed = self.texts[name] != self._initial.get(name, "")
        self._set(name, self._initial.get(name, ""))
        return messages.parameter_status(name, self.texts[name]) if changed and name in _REPORTED_CHANGES else b""

    def reset_all(self) -> bytes:
        """Restore the initial settings and forget invented names; return what the client hears of it."""
        # Limit: a pool uses a connection for long, and each use may invent names: empty ones would fill MAX_SETTINGS.
        self._after.clear()
        self._after.update(self._initial)
        return self._replace(self._initial)

    def _replace(self, texts: Mapping[str, str]) -> bytes:
        """Replace all settings; return what the client hears of it."""
        changed = [name for name in _REPORTED_CHANGES if self.texts[name] != texts[name]]
        # The catalog of the session's tables reads the same mapping.
        self.texts.clear()
        self.texts.update(texts)
        return b"".join(messages.parameter_status(name, texts[name]) for name in changed)

    def _set_constraints(self, words: Sequence[str]) -> bytes:
        """Accept ``SET CONSTRAINTS ALL``, which has nothing to check. Raises StatementFailed for a constraint."""
        if words not in (["all", "immediate"], ["all", "deferred"]):
            raise StatementFailed(SqlError("42704", "a constraint does not exist: use SET CONSTRAINTS ALL"))
        if self._before is None:
            return messages.notice("SET CONSTRAINTS can only be used in transaction blocks", "25P01")
        return b""

    def _set(self, name: str, setting: str, is_local: bool = False) -> None:
        self.texts[name] = setting
        if not is_local:
            self._after[name] = setting

    def _known_name(self, name: str) -> str | None:
        """Return the name of an existing setting, None for a new one. Raises StatementFailed for an unknown one."""
        existing = self._name(name)
        if existing is None and "." not in name and name not in _ACCEPTED:
            raise StatementFailed(SqlError("42704", f'unrecognized configuration parameter "{name[:63]}"'))
        return existing

    def _name(self, name: str) -> str | None:
        return next((setting for setting in self.texts if setting.lower() == name), None)


def _name_and_values(tokens: Sequence[Token]) -> tuple[str, list[str]]:
    """Return the name that ``SET`` changes, as in ``SET a.b = 1``, and the values that commas separate."""
    words = [token.identifier.lower() for token in tokens[:3]] or [""]
    if words[:2] == ["time", "zone"]:
        name, end = "timezone", 2
    elif words[:2] == ["xml", "option"] and words[2:] in (["document"], ["content"]):
        name, end = "xmloption", 2
    elif words[0] == "schema" and len(tokens) == 2 and tokens[1].kind == "text":
        name, end = "search_path", 1
    elif words[0] == "names":
        name, end = "client_encoding", 1
    else:
        end = next((index for index, token in enumerate(tokens) if token.text.lower() in ("to", "=")), len(tokens))
        name, end = "".join(token.identifier.lower() or token.text for token in tokens[:end]), end + 1
        name = _OLD_NAMES.get(name, name)
    values = [""]
    for token in tokens[end:]:
        if token.text == ",":
            values.append("")
        else:
            text = token.content if token.content is not None else token.identifier or token.text
            # A sign belongs to its number.
            values[-1] += f" {text}" if values[-1] not in ("", "-", "+") else text
    return name, values
