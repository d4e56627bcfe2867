"""How answers in words are read and compared, as AgentBench does."""

from __future__ import annotations

import pytest

from pytest_intercode.rewards.sql_answers import (
    answers_are_right,
    read_answers,
    sql_answers_reward,
)


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("Vienna", ["Vienna"]),
        ('["a", "b"]', ["a", "b"]),
        ("['a', 2]", ["a", "2"]),
        ("[('Vienna',)]", ["Vienna"]),
        ("[a, 'b, c']", ["a", " 'b, c'"]),
        ("[]", []),
        ("[__import__('os').getpid()]", ["__import__('os').getpid()"]),
        ("[" * 9999 + "]" * 9999, ["[" * 9998 + "]" * 9998]),
        (f"[0x{'f' * 5000}]", [f"0x{'f' * 5000}"]),  # more digits than Python writes
    ],
)
def test_a_list_is_read(text: str, answers: list[str]) -> None:
    assert read_answers(text) == answers


@pytest.mark.parametrize(
    ("answers", "gold", "right"),
    [
        (["Vienna"], ["Vienna"], True),
        (["vienna"], ["Vienna"], False),
        (["3,729.70"], ["3729.7"], True),
        (["12.009"], ["12"], True),
        (["12.02"], ["12"], False),
        (["40%"], ["40"], True),
        (["'none'"], ["0"], True),
        (["b", "a", "a"], ["a", "b"], True),  # texts are a set
        (["1", "2", "2"], ["1", "2"], False),  # numbers are not
        (["2", "1.0"], ["1", "2"], True),
        ([], ["1"], False),
        (["1"], ["1", "x"], False),
        (["1e999"], ["1"], False),
    ],
)
def test_answers_are_compared(answers: list[str], gold: list[str], right: bool) -> None:
    assert answers_are_right(answers, gold) is right


def test_no_answer_is_not_an_empty_one() -> None:
    state = {"agent": {"answers": None}, "gold": {"answers": ["none"]}}
    assert sql_answers_reward(state).reason == "no answer was submitted"
