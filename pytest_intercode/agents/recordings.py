"""Reads recorded runs: our own results files and InterCode's JSON, plain or with gzip."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from pytest_intercode.errors import ConfigurationError

__all__ = ["read_results"]


def read_results(path: Path) -> list[dict[str, Any]]:
    """Read a results file: our JSON Lines, or InterCode's one JSON object.

    Raises:
        ConfigurationError: it cannot be read, or is no results file.
    """
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such results file") from None
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from None
    rows = _parse(path, text)
    for number, row in enumerate(rows):
        history = row.get("turn_history") if isinstance(row, dict) else None
        if not isinstance(history, dict) or not isinstance(history.get("actions"), list):
            raise ConfigurationError(
                f"{path}, row {number}: not a recorded episode: it has no turn_history.actions"
            )
        if "task_id" not in row or not all(isinstance(a, str) for a in history["actions"]):
            raise ConfigurationError(
                f"{path}, row {number}: not a recorded episode: task_id is missing, or an action "
                "is not a string"
            )
    return rows


def _parse(path: Path, text: str) -> list[dict[str, Any]]:
    try:
        whole = json.loads(text)
    except json.JSONDecodeError:
        rows = []
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise ConfigurationError(f"{path}:{number}: not JSON: {error.msg}") from None
        return rows
    if isinstance(whole, list):
        return whole
    if isinstance(whole, dict) and "turn_history" not in whole:
        return list(whole.values())
    return [whole]
