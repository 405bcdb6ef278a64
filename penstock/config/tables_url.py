"""Where the tables are: a folder, or a URL of an object store."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

SCHEMES = ("s3", "gs", "abfss")
UNSAFE = "aws_s3_allow_unsafe_rename"


@dataclass(frozen=True, slots=True)
class TablesUrl:
    """Tables at a URL. ``state``: the folder of what the pipeline keeps for itself; ``options``: those of delta-rs."""

    url: str
    state: Path
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.url

    @classmethod
    def beside(cls, url: str, data_dir: Path, options: Mapping[str, str]) -> TablesUrl:
        """With its state in the data directory, under a name of its own."""
        named = re.sub(r"[^A-Za-z0-9.-]+", "_", url)[-80:]
        digest = hashlib.sha256(url.encode()).hexdigest()[:8]
        return cls(url, data_dir / "tables-at" / f"{named}-{digest}", options)


TablesPlace = Path | TablesUrl


def check_place(text: str) -> str:
    """A folder, also of a URL ``file://``; or a URL of an object store without a slash at its end.

    Raises ValueError.
    """
    if "://" not in text:
        return text
    parts = urlsplit(text)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return unquote(parts.path)
    if parts.scheme not in SCHEMES:
        raise ValueError(f"{text}: a folder, or a URL of {', '.join(f'{one}://' for one in SCHEMES)} or file://")
    if parts.query or parts.fragment or ":" in parts.netloc:
        raise ValueError("the URL has bucket and path alone: what else there is to say goes into storage_options")
    if not parts.netloc or not parts.path.strip("/"):
        raise ValueError(f"{text}: a URL has a bucket and a path, as in {parts.scheme}://bucket/tables")
    return text.rstrip("/")


def is_url(place: str) -> bool:
    """Whether a checked place is at a URL."""
    return "://" in place
