"""Which items run ahead, and beside which: fixtures, marks and hooks of the user's come first."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_intercode.suites.catalogue import bundled_tasks
from tests.conftest import PRETEND, results
from tests.integration.plugin.test_concurrency import COUNTING, suite, tasks  # noqa: F401 - a fixture


def most_at_a_time(pytester: pytest.Pytester, *more: str) -> int:
    """Run an agent that counts itself; return how many ran at a time."""
    pytester.makepyfile(counting=COUNTING)
    result = pytester.runpytest(
        *more, "--intercode-agent=counting:agent", "--intercode-concurrency=3"
    )
    assert result.ret == 0, result.stdout.str()
    [most] = pytester.path.glob("most*")  # named after the worker of xdist, if there is one
    return int(most.read_text())


CONFTESTS = {
    "a fixture of the whole run": (3, "@pytest.fixture(autouse=True, scope='session')"),
    "a fixture of the module": (3, "@pytest.fixture(autouse=True, scope='module')"),
    "a fixture of each item": (1, "@pytest.fixture(autouse=True)"),
}


@pytest.mark.usefixtures("suite")
@pytest.mark.parametrize("what", CONFTESTS)
def test_fixtures_of_the_users_own_come_first(pytester: pytest.Pytester, what: str) -> None:
    at_a_time, decorator = CONFTESTS[what]
    pytester.makeconftest(
        f"""{PRETEND}
ready = False


{decorator}
def server():
    global ready
    ready = True
    yield
    ready = False


def pytest_intercode_make_agent(config, task):
    assert ready
"""
    )
    assert most_at_a_time(pytester, "suite.yaml") == at_a_time


def test_what_depends_on_its_order_is_run_in_order(pytester: pytest.Pytester) -> None:
    """Bash of the paper profile: what InterCode's git leaves of an episode is there in the next."""
    pytester.makeconftest(PRETEND)
    pytester.makepyfile(counting=COUNTING)
    result = pytester.runpytest(
        *("--intercode-env=bash", "--intercode-limit=4", "--intercode-profile=paper", "-rN"),
        *("--intercode-agent=counting:agent", "--intercode-concurrency=3", "--tb=no"),
    )
    assert [path.read_text() for path in pytester.path.glob("most*")] == ["1"]
    result.stdout.fnmatch_lines(
        "intercode: bash episodes of the paper profile depend on those before them: they run one "
        "at a time, in order"
    )


@pytest.mark.slow
def test_what_depends_on_its_order_is_run_by_one_worker(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(PRETEND)
    pytester.makepyfile(counting=COUNTING)
    result = pytester.runpytest(
        *("--intercode-env=bash", "--intercode-limit=8", "--intercode-profile=paper", "-n2"),
        *("--intercode-agent=counting:agent", "--intercode-results=r.jsonl", "--tb=no", "-rN"),
    )
    assert [path.read_text() for path in pytester.path.glob("most*")] == ["1"]
    tasks = [row["task_id"] for row in results(pytester.path / "r.jsonl")]
    assert len(tasks) == 8
    assert tasks == [task.id for task in bundled_tasks("bash", "")[:8]]
    result.stdout.fnmatch_lines("*depend on those before them: they run in one worker, in order")


@pytest.mark.usefixtures("suite")
def test_an_agent_of_a_fixture_of_the_users_has_its_turn(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        PRETEND
        + """

@pytest.fixture
def intercode_agent(intercode_task):
    from counting import agent
    return agent
"""
    )
    assert most_at_a_time(pytester, "suite.yaml") == 1


@pytest.mark.usefixtures("suite")
def test_tests_of_the_users_own_run_ahead_up_to_one_that_is_not_an_episode(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        test_own="""
        import os
        import threading
        import pytest

        CASES = pytest.mark.intercode(env="bash", hardness="easy")


        @CASES
        def test_first(intercode_episode):
            assert "ALONE" not in os.environ
            assert intercode_episode.turns


        def test_alone(monkeypatch, request):
            monkeypatch.setenv("ALONE", "1")
            mine = [i.callspec.id for i in request.session.items if hasattr(i, "callspec")]
            running = {thread.name for thread in threading.enumerate()}
            assert not running & {f"intercode-agent-{name}" for name in mine}


        @CASES
        def test_second(intercode_episode, intercode_task):
            assert intercode_episode.turns


        @CASES
        def test_third(intercode_episode, tmp_path):
            assert intercode_episode.turns
        """
    )
    few = ("--intercode-limit=6", "test_own.py")
    assert most_at_a_time(pytester, *few) == 3
    assert most_at_a_time(pytester, *few, "-k", "third") == 1


@pytest.mark.usefixtures("suite")
def test_what_is_skipped_is_not_begun(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        PRETEND
        + """
def pytest_collection_modifyitems(items):
    for item in items[1::2]:
        item.add_marker(pytest.mark.skip(reason="odd"))
    for item in items[::4]:
        item.add_marker(pytest.mark.xfail(run=False, reason="fourth"))
"""
    )
    pytester.makepyfile(
        noting="""
        from pathlib import Path

        def agent(task, env):
            Path(f"begun-{task.id}").touch()
            env.step("true")
        """
    )
    result = pytester.runpytest(
        "suite.yaml", "--intercode-agent=noting:agent", "--intercode-concurrency=4"
    )
    result.assert_outcomes(passed=3, skipped=6, xfailed=3)
    begun = sorted(path.name for path in pytester.path.glob("begun-*"))
    assert begun == ["begun-t10", "begun-t2", "begun-t6"]


@pytest.mark.usefixtures("suite")
def test_fixtures_of_the_run_end_after_the_episodes_that_need_them(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(
        PRETEND
        + """
import time

up, begun = False, set()


@pytest.fixture(autouse=True, scope="session")
def server():
    global up
    up = True
    yield
    up = False
    time.sleep(0.5)


def pytest_intercode_make_agent(config, task):
    def agent(task, env):
        begun.add(task.id)
        while task.id != "t0" or len(begun) < 4:
            assert up, "the server is gone"
            time.sleep(0.01)
        env.step("false")
    return agent
"""
    )
    result = pytester.runpytest(
        *("suite.yaml", "--intercode-agent=oracle", "--intercode-concurrency=4", "-x"),
        "--intercode-results=r.jsonl",
    )
    result.assert_outcomes(failed=1)
    assert [row["task_id"] for row in results(Path("r.jsonl"))] == ["t0"]
    result.stdout.fnmatch_lines(["intercode: 3 episodes were running and ended without a result"])


@pytest.mark.usefixtures("suite")
def test_episodes_of_two_parameters_of_a_fixture_are_not_mixed(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        PRETEND
        + """
serving = None


@pytest.fixture(autouse=True, scope="session", params=["model-a", "model-b"])
def server(request):
    global serving
    serving = request.param
    yield
    serving = None


def pytest_intercode_make_agent(config, task):
    seen = serving

    def agent(task, env):
        Path(f"{task.id}-{seen}").touch()
        env.step("true")
    return agent


from pathlib import Path
"""
    )
    result = pytester.runpytest(
        "suite.yaml", "--intercode-agent=oracle", "--intercode-concurrency=5"
    )
    result.assert_outcomes(passed=24)
    seen = sorted(path.name for path in pytester.path.glob("t*-*"))
    assert seen == sorted(f"t{n}-model-{name}" for n in range(12) for name in "ab")


@pytest.mark.usefixtures("suite")
def test_what_a_conftest_does_for_each_item_comes_first(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        PRETEND
        + """
import os


def pytest_runtest_setup(item):
    os.environ["SEED"] = item.name


def pytest_intercode_make_agent(config, task):
    assert os.environ["SEED"] == f"test_solves[{task.id}]"
"""
    )
    assert most_at_a_time(pytester, "suite.yaml") == 1


@pytest.mark.usefixtures("suite")
def test_an_engine_that_goes_away_ends_it_at_once(pytester: pytest.Pytester) -> None:
    Path("suite.yaml").write_text(tasks(200))
    pytester.makeconftest(
        PRETEND
        + """
import time
from pathlib import Path

from pytest_intercode.errors import EngineUnavailable


def reset(self, *, task):
    if task.id != "t0":
        with Path("tried").open("a") as file:
            print(task.id, file=file)
        raise EngineUnavailable("no engine answers")
    time.sleep(1)
    return Environment.reset(self, task=task)


Pretend.reset = reset
"""
    )
    result = pytester.runpytest(
        "suite.yaml", "--intercode-agent=oracle", "--intercode-concurrency=4"
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*no engine answers*"])
    assert len(Path("tried").read_text().split()) <= 4


@pytest.mark.usefixtures("suite")
def test_an_environment_that_does_not_close_is_an_error_of_its_item(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(
        PRETEND
        + """
def close(self):
    if self.task.id in ("t1", "t5"):
        raise OSError("it does not close")


Pretend.close = close
"""
    )
    result = pytester.runpytest(
        "suite.yaml", "--intercode-agent=oracle", "--intercode-concurrency=4"
    )
    result.assert_outcomes(passed=12, errors=2)
    result.stdout.fnmatch_lines(
        ["*ERROR at teardown of test_solves[[]t1[]]*", "*ERROR at teardown of test_solves[[]t5[]]*"]
    )
