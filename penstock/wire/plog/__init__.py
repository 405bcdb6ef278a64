"""plog's UDP protocol, version 0, without I/O: datagrams of a round in, messages and counts out.

Read ``header``, ``grouping`` (messages whose fragments came in one round), ``reassembly`` (the others, and where a
fragment's checksum is judged), ``holes``, ``statistics``; ``codec`` puts them together; ``cutting`` is the
sender's side. Imports ``records``, ``counts`` and the files of ``wire`` beside this folder.
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
