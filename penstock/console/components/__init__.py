"""Parts that several pages share: styles and panels, messages and rows as HTML, charts, the picture of the pipe.

Read ``theme``, then ``search_input``, ``message_view``, ``message_fields``, ``result_grid``, ``pipe_picture``,
``charts``, ``receipt_details``, ``findings_list`` and ``empty_states``. Imports ``console``, ``config``, ``ledger``,
``process.terminal``, ``sql``, ``supervise.endpoints`` and ``upkeep.quarantine``.
"""

__all__ = [  # noqa: RUF022 reading order
    "theme",
    "search_input",
    "message_view",
    "message_fields",
    "result_grid",
    "pipe_picture",
    "charts",
    "receipt_details",
    "findings_list",
    "empty_states",
]
