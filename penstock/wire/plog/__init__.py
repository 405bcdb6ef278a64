"""plog's UDP protocol, version 0, without I/O: a round of datagrams in, messages and counts out.

Start with ``codec``, the path of one round. A message's checksum is verified in three places: ``fragments`` (messages
of a single fragment), ``grouping`` (messages whose fragments arrive in one round) and ``reassembly`` (all others).
``header`` reads headers as columns, ``holes`` finds missing ids, ``commands`` and ``statistics`` serve plog's commands.
``cutting`` is the sender's side. Imports ``records``, ``counts`` and the files of ``wire`` next to this folder.
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
