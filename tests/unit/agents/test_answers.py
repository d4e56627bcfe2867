"""Who answers an agent that hands back: lists, mappings, functions, and what is none of them."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_intercode.agents.answers import Answers
from pytest_intercode.agents.users import choose_user_model
from pytest_intercode.errors import ConfigurationError, TaskError


def test_without_answers_nobody_answers() -> None:
    answers = Answers()
    assert not answers.has_user
    assert answers.answer("Done.") is None
    assert answers.questions == [("Done.", None)]


def test_a_list_is_given_out_in_order_and_runs_out() -> None:
    answers = Answers(["Yes, go ahead.", "Python 3.12."])
    assert answers.has_user
    replies = [answers.answer(message) for message in ("May I?", "Which Python?", "Done.")]
    assert replies == ["Yes, go ahead.", "Python 3.12.", None]
    assert answers.questions == [
        ("May I?", "Yes, go ahead."),
        ("Which Python?", "Python 3.12."),
        ("Done.", None),
    ]
    answers.restart()
    assert answers.questions == []
    assert answers.answer("May I?") == "Yes, go ahead."


def test_an_empty_list_hears_and_says_nothing() -> None:
    answers = Answers([])
    assert answers.has_user
    assert answers.answer("May I?") is None


def test_a_mapping_has_texts_and_regular_expressions_in_its_order() -> None:
    answers = Answers(
        {
            "Shall I delete it?": "No.",  # a text: its ? is a question mark
            re.compile(r"python \d"): "3.12",
            "shall i": "Yes.",
        }
    )
    assert answers.answer("It is old. shall I delete it? Or not.") == "No."
    assert answers.answer("Shall I go on?") == answers.answer("Or shall I stop?") == "Yes."
    assert answers.answer("Is python 3 right?") == "3.12"
    assert answers.answer("Is Python 3 right?") is None  # flags are the expression's own


def test_a_function_gets_the_message_and_the_run() -> None:
    def reply(message: str, run: Any) -> str | None:
        return f"{run.turns} turns" if message.endswith("?") else None

    answers = Answers(reply)
    answers.run = SimpleNamespace(turns=3)
    assert answers.answer("How far?") == "3 turns"
    assert answers.answer("Done.") is None


def refuse(message: str, run: object) -> str:
    raise ValueError(f"no reply\nto {message}")


async def wait(message: str, run: object) -> str:
    return message


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (refuse, "answers=: refuse raised ValueError: no reply to May I?"),
        (lambda message, run: 7, "answers=: <lambda> returned 7; it returns a str, or None"),
        (wait, "answers=: wait returned <coroutine object wait"),
    ],
)
def test_a_function_that_fails_is_the_tests_fault(function: Any, text: str) -> None:
    with pytest.raises(TaskError) as raised:
        Answers(function).answer("May I?")
    assert str(raised.value).startswith(text)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("Yes.", "answers='Yes.': it has to be a list of replies"),
        (7, "answers=7: it has to be a list of replies"),
        (
            ["Yes.", ""],
            "answers=: the answer number 2 is ''; an answer has to be a text that is not empty",
        ),
        ([None], "answers=: the answer number 1 is None"),
        ({"May I": None}, "answers=: the answer for 'May I' is None"),
        ({"": "Yes."}, "answers={'': ...}: a key has to be a text"),
        ({re.compile(b"x"): "Yes."}, "answers={re.compile(b'x'): ...}: a key has to be a text"),
        (lambda message: "Yes.", "answers=: <lambda> has to accept (message, run)"),
    ],
)
def test_what_are_no_answers(source: Any, text: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        Answers(source)
    assert str(raised.value).startswith(text)
    assert "\n" not in str(raised.value)


def test_the_users_model_is_named_or_the_agents() -> None:
    assert choose_user_model("small", {"model": "large"}) == "small"
    assert choose_user_model("", {"model": "large"}) == "large"
    with pytest.raises(ConfigurationError, match="user_model=NAME"):
        choose_user_model("", {})
