"""Reads a judge's answer, strictly: one JSON object with a score and a reason. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

from pytest_intercode.core.judge import Verdict
from pytest_intercode.core.text import one_line

__all__ = ["read_verdict"]

_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*)\n```", re.DOTALL)
_KEYS = {"score", "reason"}
_MAX_ANSWER = 20_000  # characters; a verdict has one sentence
_MAX_REASON = 500  # characters of a reason that are kept
_MAX_QUOTED = 80  # characters of an answer in a message


def read_verdict(text: str) -> Verdict:
    """Parse an answer as a verdict; a code fence around the whole answer is removed.

    Raises:
        ValueError: it is not a verdict. The message quotes its beginning, in one line.
    """
    text = text.strip()
    quoted = f": {one_line(text)[:_MAX_QUOTED]}" if text else ""
    if len(text) > _MAX_ANSWER:
        raise ValueError(f"it has {len(text):,} characters{quoted}")
    fenced = _FENCED.fullmatch(text)
    try:
        value = json.loads(
            fenced[1] if fenced else text, object_pairs_hook=_unique, parse_constant=_refuse
        )
    except (ValueError, RecursionError):
        raise ValueError(f"it is not one JSON object{quoted}") from None
    if not isinstance(value, dict) or value.keys() != _KEYS:
        raise ValueError(f"it is not an object of score and reason{quoted}")
    score, reason = value["score"], value["reason"]
    is_number = isinstance(score, (int, float)) and not isinstance(score, bool)
    if not (is_number and 0 <= score <= 1):
        raise ValueError(f"its score is not a number from 0 to 1{quoted}")
    if not isinstance(reason, str):
        raise ValueError(f"its reason is not a text{quoted}")
    return Verdict(float(score), one_line(" ".join(reason.split()))[:_MAX_REASON])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError("a key twice")
    return dict(pairs)


def _refuse(constant: str) -> None:
    raise ValueError(constant)
