"""Project tests that have subtests: the episodes are the test's, and so is what a subtest finds."""

from __future__ import annotations

import pytest

from tests.conftest import results
from tests.support.git import git

pytestmark = [
    pytest.mark.usefixtures("needs_sandboxes"),
    pytest.mark.skipif(not hasattr(pytest, "Subtests"), reason="they came with pytest 9"),
]

AGENTS = """\
class Agent:
    def run(self, task, env):
        env.step("echo hello >greeting")
        env.submit("Done.")
"""
TEST = """\
def test_follows(intercode_project, subtests):
    run = intercode_project.run("Do it.")
    for name in ("greeting", "{name}"):
        with subtests.test("created", name=name):
            assert run.created(name)
    for number in range({mistakes}):
        with subtests.test("mistake"):
            intercode_project.run("Again.", nothing=1)
"""


@pytest.mark.parametrize(
    ("options", "name", "mistakes", "outcomes", "outcome", "passed"),
    [
        ([], "greeting", 0, {"passed": 1}, "solved", True),
        (["-n1"], "farewell", 0, {"failed": 2}, "failed", False),  # with the subtest
        ([], "greeting", 1, {"failed": 2}, "task-error", None),
    ],
    ids=["passed", "failed", "mistake"],
)
def test_an_episode_is_its_tests(
    pytester: pytest.Pytester,
    options: list[str],
    name: str,
    mistakes: int,
    outcomes: dict[str, int],
    outcome: str,
    passed: bool | None,
) -> None:
    (pytester.path / "agents.py").write_text(AGENTS)
    git(pytester.path, "init", "-q")
    pytester.makepyfile(test_rules=TEST.format(name=name, mistakes=mistakes))
    result = pytester.runpytest_subprocess(
        *("-p", "no:cacheprovider", "--intercode-agent=agents.py:Agent"),
        *("--intercode-results=r.jsonl", *options),
    )
    assert result.parseoutcomes().items() >= outcomes.items(), result.stdout.str()
    [row] = results(pytester.path / "r.jsonl")
    assert (row["outcome"], row.get("test_passed")) == (outcome, passed)
