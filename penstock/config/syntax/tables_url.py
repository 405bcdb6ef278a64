"""The location of the tables: a folder, or a URL of an object store."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

SCHEMES = ("s3", "gs", "abfss")
UNSAFE_RENAME_OPTION = "aws_s3_allow_unsafe_rename"


@dataclass(frozen=True, slots=True)
class TablesUrl:
    """Tables at a URL. ``state`` is the folder of the pipeline's own files; ``options`` are delta-rs options."""

    url: str
    state: Path
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.url

    @classmethod
    def with_state_in(cls, url: str, data_dir: Path, options: Mapping[str, str]) -> TablesUrl:
        """Return the location with its state in the data directory, in a folder of its own."""
        named = re.sub(r"[^A-Za-z0-9.-]+", "_", url)[-80:]
        # The hash separates URLs that are equal after the replacement of special characters.
        digest = hashlib.sha256(url.encode()).hexdigest()[:8]
        return cls(url, data_dir / "tables-at" / f"{named}-{digest}", options)


TablesPlace = Path | TablesUrl


def check_place(text: str) -> str:
    """Return a folder (also of a ``file://`` URL), or a URL of an object store without a trailing slash.

    Raises ValueError.
    """
    if "://" not in text:
        return text
    parts = urlsplit(text)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return unquote(parts.path)
    if parts.scheme not in SCHEMES:
        raise ValueError(f"{text}: a folder, or a URL of {', '.join(f'{scheme}://' for scheme in SCHEMES)} or file://")
    if "?" in text or "#" in text or ":" in parts.netloc:
        raise ValueError("the URL may only have a bucket and a path: everything else belongs into storage_options")
    if not parts.netloc or not parts.path.strip("/"):
        raise ValueError(f"{text}: a URL has a bucket and a path, as in {parts.scheme}://bucket/tables")
    return text.rstrip("/")


def is_url(place: str) -> bool:
    """Report whether a checked location is a URL."""
    return "://" in place
