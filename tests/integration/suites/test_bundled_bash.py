"""Our own bash suite: gold solves it, nothing does not, and both ways of reading the disk agree."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_intercode.environments.bash.strict import BashEnvironment
from pytest_intercode.environments.shell import set_up
from pytest_intercode.sandboxes.docker.container import Container
from pytest_intercode.sandboxes.listing import ListingProbe
from pytest_intercode.sandboxes.overlay import OverlayProbe
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.suites.loader import load_suite
from pytest_intercode.system.files import bundled_folder
from tests.support.bundled import lacking, play
from tests.support.thinning import every, thinned

SUITE = load_suite(bundled_folder("tasks") / "bash.yaml")


def tasks_of(rows: dict[str, Any], backend: str, one_in: int = 1) -> set[str]:
    """Return the tasks that can be played, all of which have to be among the rows."""
    tasks = SUITE.tasks[::one_in]
    played = {task.id for task in tasks} - lacking(tasks, backend)
    assert rows.keys() == played
    return played


def test_oracle_solves_every_task(pytester: pytest.Pytester, suite_backend: str) -> None:
    one_in = every(3)
    rows, result = play(pytester, "bash", "oracle", suite_backend, *thinned(pytester.path, one_in))
    played = tasks_of(rows, suite_backend, one_in)
    assert result.parseoutcomes()["passed"] == len(played)
    assert {row["reward"] for row in rows.values()} == {1.0}
    changing = [row for row in rows.values() if row["end_state"]["gold"]["touched"]]
    assert len(SUITE.tasks) >= 40
    assert len(changing) >= len(rows) / 2


@pytest.mark.usefixtures("bubblewrap")
def test_doing_nothing_earns_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(lazy="def act(observation):\n    return 'true'\n")
    one_in = every(16)
    options = ["--intercode-max-turns=3", *thinned(pytester.path, one_in)]
    rows, result = play(pytester, "bash", "lazy:act", "bubblewrap", *options)
    assert result.parseoutcomes()["failed"] == len(tasks_of(rows, "bubblewrap", one_in))
    assert {row["reward"] for row in rows.values()} == {0.0}


@pytest.mark.usefixtures("docker_engine")
def test_both_probes_see_the_same_effects() -> None:
    """The walk over the layers from outside, and the listings from inside.

    Of all tasks with ``scripts/test --all``, else of every 24th.
    """
    tasks = SUITE.tasks[:: every(48)]
    provider = SandboxProvider(SandboxSettings("docker"))
    try:
        for at, task in enumerate(tasks):
            provider.expect(BashEnvironment.spec(each, provider) for each in tasks[at : at + 3])
            sandbox = provider.acquire(BashEnvironment.spec(task, provider))
            assert isinstance(sandbox, Container)
            inside = ListingProbe(sandbox.list_files)
            try:
                set_up(sandbox, task, 1_700_000_000.0)
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
