"""A project test whose agent left more than is read: it fails, and so do its replays."""

from __future__ import annotations

import pytest

from tests.conftest import results
from tests.support.git import git

pytestmark = pytest.mark.usefixtures("needs_sandboxes")

AGENTS = """\
class Agent:
    def run(self, task, env):
        env.step("rm -rf legacy; mkdir /tmp/many; cd /tmp/many; seq 100001 | xargs touch")
        env.submit("Done.")
"""


def test_what_is_not_read_is_not_unchanged(pytester: pytest.Pytester) -> None:
    (pytester.path / "agents.py").write_text(AGENTS)
    (pytester.path / "legacy").mkdir()
    (pytester.path / "legacy/a.txt").write_text("a\n")
    git(pytester.path, "init", "-q")
    pytester.makepyfile(
        test_rules="""\
        def test_keeps_it(intercode_project):
            run = intercode_project.run("Do it.")
            assert run.answer == "Done."
            assert run.unchanged("legacy/")
        """
    )
    for mode in ("missing", "none"):
        result = pytester.runpytest_subprocess(
            *("-p", "no:cacheprovider", "--intercode-agent=agents.py:Agent"),
            *("--intercode-results=r.jsonl", f"--intercode-record={mode}"),
        )
        result.assert_outcomes(failed=1)
        reason = (
            "what the agent left could not be read: there are more than 100000 files and folders"
        )
        assert [line for line in result.outlines if line.startswith(("E ", ">"))] == [
            '>       assert run.unchanged("legacy/")',
            f"E       pytest_intercode.errors.UngradableState: {reason}",
        ]
        [row] = results(pytester.path / "r.jsonl")
        assert (row["outcome"], row["test_passed"]) == ("failed", False)
