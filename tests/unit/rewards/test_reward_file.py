"""Reward files: what Harbor reads is read alike, and what is no reward is named."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_intercode.core.reward import Reward
from pytest_intercode.rewards.reward_file import (
    NO_REWARD,
    UnreadableReward,
    missing,
    reward_of_files,
    reward_of_steps,
)


@pytest.mark.parametrize(
    ("files", "reward"),
    [
        ({"reward.txt": b"1"}, Reward(1.0)),
        ({"reward.txt": b" 0.5\n"}, Reward(0.5)),
        ({"reward.txt": b"1e-1"}, Reward(0.1)),
        ({"reward.txt": b"\xef\xbb\xbf0"}, Reward(0.0)),
        ({"reward.json": b'{"reward": 1}'}, Reward(1.0)),
        ({"reward.json": b'{"reward": 0.5, "speed": 1}'}, Reward(0.5, {"reward": 0.5, "speed": 1})),
        ({"reward.json": b'{"a": 1, "b": 0}'}, Reward(0.5, {"a": 1.0, "b": 0.0})),
        ({"reward.json": b'{"reward": 1}', "reward.txt": b"1.0"}, Reward(1.0)),
        ({"reward.json": b'{"a": 1}', "reward.txt": b"0"}, Reward(1.0, {"a": 1.0})),
        ({"reward.json": b'{"reward": 1, "reward": 1}'}, Reward(1.0)),
        ({"rewards.json": b"{}", "reward.txt": b"1"}, Reward(1.0)),
    ],
)
def test_rewards(files: dict[str, bytes], reward: Reward) -> None:
    found = reward_of_files(files)
    assert (found.value, found.parts) == (reward.value, reward.parts)
    assert bool(found.reason) == (found.value < 1)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, NO_REWARD),
        ({"reward.txt": b""}, "reward.txt is empty"),
        ({"reward.txt": b" \n"}, "reward.txt is empty"),
        ({"reward.json": b"", "reward.txt": b"1"}, "reward.json is empty"),
        ({"reward.txt": b"passed"}, "reward.txt does not hold a number, but 'passed'"),
        ({"reward.txt": b"1 2"}, "reward.txt does not hold a number, but '1 2'"),
        ({"reward.txt": b"\xff\xfe"}, "reward.txt is not text"),
        ({"reward.txt": b"nan"}, "reward.txt is nan, which is not a reward"),
        ({"reward.txt": b"inf"}, "reward.txt is inf, which is not a reward"),
        ({"reward.txt": b"2"}, "reward.txt is 2, and a reward is from 0 to 1"),
        ({"reward.txt": b"-1"}, "reward.txt is -1, and a reward is from 0 to 1"),
        ({"reward.txt": b"9" * 2**21}, "reward.txt is too large for a reward file (2097152 bytes)"),
        ({"reward.json": b"{"}, "reward.json is not JSON: '{'"),
        ({"reward.json": b"[" * 100000}, "reward.json is not JSON: "),
        ({"reward.json": b'{"reward": ' + b"9" * 5000 + b"}"}, "reward.json is not JSON: "),
        (
            {"reward.json": b"1"},
            "reward.json does not hold an object of names and numbers, but '1'",
        ),
        (
            {"reward.json": b"{}"},
            "reward.json does not hold an object of names and numbers, but '{}'",
        ),
        ({"reward.json": b'{"reward": true}'}, "reward.json: 'reward' is not a number, but 'True'"),
        ({"reward.json": b'{"reward": {}}'}, "reward.json: 'reward' is not a number"),
        ({"reward.json": b'{"reward": NaN}'}, "reward.json: 'reward' is nan"),
        ({"reward.json": b'{"reward": 1e999}'}, "reward.json: 'reward' is inf"),
        ({"reward.json": b'{"reward": 1.5}'}, "reward.json: 'reward' is 1.5, and a reward is"),
        ({"reward.json": b'{"a": 1, "a": 0}'}, "reward.json says 'a' twice, and not the same"),
        (
            {"reward.json": b'{"reward": 1}', "reward.txt": b"0"},
            "reward.json says 1, and reward.txt says 0",
        ),
    ],
)
def test_what_is_not_a_reward_is_one_line(files: dict[str, bytes], message: str) -> None:
    with pytest.raises(UnreadableReward) as caught:
        reward_of_files(files)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)


@given(st.dictionaries(st.sampled_from(["reward.json", "reward.txt"]), st.binary(max_size=60)))
def test_any_bytes_are_a_reward_or_are_refused(files: dict[str, bytes]) -> None:
    try:
        reward = reward_of_files(files)
    except UnreadableReward:
        return
    assert math.isfinite(reward.value)
    assert 0 <= reward.value <= 1


def test_a_step_goes_on_from_what_it_needs() -> None:
    reward = Reward(0.5, {"speed": 0.2})
    assert missing(reward, [("reward", 0.5), ("speed", 0.2)]) == ""
    assert (
        missing(reward, [("reward", 0.6)]) == "the step's reward is 0.5, and 0.6 is needed to go on"
    )
    assert (
        missing(reward, [("size", 0.0)]) == "the step's reward has no 'size', of which 0 is needed"
    )


def test_the_reward_of_steps() -> None:
    steps = [Reward(1.0, {"a": 1.0}), Reward(0.0, {"b": 0.5}, "the second failed")]
    assert reward_of_steps(steps, "final") == steps[-1]
    assert reward_of_steps(steps, "mean") == Reward(0.5, {"a": 0.5, "b": 0.25}, "the second failed")
    assert reward_of_steps([], "mean").value == 0.0
