"""The outcome of a repeated audit: its last check as a page, and as metrics for Prometheus.

The port has no authentication, so the page has no payloads.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from penstock.audit.outcome import Report
from penstock.server.metrics.prometheus import CONTENT_TYPE, Family, render

SOCKET_TIMEOUT_S = 10.0
STATUS_HELP = "Outcome: 0 complete, 1 missing or doubled, 2 not decided."


class MetricsServer:
    """Serves ``/`` and ``/metrics`` at an address until it is closed. Raises OSError if the address is taken."""

    def __init__(self, host: str, port: int) -> None:
        self._text = b""
        self._page = b"No check has finished yet.\n"
        self._checks = self._undecided = 0
        self._server = ThreadingHTTPServer((host, port), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def publish(self, report: Report, page: str) -> None:
        """Show a finished audit."""
        moment = f"{datetime.fromtimestamp(report.began_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
        self._page = f"{page}<p>Checked at {moment}.</p>".encode()
        self._checks += 1
        labels = {"topic": report.topic, "table": report.table}
        names = {
            "status": (report.status, STATUS_HELP),
            "required_records": (report.required, "Records that the table must have or explain."),
            "missing_records": (report.missing, "Records without a row."),
            "doubled_records": (report.doubled, "Records with several rows."),
            "unexplained_rows": (report.unexplained, "Rows that no committed record has."),
            "undecided_records": (report.undecided, "Records that cannot be decided."),
            "last_success_timestamp_seconds": (time.time(), "Time of the last finished check."),
        }
        families = [
            Family(f"penstock_audit_{name}", "gauge", text, [(labels, number)])
            for name, (number, text) in names.items()
        ]
        lags = [(labels | {"partition": str(part.partition)}, part.lag) for part in report.partitions if part.lag]
        families += [
            Family(
                "penstock_audit_lag_seconds",
                "gauge",
                "Age of the first record that is not in the table yet.",
                [(of_partition, lag.behind_s) for of_partition, lag in lags],
            ),
            Family(
                "penstock_audit_expires_in_seconds",
                "gauge",
                "Time until that record expires.",
                [(of_partition, lag.expires_in_s) for of_partition, lag in lags],
            ),
        ]
        self._render(families)

    def publish_undecided(self, topic: str, table: str) -> None:
        """Show that the last check could not be decided; the numbers of the check before would mislead."""
        self._page = escape(f"{topic}: the last check of {table} was not decided; the log says why").encode()
        self._checks += 1
        self._undecided += 1
        labels = {"topic": topic, "table": table}
        self._render([Family("penstock_audit_status", "gauge", STATUS_HELP, [(labels, 2)])])

    def _render(self, families: list[Family]) -> None:
        families += [
            Family("penstock_audit_checks_total", "counter", "Checks.", [({}, self._checks)]),
            Family("penstock_audit_undecided_total", "counter", "Checks without a decision.", [({}, self._undecided)]),
        ]
        self._text = render(families).encode()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        metrics = self

        class Handler(BaseHTTPRequestHandler):
            timeout = SOCKET_TIMEOUT_S

            def do_GET(self) -> None:
                answers = {
                    "/": ("text/html; charset=utf-8", metrics._page),
                    "/metrics": (CONTENT_TYPE, metrics._text),
                }
                if (path := self.path.partition("?")[0]) not in answers:
                    self.send_error(404)
                    return
                kind, content = answers[path]
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *arguments: Any) -> None:
                """Log nothing: scrapes are not events."""

        return Handler
