"""pytest-timeout: an item whose time is up is one line, and the run goes on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conftest import results

SLEEPY = """
import time
from agents import Solver

class Sleepy(Solver):
    def act(self, observation):
        if self.left == ["echo hello", "submit"]:
            time.sleep(60)
        return super().act(observation)
"""
METHODS = pytest.mark.parametrize("method", ["signal", "thread"])


@METHODS
@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_rollout_that_takes_too_long(
    pytester: pytest.Pytester, pretend: Path, method: str, concurrency: int
) -> None:
    pytester.makepyfile(sleepy=SLEEPY)
    result = pytester.runpytest_subprocess(
        *("suite.yaml", "--intercode-agent=sleepy:Sleepy", "--intercode-results=r.jsonl"),
        *("--timeout=1", f"--timeout-method={method}", f"--intercode-concurrency={concurrency}"),
        timeout=30,
    )
    result.assert_outcomes(failed=1, passed=2)
    result.stdout.no_fnmatch_line("*Stack of*")
    result.stdout.fnmatch_lines(
        [
            "*_ test_solves[[]prints[]] _*",
            "Timeout (>1.0s) from pytest-timeout.",
            "all *3 *2 *66.7%*",
            "outcomes: 2 solved, 1 timed-out",
        ]
    )
    outcomes = {row["task_id"]: row["outcome"] for row in results(pytester.path / "r.jsonl")}
    assert outcomes == {"prints": "timed-out", "writes": "solved", "both": "solved"}


def test_a_sandbox_that_takes_too_long(pytester: pytest.Pytester, pretend: Path) -> None:
    """That is not the agent's doing, so there is no record."""
    conftest = pytester.path / "conftest.py"
    conftest.write_text(conftest.read_text().replace("self.last = None", "time.sleep(5)"))
    with conftest.open("a") as file:
        file.write("\nimport time\n")
    result = pytester.runpytest_subprocess(
        *("suite.yaml", "--intercode-agent=agents:Solver", "--timeout=1", "-k", "prints"),
        "--intercode-results=r.jsonl",
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["Timeout (>1.0s) from pytest-timeout."])
    result.stdout.no_fnmatch_line("*Stack of*")
    assert results(pytester.path / "r.jsonl") == []


@METHODS
def test_a_test_of_the_users_that_hangs_is_left_to_the_plugin(
    pytester: pytest.Pytester, pretend: Path, method: str
) -> None:
    pytester.makepyfile(
        """
        import pytest, time

        @pytest.mark.intercode(suite="suite.yaml", ids="prints")
        def test_hangs(intercode_episode):
            assert intercode_episode.reward == 1.0
            time.sleep(60)
        """
    )
    result = pytester.run(
        *(sys.executable, "-m", "pytest", "--intercode-agent=agents:Solver"),
        *("--timeout=1", f"--timeout-method={method}"),
        timeout=30,
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    said = result.stdout.str() + result.stderr.str()
    assert "Timeout" in said
    assert "time.sleep(60)" in said  # where it hangs
    assert "timeouts.py" not in said.partition("Stack of")[0]
    assert ("1 failed" in said) == (method == "signal")
