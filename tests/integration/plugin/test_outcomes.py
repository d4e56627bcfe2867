"""How episodes end: every outcome, every shape of agent, and runs that are cut short."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import docker
import pytest

from tests.conftest import PIDS, SUITE, pids_of, results, wait_until_gone


def outcomes() -> dict[str, str]:
    """Return the outcomes of the tasks in the results file of the current folder."""
    return {row["task_id"]: row["outcome"] for row in results(Path("r.jsonl"))}


def run(pytester: pytest.Pytester, agent: str, *more: str) -> pytest.RunResult:
    """Run the small suite with an agent."""
    return pytester.runpytest(
        "suite.yaml", f"--intercode-agent={agent}", "--intercode-results=r.jsonl", *more
    )


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait long for an agent that does not come back."""
    monkeypatch.setattr("pytest_intercode.rollouts.turn_loop._ACTION_STOP_TIMEOUT", 0.2)


# -- shapes of agents

SHAPES = """
from agents import COMMANDS

GOLD = {
    "Print the word hello.": COMMANDS["prints"],
    "Write the word hi to out.txt.": COMMANDS["writes"],
    "Write the word hi to out.txt, then print the word done.": COMMANDS["both"],
}
left = []


class Step:
    def reset(self, task):
        self.left = [*COMMANDS[task.id], "submit"]

    def act(self, observation):
        return self.left.pop(0)


class AsyncStep(Step):
    async def reset(self, task):
        super().reset(task)

    async def act(self, observation):
        return super().act(observation)

    async def close(self):
        assert not self.left


class Loop:
    def run(self, task, env):
        for command in COMMANDS[task.id]:
            env.step(command)
        env.submit()


class AsyncLoop:
    async def run(self, task, env):
        Loop().run(task, env)


def step(observation):
    if observation in GOLD:
        left[:] = [*GOLD[observation], "submit"]
    return left.pop(0)


async def async_step(observation):
    return step(observation)


def loop(task, env):
    Loop().run(task, env)


async def async_loop(task, env):
    Loop().run(task, env)


class Called:
    def __call__(self, observation):
        return step(observation)


called = Called()


class Namespace:
    Nested = Loop
"""


@pytest.mark.usefixtures("needs_sandboxes", "small_suite")
@pytest.mark.parametrize(
    "shape", ["Step", "AsyncStep", "Loop", "AsyncLoop", "step", "async_step", "loop", "async_loop"]
)
def test_shapes(pytester: pytest.Pytester, shape: str) -> None:
    pytester.makepyfile(shapes=SHAPES)
    run(pytester, f"shapes:{shape}").assert_outcomes(passed=3)
    assert [row["reward"] for row in results(Path("r.jsonl"))] == [1.0, 1.0, 1.0]


@pytest.mark.usefixtures("pretend")
@pytest.mark.parametrize(
    "name", ["shapes.py:Step", "shapes.py:Namespace.Nested", "shapes:called", "package.mine:Loop"]
)
def test_names_of_agents(pytester: pytest.Pytester, name: str) -> None:
    pytester.makepyfile(shapes=SHAPES)
    pytester.mkpydir("package")
    (pytester.path / "package" / "mine.py").write_text("from shapes import Loop\n")
    run(pytester, name).assert_outcomes(passed=3)


@pytest.mark.usefixtures("pretend")
def test_arguments_of_agents(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        given="""
        from agents import Solver

        class Given(Solver):
            def __init__(self, model, url="none"):
                assert (model, url) == ("small", "http://x/?a=b")
        """
    )
    run(
        pytester,
        "given:Given",
        "--intercode-agent-arg=model=small",
        "--intercode-agent-arg",
        "url=http://x/?a=b",
    ).assert_outcomes(passed=3)


@pytest.mark.usefixtures("pretend")
def test_an_agent_sees_no_gold(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        curious="""
        import dataclasses

        def curious(task, env):
            assert not hasattr(task, "gold")
            seen = repr(dataclasses.asdict(task))
            assert "echo" not in seen, seen
            acts = "ask download exec log pass_turn record_turn spend step submit".split()
            acts += ["think", "upload"]
            tells = "async_tools functions has_user is_answered over prompt".split()
            tells += ["sandbox", "task", "tools"]
            assert [n for n in dir(env) if not n.startswith("_")] == sorted(acts + tells)
            assert env.task is task
            assert task.max_turns == 10 and task.workdir == "/work"
            golds = {"prints": "echo hello", "writes": "echo hi > out.txt", "both": "echo done"}
            env.step(golds[task.id])
        """
    )
    run(pytester, "curious:curious").assert_outcomes(passed=3)


# -- budgets


@pytest.mark.usefixtures("needs_sandboxes", "small_suite")
def test_out_of_budget_and_solved_on_the_last_turn(pytester: pytest.Pytester) -> None:
    result = run(pytester, "agents:Solver", "--intercode-max-turns=1")
    result.assert_outcomes(passed=2, failed=1)
    assert outcomes() == {"prints": "solved", "writes": "solved", "both": "out-of-budget"}
    result.stdout.fnmatch_lines(
        [
            "reward 0.?? < 1.00 after 1/1 turns, budget exhausted: the output is not gold's",
            "outcomes: 2 solved, 1 out-of-budget",
        ]
    )


@pytest.mark.usefixtures("pretend")
def test_a_loop_sees_the_end_of_its_budget(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        eager="""
        from pytest_intercode import BudgetExhausted

        def eager(task, env):
            flags = []
            try:
                while True:
                    *_, terminated, truncated, _ = env.step("echo hello")
                    flags.append((terminated, truncated))
            except BudgetExhausted as over:
                print("refused:", over)
            assert flags == [(False, False), (False, False), (False, True)]
            try:
                env.submit()
            except BudgetExhausted:
                print("submitted too late")
        """
    )
    result = run(pytester, "eager:eager", "--intercode-max-turns=3")
    assert outcomes() == {"prints": "solved", "writes": "out-of-budget", "both": "out-of-budget"}
    result.stdout.fnmatch_lines(
        ["    refused: the episode is over (budget)*", "    submitted too late"]
    )


@pytest.mark.usefixtures("pretend", "short_grace")
def test_an_agent_that_will_not_hear_of_its_budget_ends(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        deaf="""
        def deaf(task, env):
            while True:
                try:
                    env.step("echo nothing")
                except Exception:
                    pass
        """
    )
    began = time.monotonic()
    run(pytester, "deaf:deaf", "--intercode-timeout=1", "-k", "prints").assert_outcomes(failed=1)
    assert time.monotonic() - began < 30
    (row,) = results(Path("r.jsonl"))
    assert row["outcome"] in ("timed-out", "out-of-budget")
    assert row["summary"]["turns_taken"] == 10


@pytest.mark.usefixtures("pretend", "short_grace")
def test_an_agent_that_never_answers(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        silent="""
        import time
        from agents import Solver

        class Silent(Solver):
            def act(self, observation):
                if self.left[0] == "echo hello":
                    time.sleep(3600)
                return super().act(observation)
        """
    )
    result = run(pytester, "silent:Silent", "--intercode-timeout=1")
    result.assert_outcomes(passed=2, failed=1)
    assert outcomes() == {"prints": "timed-out", "writes": "solved", "both": "solved"}
    result.stdout.fnmatch_lines(["reward 0.00 < 1.00 after 0/10 turns, timed out after 1 s: *"])


@pytest.mark.usefixtures("short_grace")
@pytest.mark.parametrize("option", ["--intercode-timeout=1", "-ointercode_timeout=1"])
def test_the_option_wins_over_the_time_of_the_task(
    pytester: pytest.Pytester, pretend: Path, option: str
) -> None:
    pretend.write_text(SUITE.replace("hardness: easy", "timeout: 500"))
    pytester.makepyfile(
        silent="""
        import time

        def silent(observation):
            time.sleep(3600)
        """
    )
    run(pytester, "silent:silent", option, "-k", "prints").assert_outcomes(failed=1)
    assert outcomes() == {"prints": "timed-out"}


@pytest.mark.usefixtures("needs_sandboxes", "small_suite")
def test_an_action_that_outlasts_the_episode(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        asleep="""
        def asleep(observation):
            return "echo hi > out.txt; sleep 3600"
        """
    )
    began = time.monotonic()
    result = run(pytester, "asleep:asleep", "--intercode-timeout=1", "-k", "prints or writes")
    result.assert_outcomes(passed=1, failed=1)
    assert time.monotonic() - began < 20
    assert outcomes() == {"prints": "timed-out", "writes": "solved"}


@pytest.mark.usefixtures("needs_sandboxes", "small_suite")
def test_an_action_timeout_is_told_and_the_episode_goes_on(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        slow="""
        def slow(task, env):
            observation, *_ = env.step("sleep 3600")
            assert "timed out after 0.5 s" in observation
            assert observation.executed is False and observation.status is None
            env.step("echo hello")
        """
    )
    run(pytester, "slow:slow", "--intercode-action-timeout=0.5", "-k", "prints").assert_outcomes(
        passed=1
    )


# -- faults of the agent

FAULTS = """
import asyncio, os, sys
from os import _exit as leave


class Raises:
    def act(self, observation):
        raise ValueError("the model said no")


class RaisesInReset:
    def reset(self, task):
        raise KeyError("prompt")

    def act(self, observation):
        return "submit"


class RaisesInClose:
    def act(self, observation):
        return "submit"

    def close(self):
        raise OSError("cannot save")


class Nothing:
    def act(self, observation):
        pass


class Number:
    def act(self, observation):
        return 3


class Exits:
    def act(self, observation):
        sys.exit("done here")


class Leaves:
    def act(self, observation):
        os._exit(3)


class LeavesAtLength:
    async def act(self, observation):
        try:
            await asyncio.to_thread(leave, 3)
        except Exception:
            return "submit"


class LeavesInAChild:
    def act(self, observation):
        child = os.fork()
        if not child:
            os._exit(3)
        raise ValueError(f"{os.waitpid(child, 0)[1]} of the child")


class Broken:
    def __init__(self):
        raise RuntimeError("no key given")

    def act(self, observation):
        return "submit"


class ExitsAtOnce(Broken):
    def __init__(self):
        sys.exit(5)


def steps_a_number(task, env):
    env.step(7)


def submits_a_number(task, env):
    env.submit(7)
"""


@pytest.mark.usefixtures("pretend")
@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("Raises", "agent error after 0/10 turns: ValueError: the model said no"),
        ("RaisesInReset", "agent error after 0/10 turns: KeyError: 'prompt'"),
        ("RaisesInClose", "agent error after 1/10 turns: OSError: cannot save"),
        (
            "Nothing",
            "agent error after 0/10 turns: act() returned None on turn 1; an action is a *",
        ),
        ("Number", "agent error after 0/10 turns: act() returned 3 (int) on turn 1; *"),
        ("Exits", "agent error after 0/10 turns: SystemExit: done here"),
        (
            "Leaves",
            "agent error after 0/10 turns: SystemExit: os._exit(3) was called, which would have *",
        ),
        (
            "LeavesAtLength",
            "agent error after 0/10 turns: SystemExit: os._exit(3) was called, which would have *",
        ),
        ("LeavesInAChild", "agent error after 0/10 turns: ValueError: 768 of the child"),
        (
            "Broken",
            "agent error after 0/10 turns: Broken() raised RuntimeError: no key given (*faults.py*",
        ),
        ("ExitsAtOnce", "agent error after 0/10 turns: ExitsAtOnce() raised SystemExit: 5 (*)"),
        (
            "steps_a_number",
            "agent error after 0/10 turns: env.step() was called with 7 (int); an action is a str",
        ),
        (
            "submits_a_number",
            "agent error after 0/10 turns: env.submit() was called with 7 (int); an answer is a *",
        ),
    ],
    ids=lambda value: value if " " not in value else "",
)
def test_agent_errors(pytester: pytest.Pytester, agent: str, message: str) -> None:
    pytester.makepyfile(faults=FAULTS)
    result = run(pytester, f"faults:{agent}", "-k", "prints or writes")
    result.assert_outcomes(failed=2)
    assert set(outcomes().values()) == {"agent-error"}
    result.stdout.fnmatch_lines(["*_ test_solves[[]prints[]] _*", message])
    result.stdout.no_fnmatch_line("*pytest_intercode/*.py*")
    result.stdout.fnmatch_lines(["outcomes: 2 agent-error"])


@pytest.mark.usefixtures("pretend")
@pytest.mark.parametrize(
    ("asserts", "passed"),
    [
        ("not any('rm' in turn.action for turn in intercode_episode.turns)", False),
        ("intercode_episode.reward < 1.0", False),
        ("not intercode_episode.turns", False),
        (
            "intercode_episode.outcome == 'agent-error' and intercode_episode.run().turns == ()",
            True,
        ),
        ("intercode_episode.run().reward == 0", True),
        ("intercode_episode.outcome == 'solved'", False),
    ],
)
def test_a_negative_assertion_does_not_pass_on_an_agent_that_crashed(
    pytester: pytest.Pytester, asserts: str, passed: bool
) -> None:
    pytester.makepyfile(
        faults=FAULTS,
        test_own="import pytest\n\n@pytest.mark.intercode(suite='suite.yaml', ids='prints')\n"
        f"def test_own(intercode_episode):\n    assert {asserts}\n",
    )
    result = pytester.runpytest("test_own.py", "--intercode-agent=faults.py:Raises", "-rf")
    result.assert_outcomes(passed=int(passed), failed=int(not passed))
    if not passed and "outcome" not in asserts:
        result.stdout.fnmatch_lines(
            ["agent error after 0/10 turns: ValueError: the model said no (*.run(), *)"]
        )
        result.stdout.no_fnmatch_line("*pytest_intercode/*.py*")


@pytest.mark.usefixtures("pretend")
def test_the_agents_own_traceback_is_shown(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(faults=FAULTS)
    result = run(pytester, "faults:Raises", "-k", "prints")
    result.stdout.fnmatch_lines(
        [
            "*- intercode trajectory -*",
            '      File "*faults.py", line *, in act',
            '        raise ValueError("the model said no")',
            "    ValueError: the model said no",
        ]
    )
    assert "faults.py" in results(Path("r.jsonl"))[0]["detail"]


# -- faults of the machine


@pytest.mark.usefixtures("needs_docker")
def test_a_missing_image(pytester: pytest.Pytester, small_suite: Path) -> None:
    text = small_suite.read_text().replace("hardness: easy", "image: localhost:1/nowhere:none")
    small_suite.write_text(text)
    result = run(pytester, "agents:Solver")
    result.assert_outcomes(passed=2, errors=1)
    assert outcomes() == {
        "prints": "infrastructure-error",
        "writes": "solved",
        "both": "solved",
    }
    result.stdout.fnmatch_lines(
        [
            "*_ ERROR at setup of test_solves[[]prints[]] _*",
            "infrastructure error: image localhost:1/nowhere:none is not on this machine and *",
        ]
    )
    assert "100.0%" in result.stdout.str()


KILLER = """
from agents import Solver

WHO = "grep -o -m1 'containers/[0-9a-f]*' /proc/self/mountinfo"
kills = dict(prints={times})


class Killer(Solver):
    def reset(self, task):
        super().reset(task)
        self.task = task.id
        self.left.insert(0, WHO)

    def act(self, observation):
        if kills.get(self.task) and self.left[0] != WHO:
            import docker

            kills[self.task] -= 1
            client = docker.from_env()
            client.api.kill(observation.strip().rpartition("/")[2])
            client.close()
        return super().act(observation)
"""


@pytest.mark.usefixtures("needs_docker", "small_suite")
def test_a_sandbox_that_dies_once_is_replaced(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(killer=KILLER.format(times=1))
    run(pytester, "killer:Killer", "-k", "prints or writes").assert_outcomes(passed=2)
    rows = {row["task_id"]: row for row in results(Path("r.jsonl"))}
    assert [len(rows[name]["attempts"]) for name in ("prints", "writes")] == [1, 0]
    assert "ended while in use" in rows["prints"]["attempts"][0]
    assert rows["prints"]["turn_history"]["actions"][1:] == ["echo hello", "submit"]


@pytest.mark.usefixtures("needs_docker", "small_suite")
def test_a_sandbox_that_always_dies_is_no_failure_of_the_agent(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(killer=KILLER.format(times=9))
    result = run(pytester, "killer:Killer", "-k", "prints or writes")
    result.assert_outcomes(passed=1, errors=1)
    assert outcomes() == {"prints": "infrastructure-error", "writes": "solved"}
    result.stdout.fnmatch_lines(
        [
            "infrastructure error: sandbox * ended while in use*",
            "all * 2 * 1 * 100.0% *",
            "outcomes: 1 infrastructure-error, 1 solved",
            "ERROR suite.yaml::test_solves[[]prints[]]*",
        ]
    )
    result.stdout.no_fnmatch_line("FAILED*")


@pytest.mark.usefixtures("needs_sandboxes")
def test_a_setup_command_that_fails(pytester: pytest.Pytester, small_suite: Path) -> None:
    text = small_suite.read_text().replace("hardness: easy", "setup: ['echo no such luck; exit 3']")
    small_suite.write_text(text)
    result = run(pytester, "agents:Solver", "-k", "prints")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [
            "task error: *suite.yaml*: task 'prints': the setup command * ended with "
            "status 3: no such luck"
        ]
    )
    assert outcomes() == {"prints": "task-error"}


COUNTED = """
import pathlib
from agents import Solver


class Counted(Solver):
    def reset(self, task):
        super().reset(task)
        with pathlib.Path("resets").open("a") as file:
            print(task.id, file=file)
"""


@pytest.mark.usefixtures("needs_sandboxes")
@pytest.mark.parametrize(
    "options", [[], ["--intercode-concurrency=2"], pytest.param(["-n1"], marks=pytest.mark.slow)]
)
def test_a_gold_that_never_ends_is_the_tasks_fault(
    pytester: pytest.Pytester, small_suite: Path, options: list[str]
) -> None:
    pytester.makepyfile(counted=COUNTED)
    text = small_suite.read_text().replace(
        "gold: echo hello", "gold: sleep 60\n    action_timeout: 0.5"
    )
    small_suite.write_text(text)
    said = "*suite.yaml:*: task 'prints': gold did not end within 0.5 s: sleep 60"
    result = run(pytester, "counted:Counted", "-k", "prints or writes", *options)
    result.assert_outcomes(passed=1, errors=1)
    assert result.ret == 1
    assert outcomes() == {"prints": "task-error", "writes": "solved"}
    result.stdout.fnmatch_lines(
        [
            "*_ ERROR at setup of test_solves[[]prints[]] _*",
            f"task error: {said}",
            "all * 2 * 1 * 100.0% *",
            "outcomes: 1 task-error, 1 solved",
        ]
    )
    assert sorted(Path("resets").read_text().split()) == ["prints", "writes"]

    small_suite.write_text(text.replace("hardness: easy", "xfail: gold never ends", 1))
    result = run(pytester, "counted:Counted", "-k", "prints or writes", "-rx", *options)
    result.assert_outcomes(passed=1, xfailed=1)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["XFAIL suite.yaml::test_solves[[]prints[]] - gold never ends"])
    prints = next(row for row in results(Path("r.jsonl")) if row["task_id"] == "prints")
    assert (prints["outcome"], prints["attempts"]) == ("task-error", [])


# -- rewards as feedback


@pytest.mark.usefixtures("needs_sandboxes", "small_suite")
def test_rewards_as_feedback(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        trying="""
        def trying(task, env):
            if task.id == "prints":
                observation, reward, terminated, *_ = env.step("echo nothing")
                assert (observation.reward, reward, terminated) == (0.0, 0.0, False)
                observation, reward, terminated, *_ = env.step("echo hello")
                assert (observation.reward, reward, terminated) == (1.0, 1.0, True)
                env.step("one too many")
            if task.id == "both":
                observation, *_ = env.step("echo hi > out.txt")
                assert 0.0 < observation.reward < 1.0
                observation, *_ = env.step("rm out.txt")
                assert observation.reward == 0.0
        """
    )
    result = run(pytester, "trying:trying", "--intercode-feedback=reward", "-k", "prints or both")
    result.assert_outcomes(passed=1, failed=1)
    prints, both = results(Path("r.jsonl"))
    assert prints["outcome"] == "solved"
    assert prints["turn_history"]["rewards"] == [0.0, 1.0]
    best, last = both["turn_history"]["rewards"]
    assert both["reward"] == best > last == 0.0
    assert both["summary"]["max_reward_idx"] == 0
    result.stdout.fnmatch_lines(["intercode: *rewards as feedback*"])


# -- replay


@pytest.mark.usefixtures("needs_sandboxes", "small_suite")
def test_replay_of_a_run_of_ours(pytester: pytest.Pytester) -> None:
    run(pytester, "agents:OnlyPrints").assert_outcomes(passed=1, failed=2)
    (first := Path("r.jsonl")).rename("first.jsonl")
    run(pytester, "replay:first.jsonl").assert_outcomes(passed=1, failed=2)
    keys = ("task_id", "turn_history", "reward", "outcome")
    assert [[row[key] for key in keys] for row in results(first)] == [
        [row[key] for key in keys] for row in results(Path("first.jsonl"))
    ]


@pytest.mark.usefixtures("pretend")
def test_replay_of_a_run_of_intercode(pytester: pytest.Pytester) -> None:
    def episode(number: int, query: str, *actions: str) -> dict[str, object]:
        history = {
            "actions": list(actions),
            "thoughts": ["I think." for _ in actions],
            "observations": ["" for _ in actions],
            "rewards": [0.0 for _ in actions],
            "valid_action": [True for _ in actions],
        }
        summary = {"max_reward": 0.0, "max_reward_idx": 0, "turns_taken": len(actions)}
        return {
            "environment": "ic_bash",
            "dataset": "data/nl2bash.json",
            "task_id": number,
            "query": query,
            "turn_history": history,
            "summary": summary,
        }

    recording = {
        "0": episode(0, "Print the word hello.", "execute[echo hello]", "submit"),
        "1": episode(1, "Write  the word hi to\nout.txt.", "execute[ls [a-z]]", "skip"),
    }
    Path("run.json").write_text(json.dumps(recording))
    result = run(pytester, "replay:run.json", "-rs")
    result.assert_outcomes(passed=1, failed=1, skipped=1)
    rows = results(Path("r.jsonl"))
    assert [row["turn_history"]["actions"] for row in rows] == [
        ["echo hello", "submit"],
        ["ls [a-z]", "skip"],
    ]
    result.stdout.fnmatch_lines(["SKIPPED * run.json holds no episode of task both"])


# -- runs that are cut short

PAUSING = """
import pathlib
import time
from agents import Solver


class Pausing(Solver):
    def reset(self, task):
        super().reset(task)
        if task.id == "writes":
            pathlib.Path("paused").touch()
            time.sleep(3600)
"""


def start_and_wait(pytester: pytest.Pytester) -> subprocess.Popen[bytes]:
    """Start a run in a process of its own and wait until its second task is under way."""
    pytester.makepyfile(pausing=PAUSING)
    pytester.makeconftest(PIDS)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "pytest", "suite.yaml"),
            *("--intercode-agent=pausing:Pausing", "--intercode-results=r.jsonl"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=pytester.path,
    )
    deadline = time.monotonic() + 30
    while not Path("paused").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process


@pytest.mark.usefixtures("small_suite")
def test_an_interrupted_run_keeps_what_it_has(
    pytester: pytest.Pytester, docker_api: docker.APIClient
) -> None:
    process = start_and_wait(pytester)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=20)[0].decode()
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert outcomes() == {"prints": "solved"}
    assert "outcomes: 1 solved" in output
    assert "Exception ignored" not in output
    assert wait_until_gone(docker_api, pids_of(pytester.path)) == []


@pytest.mark.usefixtures("small_suite")
def test_a_killed_run_leaves_no_sandbox(
    pytester: pytest.Pytester, docker_api: docker.APIClient
) -> None:
    process = start_and_wait(pytester)
    process.kill()
    process.communicate(timeout=20)
    assert outcomes() == {"prints": "solved"}
    assert wait_until_gone(docker_api, pids_of(pytester.path), 10) == []


@pytest.mark.usefixtures("pretend")
def test_what_is_shown_drives_no_terminal(pytester: pytest.Pytester) -> None:
    """Neither an agent's words nor a sandbox's."""
    pytester.makepyfile(
        hostile=r"""
        def hostile(task, env):
            env.think("\x1b]0;thought\x07")
            env.log("\x1b[2Jlog")
            env.pass_turn("\x1b[31maction", "\x1b]52;c;eA==\x07")
            raise ValueError("\x1b[5nraised")
        """
    )
    result = run(pytester, "hostile:hostile", "--color=no")
    result.assert_outcomes(failed=3)
    assert "\x1b" not in result.stdout.str()
    result.stdout.fnmatch_lines(
        [
            r"agent error after 1/10 turns: ValueError: \x1b[[]5nraised",
            r"1 thought: \x1b]0;thought\x07",
            r"1 printed: \x1b[[]2Jlog",
            r"1 > \x1b[[]31maction",
            r"    \x1b]52;c;eA==\x07",
        ]
    )
