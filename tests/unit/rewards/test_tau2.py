"""The reward of tau2-bench: a product of what a task names."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_intercode.rewards.tau2 import tau2_reward


def state(criteria: dict[str, Any], **more: Any) -> dict[str, Any]:
    agent = {"calls": [], "conversation": [], "premature": ""}
    checks = {"db": True, "assertions": []}
    for name, value in more.items():
        (checks if name in checks else agent)[name] = value
    return {"criteria": criteria, "agent": agent, "checks": checks}


@pytest.mark.parametrize(
    ("said", "value"),
    [
        (["It is 1,628 DOLLARS."], 1.0),
        (["It is 1628", "dollars"], 0.0),
        (["1628 dollars, I think"], 1.0),
        ([" ", ""], 0.0),
        ([], 0.0),
    ],
)
def test_what_has_to_be_said_is_in_one_message_without_its_commas(
    said: list[str], value: float
) -> None:
    criteria = {"actions": [], "communicate_info": ["1628 Dollars"]}
    conversation = [{"user": "1628 dollars"}, *({"agent": text} for text in said)]
    reward = tau2_reward(state(criteria, conversation=conversation))
    assert (reward.value, reward.parts) == (value, {"db": 1.0, "communicate": value})


def test_it_is_a_product_of_what_is_named() -> None:
    criteria = {"actions": [], "env_assertions": [{}, {}], "reward_basis": ["ENV_ASSERTION"]}
    assert tau2_reward(state(criteria, assertions=[True, True], db=False)).value == 1.0
    assert tau2_reward(state(criteria, assertions=[True, False])).value == 0.0
    both = {**criteria, "reward_basis": ["ENV_ASSERTION", "DB"]}
    reward = tau2_reward(state(both, assertions=[True, True], db=False))
    assert (reward.value, reward.parts) == (0.0, {"db": 0.0, "env_assertion": 1.0})
    assert reward.reason == "the database is not as gold leaves it"


def test_without_anything_to_compare_the_database_is_right() -> None:
    assert tau2_reward(state({"reward_basis": ["DB"]}, db=False)).value == 1.0


@pytest.mark.parametrize(
    ("arguments", "compared", "value"),
    [
        ({"a": 1, "b": 2}, None, 1.0),
        ({"a": 1}, None, 1.0),  # by the call's own arguments, as its evaluator has it
        ({"a": 2, "b": 2}, ["b"], 1.0),
        ({"a": 2, "b": 2}, None, 0.0),
        ({"a": 2}, [], 1.0),
    ],
)
def test_calls_that_have_to_be_made(
    arguments: dict[str, Any], compared: list[str] | None, value: float
) -> None:
    action = {"name": "tool", "arguments": {"a": 1, "b": 2}, "compare_args": compared}
    criteria = {"actions": [action], "reward_basis": ["ACTION"]}
    calls = [{"name": "tool", "requestor": "user", "arguments": arguments}]
    assert tau2_reward(state(criteria, calls=calls)).value == value


def test_what_was_cut_short_has_none() -> None:
    reward = tau2_reward(state({"actions": []}, premature="100 steps"))
    assert (reward.value, reward.reason) == (0.0, "it came to no end: 100 steps")
