"""The rewards of ctf, and how the paper profile makes a process of an action."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_intercode.environments.ctf.paper import split_ctf_action
from pytest_intercode.rewards.ctf import FlagDigest, ctf_paper_reward, ctf_strict_reward

FLAG = "picoCTF{1|/|_4_p34|\\|ut}"
GOLD = FlagDigest.of(FLAG)


def test_case_is_ignored_where_the_task_says_so() -> None:
    gold = FlagDigest.of(FLAG, ignore_case=True)
    assert ctf_strict_reward([f'"{FLAG.upper()}"'], gold).value == 1.0
    assert ctf_strict_reward([FLAG.upper()], GOLD).value == 0.0
    assert ctf_strict_reward([f"{FLAG}x"], gold).value == 0.0


@pytest.mark.parametrize(
    "answer", [FLAG, f"  {FLAG}\n", f'"{FLAG}"', f"'{FLAG}'", f"`{FLAG}`", f' " {FLAG} " ']
)
def test_the_flag(answer: str) -> None:
    reward = ctf_strict_reward([answer], GOLD)
    assert (reward.value, reward.parts, reward.reason) == (1.0, {"flag": 1.0}, "")


@pytest.mark.parametrize(
    "answer",
    [
        *("", "''", "'", FLAG.lower(), FLAG.upper(), FLAG[:-1], f"{FLAG}}}", FLAG[8:-1]),
        *(f"{FLAG} {FLAG}", f"'{FLAG}\"", f"\"'{FLAG}'\"", f"flag: {FLAG}", GOLD.exact, "\udcff"),
    ],
)
def test_what_is_not_the_flag(answer: str) -> None:
    reward = ctf_strict_reward([answer], GOLD)
    assert (reward.value, reward.parts) == (0.0, {"flag": 0.0})
    assert reward.reason == "the flag that was submitted is wrong"


def test_several_answers() -> None:
    assert ctf_strict_reward([], GOLD).reason == "no flag was submitted"
    assert ctf_strict_reward(["a", "b"], GOLD).reason == "2 wrong flags were submitted"
    assert ctf_strict_reward(["a", FLAG], GOLD).value == 1.0


def test_gold_is_taken_without_the_white_space_around_it() -> None:
    assert FlagDigest.of(f"\n{FLAG} ") == GOLD


def test_a_flag_in_quotes_of_its_own() -> None:
    gold = FlagDigest.of("'x'")
    assert ctf_strict_reward(["'x'"], gold).value == 1.0
    assert ctf_strict_reward(["x"], gold).value == 0.0


@given(st.text(), st.text())
def test_only_equal_texts_are_equal(flag: str, answer: str) -> None:
    solved = ctf_strict_reward([answer], FlagDigest.of(flag)).value == 1.0
    quoted = answer.strip()[1:-1].strip()
    assert solved <= (flag.strip() in (answer.strip(), quoted))
    assert ctf_strict_reward([flag], FlagDigest.of(flag)).value == 1.0


def test_paper_ignores_case_and_nothing_else() -> None:
    assert ctf_paper_reward([FLAG.upper()], GOLD).value == 1.0
    assert ctf_paper_reward([f"'{FLAG}'"], GOLD).value == 0.0
    assert ctf_paper_reward([], GOLD).value == 0.0


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("ls -l | wc", ["/bin/bash", "-c", "ls -l | wc"]),
        ("echo 'a b'", ["/bin/bash", "-c", "echo 'a b'"]),
        ("I'm", ["/bin/bash", "-c", "I'm"]),
        ('echo "a', ["/bin/bash", "-c", 'echo "a']),
        ("echo a\\nb", ["/bin/bash", "-c", "echo a\\nb"]),
        ("python3 -c 'print(1)' | cat", ["python3", "-c", "print(1)", "|", "cat"]),
        ('python -c "print(1)"', ["python", "-c", "print(1)"]),
        ("python3 -c 'print(1)", None),
        ("python3 x.py 'a b'", ["/bin/bash", "-c", "python3 x.py 'a b'"]),
        (" python3 -c 'a b'", ["/bin/bash", "-c", " python3 -c 'a b'"]),
    ],
)
def test_paper_actions(action: str, words: list[str] | None) -> None:
    assert split_ctf_action(action) == words
