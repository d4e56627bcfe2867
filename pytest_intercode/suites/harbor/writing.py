"""Tasks written as folders in Harbor's format, so that they run under it. Writes files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["toml"]


def toml(tables: Mapping[str, Any]) -> str:
    """Return tables as TOML: strings, numbers, truths, lists, and tables of them."""
    return "".join(_lines(tables, "")).strip() + "\n"


def _lines(table: Mapping[str, Any], name: str) -> list[str]:
    plain, below = [], []
    for key, value in table.items():
        full = f"{name}.{_key(key)}" if name else _key(key)
        if isinstance(value, Mapping):
            below += [f"\n[{full}]\n", *_lines(value, full)]
        elif isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
            for each in value:
                below += [f"\n[[{full}]]\n", *_lines(each, full)]
        else:
            plain.append(f"{_key(key)} = {_value(value)}\n")
    return plain + below


def _key(key: str) -> str:
    bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if bare else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, str):
        # JSON's strings are TOML's, but for one control character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)
