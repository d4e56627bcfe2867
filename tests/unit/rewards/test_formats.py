"""The rules by which outputs say the same in another format, and what they must not accept."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_intercode.core.task import FORMAT_NAMES, FormatName, RewardOptions
from pytest_intercode.rewards.bash_strict import (
    BashState,
    bash_strict_reward,
    bash_strict_reward_again,
    bash_strict_state,
)
from pytest_intercode.rewards.formats import RULES, equal_as, only_messages
from pytest_intercode.sandboxes.protocol import Entry

LS = """\
total 8
-rw-r--r-- 1 root root   12 Nov 22 17:28 a.txt
lrwxrwxrwx 1 root root    1 Nov 22 17:28 bin -> a
drwxr-xr-x 2 root root 4096 Jan  3  2023 dir
"""
SHA = "3316580af4fc05d84fbe42ed709d823ebc5e2ccc2e48d4d33a83b8e967457518"

SAME: list[tuple[FormatName, str, str]] = [
    ("messages", "False\n", "bash: line 1: ps: command not found\nFalse\n"),
    ("messages", "3\n", "3\nfind: \u2018ls\u2019 terminated by signal 13\n"),
    (
        "messages",
        "rm: cannot remove 'a b': No such file or directory\n",
        "unlink: cannot unlink 'a b': No such file or directory\n",
    ),
    ("spaces", "hello world\n", "hello   world"),
    ("words", "a\nb\nc\n", "a b c\n"),
    ("sizes", "4\t/a\n2048\t/b\n", "4.0K\t/a\n2M\t/b\n"),
    ("dates", "Sun Nov  1 07:27:33 UTC 2026\n", "Sun, 01 Nov 2026 07:27:33 +0000\n"),
    ("dates", "2026-11-01T07:27:33Z\n", "2026-11-01 07:27:33+00:00\n"),
    ("digests", f"{SHA}  a.txt\n", f"SHA2-256(a.txt)= {SHA}\n"),
    ("counters", "one\n\ntwo\n", "     1\tone\n       \n     2\ttwo\n"),
    ("counters", "0000000 a b\n0000020 c d\n0000022\n", " a b\n c d\n"),
    ("counters", "bash---pstree\n", "bash(1)---pstree(17)\n"),
    ("line-order", "a\nb\n", "b\na\n"),
    ("paths", "/a/b\n/a/c/\n", "a/b\n./a/c\n"),
    ("matches", "/a/x.py\n/a/y.py\n", "/a/x.py:import os\n/a/y.py:import re\n/a/y.py:import os\n"),
    ("matches", "import os\n", "/a/x.py:import os\n"),
    ("columns", "a.txt\nbin\ndir\n", LS),
    ("columns", "11\n", "11 directories\n"),
    ("columns", "441 notes.txt\n", "441\n"),
    ("columns", "/usr/bin/bash\n", "bash is /usr/bin/bash\n"),
    ("columns", f"{SHA}\n{SHA[::-1]}\n", f"{SHA}  /a b\n{SHA[::-1]}  /c\n"),
    ("names", "Hello.java\nNew.java\n", "src/New.java\nsrc/Hello.java\n"),
    ("names", "├── a.txt\n└── b\n\n0 directories, 2 files\n", "| |___b\n| |___a.txt\n"),
]


@pytest.mark.parametrize(("rule", "gold", "agent"), SAME)
def test_the_same_in_another_format(rule: FormatName, gold: str, agent: str) -> None:
    assert equal_as(agent, gold, FORMAT_NAMES) == rule
    assert equal_as(agent, gold, FORMAT_NAMES[: FORMAT_NAMES.index(rule)]) is None
    state = BashState(agent), BashState(gold)
    lenient = RewardOptions(lenient=FORMAT_NAMES)
    assert bash_strict_reward(*state, lenient).value == 1.0
    assert bash_strict_reward(*state, RewardOptions()).value < 1.0
    record = bash_strict_state(*state, lenient)
    assert record["format"] == rule  # said in the open
    assert bash_strict_reward_again(record).value == 1.0
    assert bash_strict_reward_again(record, RewardOptions()).value < 1.0


OTHER = [
    ("3\n", "1 2 3 4 5\n"),  # every answer there may be
    ("3\n", "1\n2\n3\n"),
    ("3\n", "3 4\n"),
    ("3 4\n", "3\n"),
    ("True\n", "True False\n"),
    ("a.txt\n", "a.txt b.txt\n"),
    ("a.txt\nb.txt\n", "a.txt\nb.txt\nc.txt\n"),
    ("a.txt\nb.txt\n", "a.txt ada\nb.txt bob\n"),
    ("a.txt 3\nb.txt 4\n", "a.txt 3 4\nb.txt 4 3\n"),
    ("3\n4\n", "4 3\n3 4\n5 6\n"),
    (f"{SHA}  a\n", f"{SHA[::-1]}  a\n"),
    (f"{SHA}\n", "a.txt\n"),
    ("/a/x.py:import os\n", "/a/x.py:import re\n"),
    ("bash\n", "bash: line 1: lsof: command not found\n"),
    ("10\tone\n20\ttwo\n", "1\tone\n2\ttwo\n"),
    ("cat: a: No such file or directory\n", "cat: b: No such file or directory\n"),
    ("cat: 'a': No such file or directory\n", "cat: 'a': Permission denied\n"),
    ("4.0K\ta\n", "5\ta\n"),
    ("2026-11-01T07:27:33Z\n", "2026-11-01T07:27:34Z\n"),
    ("a\n", ""),
    ("a\n", "\n"),
]


@pytest.mark.parametrize(("gold", "agent"), OTHER)
def test_not_the_same(gold: str, agent: str) -> None:
    assert equal_as(agent, gold, FORMAT_NAMES) is None
    options = RewardOptions(lenient=FORMAT_NAMES)
    assert bash_strict_reward(BashState(agent), BashState(gold), options).value < 1.0


@given(st.text(st.sampled_from("ab1 \n./:()")), st.permutations(FORMAT_NAMES))
def test_nothing_is_no_answer(gold: str, rules: list[FormatName]) -> None:
    """Whatever gold prints, rules in no order let an empty output pass for it."""
    for agent in ("", "\n", " \t\n\n"):
        if gold.strip():
            assert equal_as(agent, gold, rules) is None


@given(st.text(st.sampled_from("ab1 \n./:()-")), st.text(st.sampled_from("ab1 \n./:()-")))
def test_any_two_texts(agent: str, gold: str) -> None:
    """No text is an error, and what a few rules accept, more rules of the same order accept."""
    accepted = [equal_as(agent, gold, FORMAT_NAMES[:many]) for many in range(len(FORMAT_NAMES) + 1)]
    assert accepted == sorted(accepted, key=lambda rule: rule is not None)


HOSTILE = {
    "columns": "\n".join(" ".join("ab"[(n * k) % 2] for k in range(16)) for n in range(300)),
    "quotes": "'" * 19_000 + ": No such file or directory",
    "opening quotes": "cat: " + "\u2018" * 15_000,
    "colons": "a: " * 6_000,
    "slashes": "/" * 19_000 + " x",
    "drawn": "│ " * 9_000,
    "arrows": " -> a" * 4_000,
    "digits": "1" * 19_000,
    "dates": "Sun Nov " * 2_400,
    "brackets": "(1" * 9_000,
    "meters": "\r   " * 4_700,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_texts_made_to_take_ages(text: str) -> None:
    gold = "\n".join(" ".join("ab"[(n + k) % 2] for k in range(8)) for n in range(300))
    began = time.process_time()
    for agent, other in itertools.permutations((text, gold)):
        equal_as(agent, other, FORMAT_NAMES)
    assert time.process_time() - began < 1.0


def test_messages_of_what_changes_something_do_not_count() -> None:
    made = {"/a.tar": Entry("f", 0o644, 0, 0, "aa")}
    said = "tar: Removing leading `/' from member names\n"
    gold = BashState(said, "", made, {"/a.tar": None}, frozenset(made))
    agent = BashState(f"{said}/a\n", "", made, {"/a.tar": None}, frozenset(made))
    lenient = RewardOptions(lenient=("messages",))
    assert only_messages(said)
    assert not only_messages("3\n")
    assert bash_strict_reward(agent, gold, RewardOptions()).parts["output"] < 1.0
    assert bash_strict_reward(agent, gold, lenient).parts == {"files": 1.0}
    nothing = BashState("", "", {"/a.tar": None})
    assert bash_strict_reward(nothing, gold, lenient).value == 0.0


def test_the_rules_have_names() -> None:
    assert tuple(RULES) == FORMAT_NAMES
