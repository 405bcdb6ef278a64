"""slogd's JSON: what its gateway takes and answers.

Read ``append_request``, ``entry_documents``, then ``go_json`` and ``go_text`` (what Go's decoders accept).
Imports ``slogd.columns``.
"""
