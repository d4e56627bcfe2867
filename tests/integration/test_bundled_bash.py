"""Our own bash suite: gold solves it, nothing does not, and both ways of reading the disk agree."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_intercode.environments.bash import BashEnvironment
from pytest_intercode.environments.shell import prepare
from pytest_intercode.errors import EngineUnavailable
from pytest_intercode.reporting.results import read_results
from pytest_intercode.sandboxes.docker.container import Container
from pytest_intercode.sandboxes.docker.engine import connect
from pytest_intercode.sandboxes.listing import ListingProbe
from pytest_intercode.sandboxes.overlay import OUTSIDE, OverlayProbe
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.suites.loader import bundled_folder, load_suite

SUITE = load_suite(bundled_folder("tasks") / "bash.yaml")


@pytest.fixture(autouse=True, scope="module")
def docker_answers() -> None:
    try:
        connect().close()
    except EngineUnavailable as error:
        pytest.skip(str(error))


def test_oracle_solves_every_task(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess(
        "--intercode-env=bash", "--intercode-agent=oracle", "--intercode-results=r.jsonl"
    )
    result.assert_outcomes(passed=len(SUITE.tasks))
    rows = read_results(pytester.path / "r.jsonl")
    changing = [row for row in rows if row["end_state"]["gold"]["touched"]]
    assert len(rows) >= 40
    assert len(changing) >= len(rows) / 2


def test_doing_nothing_earns_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(lazy="def act(observation):\n    return 'true'\n")
    result = pytester.runpytest_subprocess(
        "--intercode-env=bash",
        "--intercode-agent=lazy:act",
        "--intercode-max-turns=3",
        "--intercode-results=r.jsonl",
    )
    result.assert_outcomes(failed=len(SUITE.tasks))
    assert {row["reward"] for row in read_results(pytester.path / "r.jsonl")} == {0.0}


def test_both_probes_see_the_same_effects(tmp_path: Path) -> None:
    """The walk over the layers from outside, and the listings from inside.

    Of all tasks with INTERCODE_ALL=1, else of every third.
    """
    tasks = SUITE.tasks[:: 1 if os.environ.get("INTERCODE_ALL") else 3]
    provider = SandboxProvider()
    try:
        for at, task in enumerate(tasks):
            provider.expect(BashEnvironment.spec(each, provider) for each in tasks[at : at + 3])
            sandbox = provider.acquire(BashEnvironment.spec(task, provider))
            assert isinstance(sandbox, Container)
            inside = ListingProbe(sandbox.admin, OUTSIDE)
            try:
                prepare(sandbox, task, 1_700_000_000.0)
                sandbox.mark()
                if not isinstance(sandbox.probe, OverlayProbe):
                    pytest.skip("the layers can only be read by root on the engine's machine")
                inside.mark()
                for command in task.gold:
                    sandbox.run(command, task.action_timeout)
                sandbox.settle(2.0)
                assert inside.changes().entries == sandbox.changes().entries, task.id
            finally:
                sandbox.close()
    finally:
        provider.close()
