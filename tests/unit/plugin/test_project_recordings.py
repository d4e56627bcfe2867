"""What a run of a project test is given next to its task decides whether its recording is stale."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_intercode.core.task import Task
from pytest_intercode.environments.project.fields import ProjectFields
from pytest_intercode.plugin.project_recordings import _digest_inputs
from pytest_intercode.plugin.project_tests import _content_of_fake
from pytest_intercode.projects.fakes import Fake
from pytest_intercode.system.digest import value_digest

_TASK = Task("t", "Do it.", (), "project", "s", "", fields=ProjectFields(commit="a"))


def _digest_answers(answers: object) -> str:
    return _digest_inputs(_TASK, {"answers": answers})["answers"]


def test_the_order_of_answers_counts() -> None:
    """The first one that fits is given."""
    pattern, tests = re.compile("which"), re.compile("tests")
    orders: list[dict[object, str]] = [
        {pattern: "a", tests: "b"},
        {tests: "b", pattern: "a"},
        {"which": "a", tests: "b"},
        {tests: "b", "which": "a"},
        {"which": "a", "tests": "b"},
        {"tests": "b", "which": "a"},
    ]
    assert len(set(map(_digest_answers, orders))) == len(orders)
    assert _digest_answers({re.compile("which"): "a"}) == _digest_answers({pattern: "a"})


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["Yes."], "5b0e0297b76448af"),
        ({"which": "a"}, "059daed2620ff7ee"),
        ({"tests": "b", "which": "a"}, "a6e896ac182b0b59"),
        (_digest_answers, "5b88230c7d8a08ae"),
    ],
)
def test_answers_of_earlier_versions_are_recognised(answers: object, expected: str) -> None:
    assert _digest_answers(answers) == expected


def test_fakes_that_answer_otherwise_have_other_digests(tmp_path: Path) -> None:
    fakes = [
        Fake({"repo view": "a", "repo *": "b"}),
        Fake({"repo *": "b", "repo view": "a"}),
        Fake({"repo view": "x", "repo *": "b"}),
        Fake({"repo view": "a", "repo *": "b"}, default=""),
        Fake({"repo view": "a", "repo *": "b"}, reads_input=True),
    ]
    digests = [value_digest(_content_of_fake(fake, tmp_path)) for fake in fakes]
    assert len(set(digests)) == len(fakes)
