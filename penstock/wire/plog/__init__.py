"""plog's UDP protocol, version 0, without I/O: datagrams of a round in, messages and counts out.

Read ``codec`` (what one round goes through), ``header``, ``fragments`` (fragments to messages; a message's checksum is
judged there, in ``grouping`` and in ``reassembly``), ``grouping`` (messages whose fragments came in one round),
``reassembly`` (the others), ``holes``, ``statistics``, ``commands``; ``cutting`` is the sender's side. Imports
``records``, ``counts`` and the files of ``wire`` beside this folder.
"""

__all__ = [  # noqa: RUF022 reading order
    "header",
    "grouping",
    "fragments",
    "reassembly",
    "holes",
    "statistics",
    "codec",
    "commands",
    "cutting",
]
