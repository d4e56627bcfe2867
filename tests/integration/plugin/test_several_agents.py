"""Several agents in one run: each plays every task, in items of its own."""

from __future__ import annotations

from fnmatch import fnmatch

import pytest

from tests.conftest import AGENTS, results
from tests.integration.plugin.test_concurrency import COUNTING

SOLVER, IDLE = "--intercode-agent=agents.py:Solver", "--intercode-agent=agents.py:Idle"
BOTH = (SOLVER, IDLE)
RESULTS = "--intercode-results=r.jsonl"
WORDS = """

class Words(Solver):
    def __init__(self, word, other=""):
        self.word = word

    def act(self, observation):
        with open("words", "a") as file:
            print(self.word, file=file)
        return super().act(observation)
"""


def ids(result: pytest.RunResult) -> list[str]:
    return [line.partition("[")[2].rstrip("]") for line in result.outlines if "::" in line]


def played(pytester: pytest.Pytester) -> list[tuple[str, str]]:
    rows = results(pytester.path / "r.jsonl")
    return [(row["task_id"], row["agent"].rpartition(":")[2]) for row in rows]


# -- items


@pytest.mark.usefixtures("pretend")
def test_items_are_task_by_task_and_named_after_their_agents(pytester: pytest.Pytester) -> None:
    collect = ("suite.yaml", "--co", "-q", "--strict-markers")
    both = pytester.runpytest(*collect, *BOTH)
    expected = ["prints", "writes", "both"]
    assert ids(both) == [f"{task}-{agent}" for task in expected for agent in ("Solver", "Idle")]
    assert ids(pytester.runpytest(*collect, SOLVER)) == expected
    repeated = pytester.runpytest(*collect, *BOTH, "--intercode-repeat=2", "-k", "prints")
    assert ids(repeated) == [f"prints-{n}-{agent}" for n in (1, 2) for agent in ("Solver", "Idle")]
    for selected in (("-k", "Solver"), ("-m", "Solver")):
        found = ids(pytester.runpytest(*collect, *BOTH, *selected))
        assert found == [f"{task}-Solver" for task in expected]
    pasted = pytester.runpytest("suite.yaml::test_solves[both-Idle]", *BOTH, "--co", "-q")
    assert ids(pasted) == ["both-Idle"]


def test_an_item_of_a_bundled_suite_is_pasted(pytester: pytest.Pytester) -> None:
    agents = ("--intercode-agent=oracle", "--intercode-agent=command:cat")
    for name, expected in (
        ("cron-job-disabled-1-oracle", ["cron-job-disabled-1-oracle"]),
        (
            "cron-job-disabled-2",
            ["cron-job-disabled-2-oracle", "cron-job-disabled-2-command:cat"],
        ),
    ):
        node = f"intercode/bash::test_solves[{name}]"
        result = pytester.runpytest(node, *agents, "--intercode-repeat=2", "--co", "-q")
        assert ids(result) == expected


@pytest.mark.usefixtures("pretend")
def test_tests_of_the_users_own_get_the_agents_too(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_own="""
        import pytest
        from pytest_intercode.suites.catalogue import file_tasks

        CASES = pytest.mark.intercode(suite="suite.yaml", ids="prints")

        @CASES
        def test_episode(intercode_episode): pass

        @CASES
        def test_environment_alone(intercode_environment): pass

        class TestOverridden:
            @pytest.fixture
            def intercode_agent(self): ...

            @CASES
            def test_it(self, intercode_episode): pass

        class TestWrapped:
            @pytest.fixture
            def intercode_agent(self, intercode_agent): return intercode_agent

            @CASES
            def test_it(self, intercode_episode): pass

        class TestParametrized:
            @pytest.fixture(params=[1])
            def intercode_agent(self, request): ...

            def test_fixture(self, intercode_agent): pass

            @pytest.mark.parametrize("x, intercode_agent", [(1, 2)], indirect=["intercode_agent"])
            def test_mark(self, x, intercode_agent): pass

        class TestTask:
            @pytest.fixture
            def intercode_task(self): ...

            def test_it(self, intercode_agent): pass
        """
    )
    result = pytester.runpytest("test_own.py", *BOTH, "--co", "-q")
    assert [line.partition("::")[2] for line in result.outlines if "::" in line] == [
        "test_episode[prints-Solver]",
        "test_episode[prints-Idle]",
        "test_environment_alone[prints]",
        "TestOverridden::test_it[prints]",
        "TestWrapped::test_it[prints-Solver]",
        "TestWrapped::test_it[prints-Idle]",
        "TestParametrized::test_fixture[1]",
        "TestParametrized::test_mark[1-2]",
        "TestTask::test_it[Solver]",
        "TestTask::test_it[Idle]",
    ]


@pytest.mark.usefixtures("pretend")
def test_project_tests_get_the_agents_too(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_own="def test_it(intercode_project): ...")
    collect = ("test_own.py", "--co", "-q", "--strict-markers")
    assert ids(pytester.runpytest(*collect, *BOTH)) == ["Solver", "Idle"]
    assert ids(pytester.runpytest(*collect, *BOTH, "-m", "Idle")) == ["Idle"]
    assert ids(pytester.runpytest(*collect, SOLVER)) == ["Solver"]


# -- runs


@pytest.mark.usefixtures("pretend")
@pytest.mark.parametrize("options", [(), ("-n2",), ("--intercode-concurrency=3",)])
def test_each_agent_plays_each_task(pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
    result = pytester.runpytest("suite.yaml", *BOTH, RESULTS, *options)
    result.assert_outcomes(passed=3, failed=3)
    result.stdout.fnmatch_lines(["intercode: agents Solver, Idle, profile strict*"])
    rows = results(pytester.path / "r.jsonl")
    assert {(row["agent"], row["reward"]) for row in rows} == {
        ("agents.py:Solver", 1.0),
        ("agents.py:Idle", 0.0),
    }
    expected = [
        (task, agent) for task in ("prints", "writes", "both") for agent in ("Solver", "Idle")
    ]
    assert sorted(played(pytester)) == sorted(expected)
    if not options:
        assert played(pytester) == expected


RECIPE = """\
about: lists what it was given
folder: {name}
program: run.sh
command: [sh, "{{program}}"]
"""
LOOKS = """

class Looks:
    def act(self, observation):
        return "submit" if observation.turns_left < 10 else "ls -d /opt/intercode/*"
"""


@pytest.mark.usefixtures("needs_sandboxes", "small_suite")
@pytest.mark.parametrize("option", ["-v", "--intercode-concurrency=3"])
def test_each_agent_has_its_own_folders_in_its_sandboxes(
    pytester: pytest.Pytester, option: str
) -> None:
    pytest.importorskip("aiohttp")
    (pytester.path / "agents.py").write_text(AGENTS + LOOKS)
    for name in ("one", "other"):
        (pytester.path / f"{name}.yaml").write_text(RECIPE.format(name=name))
        (pytester.path / name).mkdir()
        program = f"echo this is {name}; ls -d /opt/intercode/*"
        (pytester.path / name / "run.sh").write_text(program)
    names = ("installed:one.yaml", "agents.py:Looks", "installed:other.yaml")
    agents = [f"--intercode-agent={name}" for name in names]
    pytester.runpytest("suite.yaml", *agents, RESULTS, option, "-k", "writes or both")
    rows = results(pytester.path / "r.jsonl")
    assert len(rows) == 6
    for row in rows:
        if row["agent"] == "agents.py:Looks":
            assert "No such file" in row["turn_history"]["observations"][0]
        else:
            name = row["agent"].removeprefix("installed:").removesuffix(".yaml")
            assert f"its last output: this is {name} /opt/intercode/agent" in row["reason"]


@pytest.mark.usefixtures("pretend")
def test_agents_of_one_name_have_their_own_arguments(pytester: pytest.Pytester) -> None:
    (pytester.path / "agents.py").write_text(AGENTS + WORDS)
    agents = [f"--intercode-agent=agents.py:Words:word={word}" for word in ("a", "b")]
    more = ("--intercode-agent-arg=other=c", RESULTS, "-k", "prints")
    result = pytester.runpytest("suite.yaml", *agents, *more)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["intercode: agents Words:word=a, Words:word=b, *"])
    assert (pytester.path / "words").read_text().split() == ["a", "a", "b", "b"]
    rows = results(pytester.path / "r.jsonl")
    assert [row["agent_arguments"] for row in rows] == [
        {"other": "c", "word": "a"},
        {"other": "c", "word": "b"},
    ]


@pytest.mark.usefixtures("pretend")
def test_items_of_several_agents_run_concurrently(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(counting=COUNTING, more=COUNTING.replace("def agent", "def other"))
    agents = ("--intercode-agent=counting:agent", "--intercode-agent=more:other")
    pytester.runpytest("suite.yaml", *agents, "--intercode-concurrency=6")
    [most] = pytester.path.glob("most*")
    assert int(most.read_text()) > 1


@pytest.mark.usefixtures("pretend")
def test_a_run_goes_on_with_another_agent(pytester: pytest.Pytester) -> None:
    first = pytester.runpytest("suite.yaml", SOLVER, RESULTS)
    first.assert_outcomes(passed=3)
    more = (RESULTS, "--intercode-resume")
    second = pytester.runpytest("suite.yaml", IDLE, SOLVER, *more)
    second.assert_outcomes(passed=3, failed=3)
    second.stdout.fnmatch_lines(["3 episodes reused from the resumed run"])
    assert sorted(agent for _, agent in played(pytester)) == ["Idle"] * 3 + ["Solver"] * 3
    third = pytester.runpytest("suite.yaml", *BOTH, *more)
    third.assert_outcomes(passed=3, failed=3)
    third.stdout.fnmatch_lines(["6 episodes reused from the resumed run"])
    other = pytester.runpytest("suite.yaml", SOLVER, "--intercode-agent=oracle", *more)
    other.stdout.fnmatch_lines(["3 episodes reused from the resumed run"])


@pytest.mark.usefixtures("pretend")
def test_shards_name_the_agents(pytester: pytest.Pytester) -> None:
    pytester.runpytest("suite.yaml", *BOTH, RESULTS, "--intercode-shard=1/2")
    shards = [row["shard"] for row in results(pytester.path / "r.jsonl")]
    assert [shard["options"]["agent"] for shard in shards] == ["Solver,Idle"] * 4
    assert {shard["items"] for shard in shards} == {4}


# -- what is wrong


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            (SOLVER, "--intercode-agent=agents.py:Missing"),
            "--intercode-agent=agents.py:Missing: *has no*Missing*",
        ),
        (
            (SOLVER, "--intercode-agent=claud:model=a"),
            "--intercode-agent=claud: an agent is *. Did you mean 'claude'?",
        ),
        ((SOLVER, SOLVER), "--intercode-agent=agents.py:Solver: this agent is given twice; *"),
        (
            (SOLVER, "--intercode-agent=human"),
            "--intercode-agent=human: it uses your terminal, one episode at a time; name no other "
            "agent",
        ),
        (
            (SOLVER, "--intercode-agent=oracle:x=1"),
            "--intercode-agent=oracle:x=...: the agent 'oracle' takes no arguments",
        ),
        (
            (*BOTH, "--intercode-audit"),
            "--intercode-audit: the tasks are audited and no agent is run; leave out "
            "--intercode-agent=agents.py:Solver --intercode-agent=agents.py:Idle",
        ),
        (
            (SOLVER, "--intercode-agent=codex:model=a", "--intercode-cluster=local:2"),
            "--intercode-agent=codex: an agent that is installed into sandboxes cannot be run *",
        ),
        (
            (*BOTH, "--intercode-profile=paper"),
            "--intercode-profile=paper: bash episodes depend on those before them, and each of "
            "Solver, Idle would find *",
        ),
    ],
)
@pytest.mark.usefixtures("small_suite")
def test_a_mistake_ends_the_run_before_anything_runs(
    pytester: pytest.Pytester, options: tuple[str, ...], message: str
) -> None:
    result = pytester.runpytest("suite.yaml", *options, RESULTS)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    [error] = filter(None, result.errlines)
    assert fnmatch(error, f"ERROR: {message}"), error
    written = pytester.path / "r.jsonl"
    assert not written.exists() or not written.read_text()


@pytest.mark.usefixtures("pretend")
def test_several_agents_are_compared_and_judged_each_by_itself(pytester: pytest.Pytester) -> None:
    first = pytester.runpytest("suite.yaml", *BOTH, "--intercode-results=main.jsonl")
    first.stdout.fnmatch_lines(
        [
            "agent  *tasks  solved  *",
            "Solver * 3 * 3  100.0% *",
            "Idle * 3 * 0 * 0.0% *",
            "suite * task * Solver * Idle*",
            "cells compared, task by task:",
            "  Idle against Solver: too few samples: *",
        ]
    )
    again = pytester.runpytest("suite.yaml", *BOTH, "--intercode-baseline=main.jsonl")
    again.assert_outcomes(passed=3, xfailed=3)  # only what the same agent did not solve may fail
    again.stdout.fnmatch_lines(
        [
            "gate: Solver compared with main.jsonl: too few samples: *Holm's correction*",
            "gate: Idle compared with main.jsonl: too few samples: *",
        ]
    )
