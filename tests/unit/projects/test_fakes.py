"""Patterns of words and their answers, without a sandbox."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from pytest_intercode.core.call import ShimCall
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.projects.fakes import Answer, Fake, FakeAnswer, refuse, resolve


def call_of(*words: str) -> ShimCall:
    return ShimCall(words[0], words[1:], "/work")


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("repo view", ["repo view"], ["repo", "repo view x", "REPO VIEW", "repo  view\n"]),
        ("repo view *", ["repo view", "repo view x", "repo view x y"], ["repo", "x repo view"]),
        ("* --json", ["--json", "a b --json"], ["--json a", "--jso"]),
        ("a * b", ["a b", "a x b", "a b b", "a x y b"], ["a", "b", "a b x"]),
        ("a * b * c", ["a b c", "a x b y c", "a b b c c"], ["a c", "a c b", "a b"]),
        ("*", ["", "a", "a b"], []),
        ("* *", ["", "a", "a b"], []),
        ("--name=*", ["--name=", "--name=x"], ["--name", "-name=x", "--name=x y"]),
        ("*.py", [".py", "a.py"], ["a.pyc", "a.py b"]),
        ("a*b*c", ["abc", "axbyc", "abbc"], ["ab", "acb", "abcd"]),
        ("aba*aba", ["abaaba", "aba-aba"], ["aba", "ababa"]),
        ("say 'two words' [a-z]?", ["say 'two words' '[a-z]?'"], ["say two words", "say x a"]),
    ],
)
def test_a_pattern(pattern: str, matching: list[str], others: list[str]) -> None:
    import shlex

    fake = Fake({pattern: "yes"}, "no")
    for text in matching:
        assert fake.find_answer(shlex.split(text)) == "yes", text
    for text in others:
        words = [text] if text.endswith("\n") else shlex.split(text)
        assert fake.find_answer(words) == "no", text


def test_the_first_pattern_that_matches_decides() -> None:
    fake = Fake({"repo view secret": refuse, "repo *": "some", "repo list": "never"})
    assert fake.find_answer(["repo", "view", "secret"]) is refuse
    assert fake.find_answer(["repo", "list"]) == "some"
    assert fake.find_answer(["issue"]) is refuse


def test_a_call_takes_no_time_to_match_whatever_its_words() -> None:
    fake = Fake({"*a*a*a*a*a*a*b": "x", "* a * a * a * a * b": "y"}, "no")
    started_at = time.process_time()
    assert fake.find_answer(["a" * 250_000]) == "no"
    assert fake.find_answer(["a"] * 60_000) == "no"
    assert time.process_time() - started_at < 2.0


@pytest.mark.parametrize(
    ("answer", "stdout"),
    [
        ("text", "text\n"),
        ("lines\n", "lines\n"),
        ("", ""),
        (FakeAnswer("exact"), "exact"),
        (lambda call: call.arguments[0], "view\n"),
        (lambda call: FakeAnswer(stdout="exact"), "exact"),
    ],
)
def test_an_answer(answer: Answer, stdout: str) -> None:
    assert resolve(answer, call_of("gh", "view")) == FakeAnswer(stdout)


def test_a_refusal_is_one_line() -> None:
    answer = refuse(call_of("gh", "repo", "a b\n\x1b[2J"))
    assert answer.status == 1
    assert answer.refused
    assert answer.stderr == "gh: this test has no answer for: repo 'a b\\n\\x1b[2J'\n"
    assert len(refuse(call_of("gh", "x" * 10_000)).stderr) < 300
    assert refuse(call_of("gh")).stderr == "gh: this test has no answer for: no words\n"


def test_a_call_is_a_line_of_shell() -> None:
    call = call_of("gh", "pr", "create", "--title", "two words")
    assert str(call) == "gh pr create --title 'two words'"
    assert call.words[0] == "gh"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Fake({"": "x"}), "Fake(): a pattern is empty; give words such as 'repo view *'"),
        (lambda: Fake({"  ": "x"}), "Fake(): a pattern is empty"),
        (
            lambda: Fake({"a  b": "x", "a b": "y"}),
            "Fake(): the patterns 'a  b' and 'a b' are the same; leave one out",
        ),
        (lambda: Fake({"a *": "x", "a * *": "y"}), "the patterns 'a *' and 'a * *' are the same"),
        (lambda: Fake({"say 'x": "x"}), 'Fake(): the pattern "say \'x": No closing quotation'),
        (lambda: Fake({"a": 3}), "Fake(): the answer of 'a' is 3; give a str, a FakeAnswer or"),  # type: ignore[dict-item]
        (lambda: Fake({}, None), "Fake(): the answer of default is None"),  # type: ignore[arg-type]
        (lambda: Fake({3: "x"}), "Fake(): the pattern 3 is not a str"),  # type: ignore[dict-item]
        (lambda: FakeAnswer(status=256), "FakeAnswer(status=256): give a number from 0 to 255"),
        (lambda: FakeAnswer(status=True), "FakeAnswer(status=True)"),
        (lambda: FakeAnswer(b"x"), "FakeAnswer(stdout=b'x'): give a str"),  # type: ignore[arg-type]
        (lambda: FakeAnswer(stderr="\ud800"), "FakeAnswer(stderr=...): 'utf-8' codec"),
        (
            lambda: resolve(lambda call: None, call_of("gh", "x")),  # type: ignore[arg-type,return-value]
            "the fake gh: its function returns None for gh x; return a str or a FakeAnswer",
        ),
    ],
)
def test_a_mistake_is_one_line(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
