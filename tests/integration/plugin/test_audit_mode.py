"""``--intercode-audit``: each task is an item that fails when something is wrong with the task."""

from __future__ import annotations

import pytest

SUITE = """\
env: bash
defaults: {workdir: /work}
tasks:
  - id: nothing
    query: Do nothing.
    gold: "true"
  - id: sound
    query: Write the word apple to out.txt.
    gold: echo apple > out.txt
  - id: broken
    query: Print the words of list.txt.
    gold: cat lsit.txt
    files: {list.txt: "a b"}
"""


@pytest.mark.usefixtures("needs_sandboxes")
@pytest.mark.parametrize("options", [(), pytest.param(("-n", "2"), marks=pytest.mark.slow)])
def test_items_fail_with_what_is_wrong(pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
    pytester.makefile(".yaml", suite=SUITE)
    result = pytester.runpytest_subprocess("suite.yaml", "--intercode-audit", "-v", *options)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines_random(
        [
            "intercode: audit of the tasks, profile strict, sandbox *",
            "*suite.yaml::test_is_sound[[]sound]*",
            "noop-scores-0: *",
            "gold-runs: gold fails with status 1",
            "cat: lsit.txt: No such file or directory",
        ]
    )
    result.stdout.no_fnmatch_line("*raceback*")


def test_no_agent_is_run(pytester: pytest.Pytester) -> None:
    pytester.makefile(".yaml", suite=SUITE)
    result = pytester.runpytest("suite.yaml", "--intercode-audit", "--intercode-agent=oracle")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--intercode-audit: * leave out --intercode-agent=oracle"])


def test_what_is_collected(pytester: pytest.Pytester) -> None:
    options = ("--intercode-env=ctf", "--intercode-limit=1", "--intercode-repeat=3")
    result = pytester.runpytest("--intercode-audit", *options, "--co", "-q")
    [node] = [line for line in result.outlines if "::" in line]
    assert node.startswith("intercode/ctf::test_is_sound[")
    pasted = pytester.runpytest("--intercode-audit", node, "--co", "-q")
    assert node in pasted.outlines
