"""InterCode's reward for bash: numbers worked out by hand, and what it makes of an action."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import erf  # type: ignore[import-untyped]

from pytest_intercode.environments.bash.paper import split_action
from pytest_intercode.environments.paper import resolve_cd
from pytest_intercode.rewards.bash_paper import PaperState, bash_paper_reward, parse_status

_NEW = (("a.txt", "??"),)


def _parts(agent: PaperState, gold: PaperState) -> tuple[float, float, float]:
    parts = bash_paper_reward(agent, gold).parts
    assert list(parts) == ["file_diff", "file_changes", "answer_similarity"]
    return parts["file_diff"], parts["file_changes"], parts["answer_similarity"]


@pytest.mark.parametrize(
    "state",
    [
        PaperState("", ()),
        PaperState("total 4\n", ()),
        PaperState("- ? a\n", ()),
        PaperState("one two three\n", _NEW, {"a.txt": "d41d a.txt\n"}),
        PaperState("x" * 5000, (("src/a", "M"), ("b", "D"), ("c", "A")), {"c": "1"}),
        PaperState("the quick brown fox " * 7 + "jumps", ()),
    ],
)
def test_equal_states_are_exactly_one(state: PaperState) -> None:
    reward = bash_paper_reward(state, state)
    assert reward.value == 1.0
    assert reward.reason == ""
    assert tuple(reward.parts.values()) == (0.33, 0.33, 0.33)


@pytest.mark.parametrize(
    ("agent", "gold", "expected", "value"),
    [
        # nothing was done where gold prints only: the first two parts are given away
        (PaperState("", ()), PaperState("hello world", ()), (0.33, 0.33, 0.0), 0.67),
        # one path differs: 0.33 * (1 - erf(1)) = 0.0519
        (PaperState("", ()), PaperState("", _NEW), (0.05, 0.33, 0.33), 0.72),
        # two do: 0.33 * (1 - erf(2)) = 0.0015
        (
            PaperState("", (("b.txt", "??"),)),
            PaperState("", _NEW),
            (0.0, 0.33, 0.33),
            0.67,
        ),
        # the same path with another code is missing and extra at once
        (PaperState("", (("a", "M"),)), PaperState("", (("a", "D"),)), (0.0, 0.33, 0.33), 0.67),
        # both created it, and it is not the same
        (
            PaperState("", _NEW, {"a.txt": "1"}),
            PaperState("", _NEW, {"a.txt": "2"}),
            (0.33, 0.0, 0.33),
            0.67,
        ),
        # an in-place edit is never looked into
        (
            PaperState("", (("a.txt", "M"),), {"a.txt": "1"}),
            PaperState("", (("a.txt", "M"),), {"a.txt": "2"}),
            (0.33, 0.33, 0.33),
            1.0,
        ),
        # one-letter words do not count
        (PaperState("total 4", ()), PaperState("total 8", ()), (0.33, 0.33, 0.33), 1.0),
        # no vectors can be made: equal or not
        (PaperState("1", ()), PaperState("2", ()), (0.33, 0.33, 0.0), 0.67),
        # half of the words, weighed: 1 / (1 + 1.4055 ** 2) = 0.336, of 0.33
        (PaperState("aa bb", ()), PaperState("aa cc", ()), (0.33, 0.33, 0.11), 0.78),
    ],
)
def test_worked_examples(
    agent: PaperState, gold: PaperState, expected: tuple[float, ...], value: float
) -> None:
    assert _parts(agent, gold) == expected
    assert bash_paper_reward(agent, gold).value == pytest.approx(value)


def test_share_of_created_files_that_are_equal() -> None:
    status = (("a", "??"), ("b", "A"), ("c", "C"), ("d", "M"))
    agent = PaperState("", status, {"a": "1", "b": "1", "c": "1", "d": "1"})
    gold = PaperState("", status, {"a": "1", "b": "2", "c": "1", "d": "2"})
    assert _parts(agent, gold)[1] == round(0.33 * 2 / 3, 2) == 0.22


@pytest.mark.parametrize("missing", range(4))
@pytest.mark.parametrize("extra", range(4))
def test_changed_paths_against_scipy(missing: int, extra: int) -> None:
    both = (("both", "M"),)
    agent = PaperState("", both + tuple((f"extra{n}", "M") for n in range(extra)))
    gold = PaperState("", both + tuple((f"missing{n}", "M") for n in range(missing)))
    assert _parts(agent, gold)[0] == round(0.33 * (1 - float(erf(missing + extra))), 2)


_STATUS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(["??", "A", "C", "M", "D"])), max_size=5
).map(tuple)
_STATES = st.builds(
    PaperState,
    st.text("ab \n1", max_size=12),
    _STATUS,
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from("12")),
)


@given(_STATES, _STATES)
def test_range_and_sum(agent: PaperState, gold: PaperState) -> None:
    reward = bash_paper_reward(agent, gold)
    assert 0.01 <= reward.value <= 1.0
    assert all(0.0 <= part <= 0.33 for part in reward.parts.values())
    assert reward.value == pytest.approx(0.01 + sum(reward.parts.values()))
    assert bool(reward.reason) == (reward.value < 1.0)
    assert reward.value == bash_paper_reward(gold, agent).value


def test_reason_counts_and_names_no_path() -> None:
    gold = PaperState("", (("secret", "??"), ("hidden", "M")))
    assert bash_paper_reward(PaperState("", ()), gold).reason == (
        "2 paths not changed that gold changes"
    )
    assert bash_paper_reward(PaperState("", (("mine", "??"),)), gold).reason == (
        "2 paths not changed, 1 changed that gold leaves alone"
    )
    assert bash_paper_reward(PaperState("no", ()), PaperState("yes", ())).reason == (
        "answer_similarity 0.00 of 0.33"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        (" M a.txt\n?? b/\n", (("a.txt", "M"), ("b/", "??"))),
        ("A  new\n D old\n", (("new", "A"), ("old", "D"))),
        # a name with a space shifts all that follows
        ('?? "a b"\n M c\n', (('"a', "??"), ("M", 'b"'))),
        ("R  a -> b\n", (("a", "R"), ("b", "->"))),
    ],
)
def test_parse_status(text: str, expected: tuple[tuple[str, str], ...]) -> None:
    assert parse_status(text) == expected


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("ls", ["/bin/bash", "-c", "ls"]),
        ("  ls -l \n", ["/bin/bash", "-c", "ls -l"]),
        ("", ["/bin/bash", "-c", ""]),
        ("echo 'a b'", ["/bin/bash", "-c", "echo 'a b'"]),
        # double quotes inside close the outer pair
        ('grep "error" log', ["/bin/bash", "-c", "grep error log"]),
        ('grep "an error" log', ["/bin/bash", "-c", "grep an", "error log"]),
        ('find -name "*.c" -o -name "*.h"', ["/bin/bash", "-c", "find -name *.c -o -name *.h"]),
        ('echo "', None),
        ('echo "a', None),
        ('echo "it\'s" done', None),
        # a backslash keeps its place before most characters, and goes before these two
        ("echo \\$HOME", ["/bin/bash", "-c", "echo \\$HOME"]),
        ('echo \\"a\\"', ["/bin/bash", "-c", 'echo "a"']),
        ("echo \\\\n", ["/bin/bash", "-c", "echo \\n"]),
        ("echo \\", None),
        ("a\nb", ["/bin/bash", "-c", "a\nb"]),
        ("echo # no comment", ["/bin/bash", "-c", "echo # no comment"]),
    ],
)
def test_split_action(action: str, expected: list[str] | None) -> None:
    assert split_action(action) == expected


@pytest.mark.parametrize(
    ("directory", "action", "expected"),
    [
        ("/", "cd testbed", "/testbed"),
        ("/a", "cd b/c", "/a/b/c"),
        ("/a", "cd /b", "/b"),
        ("/a/b", "cd ..", "/a"),
        ("/a/b", "cd ../../..", "/"),
        ("/a/b", "cd ../c/./d/..", "/a/c"),
        ("/a", "cd .", "/a"),
        ("/a", "cd /", "/"),
        ("/a", "cd //b//c/", "/b/c"),
        ("/a", "cd", "/a"),
        ("/a", "cd   b ", "/a/b"),
        ("/a", "cd b && ls", "/a/b && ls"),
        ("/a", "cd b && cd c", "/a/b && cd c"),
        ("/a", "cd ~", "/a/~"),
    ],
)
def test_resolve_cd(directory: str, action: str, expected: str) -> None:
    assert resolve_cd(directory, action) == expected
