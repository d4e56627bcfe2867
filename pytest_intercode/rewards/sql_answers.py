"""The reward for answers in words to questions about a database: 1.0 if they are right, else 0.

Answers are read and compared as AgentBench does: THUDM/AgentBench at 578c5e9f,
``src/server/tasks/dbbench/result_processor.py``. A number may be off by 0.01, a percent sign and
commas are ignored, and a word for no value counts as 0.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_intercode.core.reward import Reward

__all__ = ["answers_are_right", "read_answers", "sql_answers_reward"]

_TOLERANCE = 1e-2
_NO_VALUE = frozenset(
    ("", "none", "null", "undefined", "nan", "inf", "infinity", "-inf", "-infinity")
)
_ITEM = re.compile(r"""((?:[^,"']|"[^"]*"|'[^']*')*),?""")
_MAX_CHARACTERS = 1_000_000  # of a text that is parsed as a list


def sql_answers_reward(state: Mapping[str, Any]) -> Reward:
    """Return the reward of an end state.

    Args:
        state: the ``answers`` of ``agent`` (None where none were submitted) and of ``gold``.
    """
    answers = state["agent"]["answers"]
    if answers is None:
        return Reward(0.0, {"answers": 0.0}, "no answer was submitted")
    is_right = answers_are_right(answers, state["gold"]["answers"])
    return Reward(
        float(is_right), {"answers": float(is_right)}, "" if is_right else "the answer is wrong"
    )


def read_answers(text: str) -> list[str]:
    """Return the answers in a text: the items of a JSON or Python list, or the text as one."""
    bare = text.strip()
    if not (bare.startswith("[") and bare.endswith("]")):
        return [text]
    for parse in (json.loads, ast.literal_eval):
        try:
            values = parse(bare) if len(bare) <= _MAX_CHARACTERS else None
            if isinstance(values, list):
                # A tuple of one value is a row of one column, as a driver shows it.
                return [
                    str(value[0] if isinstance(value, tuple) and len(value) == 1 else value)
                    for value in values
                ]
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
    return [item for item in _ITEM.findall(bare[1:-1]) if item]


def answers_are_right(answers: Sequence[str], gold: Sequence[str]) -> bool:
    """Whether answers are gold's: numbers in any order, and anything else as a set."""
    plain_answers, right = [*map(_plain, answers)], [*map(_plain, gold)]
    if not all(map(_is_number, (*plain_answers, *right))):
        return set(plain_answers) == set(right)
    if len(plain_answers) != len(right):
        return False
    for answer in plain_answers:
        match = next((value for value in right if _is_near(answer, value)), None)
        if match is None:
            return False
        right.remove(match)
    return True


def _plain(answer: str) -> str:
    text = answer.strip().strip("'\"").strip()
    if text.endswith("%"):
        return text[:-1].strip()
    if not (text.startswith("[") or text.endswith("]")):
        text = text.replace(",", "")
    return "0" if text.lower() in _NO_VALUE else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_near(answer: str, value: str) -> bool:
    return answer == value or abs(float(answer) - float(value)) <= _TOLERANCE
