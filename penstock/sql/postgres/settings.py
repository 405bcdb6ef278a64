"""Settings of a session, as ``SET`` changes and ``SHOW`` reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.sql.postgres import messages
from penstock.sql.postgres.messages import SqlError
from penstock.sql.postgres.preparation import StatementFailed
from penstock.sql.postgres.statements import Statement, Token
from penstock.sql.postgres.system_catalog import SERVER_VERSION
from penstock.sql.postgres.system_tables import SCHEMA

MAX_SETTINGS, MAX_SETTING_CHARS = 200, 1_000
"""Limit: clients may invent names of settings, as in PostgreSQL."""
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
}
_FIXED = frozenset({name.lower() for name in REPORTED} - {"client_encoding", "datestyle", "intervalstyle"})
_UTF8 = ("UTF8", "UNICODE", "DEFAULT")
_UTC = ("UTC", "GMT", "DEFAULT", "LOCAL", "Z", "0")
_OTHER_NAMES = {"transaction isolation level": "transaction_isolation", "time zone": "timezone"}


class SessionSettings:
    """Settings of one session by name, in ``texts``."""

    def __init__(self, user: str, application_name: str) -> None:
        application_name = application_name[:MAX_SETTING_CHARS]
        self.texts = {**_SETTINGS, "session_authorization": user, "application_name": application_name}
        self._initial = dict(self.texts)

    def reported(self) -> Iterator[tuple[str, str]]:
        """Yield the settings that a client hears of at the start."""
        for name in (*REPORTED, "application_name", "session_authorization"):
            yield name, self.texts[name]

    def shown_name(self, words: Sequence[str]) -> str | None:
        """Return the setting that the words of ``SHOW`` name; None if it may be a table."""
        name = " ".join(words[1:])
        return self._name(_OTHER_NAMES.get(name, name))

    def change(self, statement: Statement) -> bytes:
        """Carry out ``SET``; return what the client hears of it. Raises StatementFailed.

        An encoding is refused. Another time zone has no effect, as rows are in UTC; a notice says so.
        """
        significant = [token for token in statement.significant[1:] if not token.is_word("session", "local")]
        if not significant or significant[0].is_word("transaction", "characteristics", "role", "authorization"):
            return b""
        name, values = _name_and_values(significant)
        setting = ", ".join(values)
        setting = setting[:MAX_SETTING_CHARS]
        if name == "client_encoding" and setting.replace("-", "").upper() not in _UTF8:
            raise StatementFailed(SqlError("22023", f"the encoding {setting[:40]!r} is not supported, only UTF8"))
        if name == "timezone" and setting.upper() not in _UTC:
            return messages.notice("times are in UTC; cast them AT TIME ZONE for another zone")
        if name in _FIXED:
            return b""
        existing = self._name(name)
        if existing is None and len(self.texts) >= MAX_SETTINGS:
            raise StatementFailed(SqlError("53400", f"a session has at most {MAX_SETTINGS} settings"))
        if len(values) == 1 and significant[-1].is_word("default"):
            setting = self._initial.get(existing or name, "")
        self.texts[existing or name] = setting
        return messages.parameter_status(name, setting) if name == "application_name" else b""

    def reset(self, statement: Statement) -> bytes:
        """Carry out ``RESET``; return what the client hears of it."""
        requested = _name_and_values(statement.significant[1:])[0]
        name = self._name(requested)
        names = [*self.texts] if requested == "all" else [name] if name else []
        answers = []
        for changed in [name for name in names if self.texts[name] != self._initial.get(name, "")]:
            self.texts[changed] = self._initial.get(changed, "")
            if changed == "application_name":
                answers.append(messages.parameter_status(changed, self.texts[changed]))
        return b"".join(answers)

    def _name(self, name: str) -> str | None:
        return next((setting for setting in self.texts if setting.lower() == name), None)


def _name_and_values(tokens: Sequence[Token]) -> tuple[str, list[str]]:
    """Return the name that ``SET`` changes, as in ``SET a.b = 1``, and the values that commas separate."""
    words = [token.identifier.lower() for token in tokens[:2]] or [""]
    if words == ["time", "zone"]:
        name, end = "timezone", 2
    elif words[0] == "names":
        name, end = "client_encoding", 1
    else:
        end = next((index for index, token in enumerate(tokens) if token.text.lower() in ("to", "=")), len(tokens))
        name, end = "".join(token.identifier.lower() or token.text for token in tokens[:end]), end + 1
    values = [""]
    for token in tokens[end:]:
        if token.text == ",":
            values.append("")
        else:
            text = token.content if token.content is not None else token.identifier or token.text
            # A sign belongs to its number.
            values[-1] += f" {text}" if values[-1] not in ("", "-", "+") else text
    return name, values
