"""Imported first by processes that should be small: keeps pandas out.

pyarrow imports pandas, where it is installed, for the first ``pa.array`` of a list: 40 MB and 0.4 seconds that
neither a receiver nor the log daemon has any use for.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder


class _NoPandas(MetaPathFinder):
    """Says that pandas is not installed."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is left out on purpose", name="pandas")


sys.meta_path.insert(0, _NoPandas())
