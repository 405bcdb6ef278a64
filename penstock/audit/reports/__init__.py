"""Results of a check: for people, as metrics, and as a receipt that repeats the check.

Start with ``report`` and ``html_report``, then ``receipt``, ``watch`` (metrics of a check that is repeated) and
``check_history`` (its record for the console). Imports ``audit``, ``landing`` and ``server.metrics``.
"""

__all__ = ["check_history", "report", "html_report", "receipt", "watch"]  # noqa: RUF022 reading order
