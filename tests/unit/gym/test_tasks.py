"""Which tasks an environment that was made by hand takes, in which order; no sandbox needed."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.error import ClosedEnvironmentError, InvalidAction, ResetNeeded

import pytest_intercode
import pytest_intercode.gym
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Observation
from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.registry import BUILTIN_ENVIRONMENTS
from pytest_intercode.environments.task_order import TaskOrder
from pytest_intercode.errors import (
    BudgetExhausted,
    ConfigurationError,
    GoldRefused,
    SandboxError,
    SuiteError,
)
from pytest_intercode.gym import IntercodeEnv
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from tests.conftest import SUITE


def tasks(count: int) -> list[Task]:
    return [Task(f"t{n}", "q", ("g",), "bash", "s", "s") for n in range(count)]


def taken(order: TaskOrder, count: int) -> list[str]:
    return [order.next().id for _ in range(count)]


class Pretend(Environment):
    """Solved by gold's own words; some tasks go wrong on purpose."""

    name, profile = "bash", "strict"
    troubles: Mapping[str, list[Exception]] = {}

    @classmethod
    def sandboxes(cls, task: Task, provider: SandboxProvider) -> list[SandboxSpec]:
        return []

    def start(self, task: Task) -> None:
        self.last = ""
        if self.troubles.get(task.id):
            raise self.troubles[task.id].pop(0)

    def execute(self, action: str) -> Observation:
        if action == "break":
            raise SandboxError("broken")
        self.last = action
        return Observation(action.upper(), executed=action != "false")

    def grade(self, answer: str | None) -> Reward:
        assert self.task is not None
        good = self.last == self.task.gold[-1]
        return Reward(float(good), {"output": float(good)}, "" if good else "not what gold prints")

    def stop(self) -> None: ...

    def interrupt(self) -> None: ...


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_intercode.environments.bash.strict.BashEnvironment", Pretend)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "suite.yaml"
    path.write_text(SUITE)
    return path


@pytest.mark.usefixtures("pretend")
def test_a_task_with_a_user_is_refused(tmp_path: Path) -> None:
    suite = tmp_path / "suite.yaml"
    suite.write_text("env: bash\ntasks: [{id: a, query: q, gold: g, user: {replies: Yes.}}]\n")
    env = IntercodeEnv("bash", dataset=suite)
    with pytest.raises(ConfigurationError, match=r"task 'a': it has a user .* Gymnasium can talk"):
        env.reset()
    env.close()


# -- the order


def test_each_task_once_before_any_again() -> None:
    order = TaskOrder(tasks(20))
    first, second = taken(order, 20), taken(order, 20)
    assert sorted(first) == sorted(second) == sorted(task.id for task in tasks(20))
    assert first != second


def test_a_seed_is_a_sequence() -> None:
    state = random.getstate()
    sequences = []
    for seed in (1, 1, 2):
        order = TaskOrder(tasks(20))
        order.seed(seed)
        sequences.append(taken(order, 50))
    assert sequences[0] == sequences[1] != sequences[2]
    unseeded = {tuple(taken(TaskOrder(tasks(20)), 20)) for _ in range(3)}
    assert len(unseeded) == 3
    assert random.getstate() == state


def test_a_seed_begins_anew() -> None:
    order = TaskOrder(tasks(20))
    order.seed(3)
    begun = taken(order, 7)
    order.seed(3)
    assert taken(order, 7) == begun


def test_tasks_are_read_when_asked_for() -> None:
    read: list[int] = []

    def source() -> list[Task]:
        read.append(1)
        return tasks(2)

    order = TaskOrder(source)
    assert not read
    taken(order, 5)
    assert read == [1]


# -- make


@pytest.mark.usefixtures("pretend")
def test_reset_takes_the_next_task(suite: Path) -> None:
    env = pytest_intercode.make("bash", suite=suite)
    observation, info = env.reset(seed=5)
    ids = [info["task"].id, *(env.reset()[1]["task"].id for _ in range(5))]
    assert observation in ("Print the word hello.", *(t.query for t in env.tasks.tasks))
    assert sorted(ids[:3]) == sorted(ids[3:]) == ["both", "prints", "writes"]
    assert env.reset(seed=5)[1]["task"].id == ids[0]


@pytest.mark.usefixtures("pretend")
def test_reset_takes_a_task_by_name(suite: Path) -> None:
    env = pytest_intercode.make("bash", suite=suite)
    env.reset(options={"task": "writes"})
    assert env.task is not None
    assert env.task.id == "writes"
    own = Task("own", "Say hi.", ("echo hi",), "bash", "s", "s")
    assert env.reset(task=own)[0] == "Say hi."
    assert env.reset(options={"task": own})[0] == "Say hi."
    env.reset(seed=1)
    follows = env.reset()[1]["task"].id
    env.reset(seed=1)
    env.reset(options={"task": own})  # takes none from the list
    assert env.reset()[1]["task"].id == follows


@pytest.mark.usefixtures("pretend")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "write"}, "there is no task 'write' among these. Did you mean 'writes'?"),
        ({"tasks": "writes"}, "reset() has no option 'tasks'; allowed: task"),
        ({"task": 3}, "reset(): a task must be a Task or the id of one, not int"),
        (
            {"task": Task("s", "q", ("g",), "sql", "s", "s")},
            "the task 's' is for the environment sql, not for bash",
        ),
        (["task"], """reset(): options=['task']: a dictionary is needed, such as {"task": "ID"}"""),
    ],
)
def test_a_wrong_task(suite: Path, options: Any, message: str) -> None:
    env = pytest_intercode.make("bash", suite=suite)
    with pytest.raises(ConfigurationError) as error:
        env.reset(options=options)
    assert str(error.value) == message


@pytest.mark.parametrize("seed", ["abc", 1.5])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"seed={seed!r}: a whole number is needed"):
        TaskOrder(tasks(2)).seed(seed)


def test_nothing_is_done_before_the_first_reset() -> None:
    env = Pretend(SandboxProvider())
    for act in (env.submit, env.step):
        with pytest.raises(ConfigurationError, match=r"there is no episode: call reset\(\) first"):
            act("ls")


def test_an_environment_without_a_list() -> None:
    with pytest.raises(ConfigurationError, match=r"there is no list of tasks; give a task: reset"):
        Pretend(SandboxProvider()).reset()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"env": "bsah"}, "the environment 'bsah' is not installed.* Did you mean 'bash'?"),
        ({"profile": "papr"}, r"make\('bash'\): profile='papr': allowed: strict, paper"),
        ({"feedback": "rewards"}, r"feedback='rewards': allowed: .*Did you mean 'reward'\?"),
        ({"max_turns": 0}, "max_turns=0: a whole number from 1 up is needed"),
        ({"action_timeout": "3"}, "action_timeout='3': a finite number above 0 is needed"),
        ({"suite": 5}, "suite=5: a text or a path is needed"),
        ({"provider": "docker"}, "provider='docker': a pytest_intercode.SandboxProvider is needed"),
        ({"suite": "s.yaml", "dataset": "nl2bash"}, "either suite or dataset, not both"),
        ({"suite": "nowhere.yaml"}, "there is no such file in the working directory"),
        (
            {"dataset": "nl2bahs"},
            r"dataset='nl2bahs'\): there is no such .*Did you mean 'nl2bash'\?",
        ),
        (
            {"dataset": "nl2bash"},
            r"dataset='nl2bash'\): its data are missing. Get them with: pytest-intercode fetch "
            r"nl2bash; or name a folder",
        ),
        (
            {"dataset": "nl2bash", "data": "/nowhere"},
            "^data=/nowhere: there is no such folder. Get them with: pytest-intercode fetch "
            "nl2bash --to /nowhere; or name ",
        ),
    ],
)
def test_wrong_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        pytest_intercode.make(**{"env": "bash", **options})


def test_a_suite_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = (
        f"make('bash', suite='n.yaml'): there is no such file in the working directory {tmp_path}"
    )
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        pytest_intercode.make("bash", suite="n.yaml")


def test_a_suite_of_another_environment(suite: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"suite.yaml'\): its tasks are for .* bash"):
        pytest_intercode.make("ctf", suite=suite)


@pytest.mark.usefixtures("pretend")
def test_what_cannot_run_here_is_left_out(tmp_path: Path) -> None:
    rows = [{"id": name, "query": "q", "gold": "g"} for name in ("stays", "skips", "online")]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    (tmp_path / "s.yaml").write_text(
        "env: bash\nrows: {path: rows.json, fields: {id: id}}\n"
        "overrides: {skips: {skip: too slow}, online: {tags: [network]}}\n"
    )
    env = pytest_intercode.make("bash", suite=tmp_path / "s.yaml")
    assert [task.id for task in env.tasks.tasks] == ["stays"]
    with_network = pytest_intercode.make("bash", suite=tmp_path / "s.yaml", network=True).tasks
    assert [(t.id, t.limits.network) for t in with_network.tasks] == [
        ("stays", True),
        ("online", True),
    ]
    (tmp_path / "s.yaml").write_text(
        "env: bash\ntasks: [{id: a, query: q, gold: g, skip: too slow}]\n"
    )
    with pytest.raises(ConfigurationError, match="none of the 1 tasks can be run here; a: too sl"):
        pytest_intercode.make("bash", suite=tmp_path / "s.yaml")


@pytest.mark.usefixtures("pretend")
def test_rows_and_data_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"query": "q", "gold": "g"}\n')
    env = pytest_intercode.make("bash", dataset=rows)
    assert [task.id for task in env.tasks.tasks] == ["rows-00000"]
    data = tmp_path / "pytest-intercode/data"
    (data / "nl2bash/filesystems").mkdir(parents=True)
    for n in range(1, 5):
        (data / f"nl2bash/nl2bash_fs_{n}.json").write_text(
            json.dumps([{"query": "q", "gold": "g"}] * 60)
        )
        (data / f"nl2bash/filesystems/nl2bash_fs_{n}.tar.gz").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert len(pytest_intercode.make("bash", dataset="nl2bash-fs2").tasks.tasks) == 60
    monkeypatch.setenv("INTERCODE_DATA", "/nowhere")
    with pytest.raises(SuiteError, match="INTERCODE_DATA=/nowhere: there is no such folder"):
        pytest_intercode.make("bash", dataset="nl2bash-fs2")
    assert pytest_intercode.make("bash", dataset="nl2bash-fs2", data=data).tasks.tasks


# -- Gymnasium's face, on an environment that needs no sandbox


@pytest.fixture
def env(pretend: None, suite: Path) -> IntercodeEnv:
    return IntercodeEnv("bash", suite=suite, render_mode="ansi")


def test_a_submitted_episode(env: IntercodeEnv) -> None:
    observation, info = env.reset(options={"task": "prints"})
    assert type(observation) is str
    assert observation == "Print the word hello."
    assert (info["task_id"], info["task"].query) == ("prints", observation)
    assert not hasattr(info["task"], "gold")
    assert env.step("false") == (
        *("FALSE", 0.0, False, False),
        {"task_id": "prints", "executed": False, "turns_left": 9},
    )
    env.step("echo hello")
    observation, reward, terminated, truncated, info = env.step("submit")
    assert (observation, reward, terminated, truncated) == ("", 1.0, True, False)
    assert info == {
        "task_id": "prints",
        "executed": True,
        "turns_left": 7,
        "parts": {"output": 1.0},
        "reason": "",
    }
    assert env.environment.over == "submitted"


def test_a_used_up_budget_truncates(pretend: None, suite: Path) -> None:
    env = IntercodeEnv("bash", suite=suite, max_turns=2)
    env.reset()
    assert env.step("true")[1:4] == (0.0, False, False)
    _, reward, terminated, truncated, info = env.step("true")
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert (info["turns_left"], info["reason"]) == (0, "not what gold prints")


def test_rewards_as_feedback(pretend: None, suite: Path) -> None:
    env = IntercodeEnv("bash", suite=suite, feedback="reward")
    env.reset(options={"task": "prints"})
    assert env.step("true")[1:4] == (0.0, False, False)
    assert env.step("echo hello")[1:4] == (1.0, True, False)


def test_no_step_without_an_episode(env: IntercodeEnv) -> None:
    with pytest.raises(ResetNeeded, match=r"^call reset\(\) first$"):
        env.step("true")
    env.reset()
    env.step("submit")
    with pytest.raises(ResetNeeded, match=r"^the episode is over \(submitted\); call reset\(\)$"):
        env.step("true")
    with pytest.raises(BudgetExhausted):
        env.environment.step("true")
    env.reset()
    with pytest.raises(SandboxError):
        env.step("break")
    with pytest.raises(ResetNeeded):
        env.step("true")
    env.close()
    env.close()
    for call in (lambda: env.step("true"), env.reset):
        with pytest.raises(ClosedEnvironmentError, match="the environment is closed"):
            call()


def test_actions_are_of_the_action_space(env: IntercodeEnv) -> None:
    env.reset()
    for action, what in ((3, "int"), ("x" * 70000, "70000 characters")):
        with pytest.raises(InvalidAction, match=f"a str of at most 65536 characters, not {what}"):
            env.step(action)  # type: ignore[arg-type]
    assert env.step("\0 \udcff")[0] in env.observation_space  # the episode goes on


def test_long_observations_are_clipped(pretend: None, suite: Path) -> None:
    env = IntercodeEnv("bash", suite=suite, max_length=100)
    env.reset()
    observation = env.step("x" * 5000)[0]
    assert observation in env.observation_space
    assert "[... 5000 characters, the middle is left out ...]" in observation
    assert env.environment.turns[-1].observation == "X" * 5000


def test_render(env: IntercodeEnv) -> None:
    assert env.render() == ""
    env.reset(options={"task": "prints"})
    env.step("echo \x1b[2J")
    env.step("submit")
    assert env.render() == (
        "query: Print the word hello.\n1 > echo \\x1b[2J\nECHO \\x1b[2J\n2 > submit\nreward 0.00"
    )
    assert "\\x" not in "\n\t"


def test_render_without_a_mode(pretend: None, suite: Path) -> None:
    env = IntercodeEnv("bash", suite=suite)
    env.reset()
    with pytest.warns(UserWarning, match="without a render mode"):
        assert env.render() is None


def test_a_refused_gold_is_passed_over(env: IntercodeEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    def trouble() -> dict[str, list[Exception]]:
        return {name: [GoldRefused("no")] * 9 for name in ("prints", "writes")}

    monkeypatch.setattr(Pretend, "troubles", trouble())
    assert [env.reset()[1]["task_id"] for _ in range(3)] == ["both"] * 3
    with pytest.raises(GoldRefused):
        env.reset(options={"task": "prints"})
    monkeypatch.setattr(Pretend, "troubles", {**trouble(), "both": [GoldRefused("no")]})
    with pytest.raises(GoldRefused):
        env.reset()


def test_a_sandbox_that_breaks_at_the_start_is_replaced_once(
    env: IntercodeEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pretend, "troubles", {"prints": [SandboxError("1")]})
    assert env.reset(options={"task": "prints"})[1]["task_id"] == "prints"
    monkeypatch.setattr(Pretend, "troubles", {"prints": [SandboxError("1"), SandboxError("2")]})
    with pytest.raises(SandboxError, match="2"):
        env.reset(options={"task": "prints"})


def test_registration() -> None:
    # Other tests of the process may have registered environments of their own.
    assert {f"InterCode/{env.capitalize()}-v0" for env in BUILTIN_ENVIRONMENTS} <= set(
        gymnasium.registry
    )


@pytest.mark.usefixtures("pretend")
def test_gymnasium_make_passes_arguments_on(suite: Path) -> None:
    env = gymnasium.make("InterCode/Bash-v0", suite=str(suite), max_turns=3, max_length=50)
    assert isinstance(env.unwrapped, IntercodeEnv)
    assert env.unwrapped.environment.tasks.tasks[0].id == "prints"
    env.reset()
    assert env.unwrapped.environment.max_turns == 3
    assert env.observation_space == pytest_intercode.gym.UnicodeText(50)


def test_without_gymnasium() -> None:
    code = "import sys; sys.modules['gymnasium'] = None\nimport pytest_intercode.gym"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: pytest_intercode.gym needs Gymnasium: "
        "pip install 'pytest-intercode[gym]'"
    )
