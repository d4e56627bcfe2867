"""How agents are found, made and adapted; the oracle and the replay."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.loader import adapt, load_agent
from pytest_intercode.agents.protocol import Agent, NoRecording
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Observation
from pytest_intercode.errors import AgentError, AgentLoadError, ConfigurationError

_TASK = Task("set-00003", "Do  it\nnow.", ("one", "two"), "bash", "suite", "set")
_SEEN = Observation("")
_ENV = cast(AgentEnvironment, None)  # these agents do not use it

_MODULE = """\
import sibling

class Stepper:
    def __init__(self, model="small", *, effort="low"):
        self.settings = model, effort
    def act(self, observation):
        return f"{sibling.NAME} {self.settings}"
    class Inner:
        def act(self, observation):
            return "inner"

class Looper:
    def run(self, task, env):
        return "ran"
    def reset(self, task):
        return "not asked for"
    def close(self):
        return "closed"

class Forgetful:
    def run(self, task):
        pass

class Selfless:
    def act(observation):
        pass

class Strict:
    def __init__(self, needed):
        pass
    def act(self, observation):
        pass

class Broken:
    def __init__(self, **options):
        raise RuntimeError("no key")
    def act(self, observation):
        pass

class Exiting(Broken):
    def __init__(self):
        raise SystemExit(3)

class Neither:
    pass

def step(observation):
    return "stepped"

def loop(task, env):
    return "looped"

async def later(observation):
    return "later"

def three(a, b, c):
    pass

def none():
    pass

def optional(observation, temperature=0.0, *more, **options):
    return "optional"

def star(*anything):
    pass

opaque = dir
instance = Stepper()
number = 5
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with ``mine.py`` and ``sibling.py``; imports of it are forgotten afterwards."""
    (tmp_path / "mine.py").write_text(_MODULE)
    (tmp_path / "sibling.py").write_text('NAME = "sibling"\n')
    (tmp_path / "syntax.py").write_text("x = 1\nif\n")
    (tmp_path / "raises.py").write_text("\n\nraise ValueError('no')\n")
    (tmp_path / "lines.py").write_text("raise ValueError('first\\nsecond')\n")
    (tmp_path / "exits.py").write_text("import sys\nsys.exit(2)\n")
    (tmp_path / "needs.py").write_text("import not_there_at_all\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "agent.py").write_text("def act(observation): return 'deep'\n")
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("_intercode_user_") or name.split(".")[0] in {
            "mine",
            "sibling",
            "package",
            "needs",
            "agent",
        }:
            del sys.modules[name]


def _make(name: str, folder: Path, **arguments: str) -> Agent:
    factory = load_agent(name, arguments, folder)
    assert factory.name == name
    return factory.make(_TASK)


# -- forms


@pytest.mark.parametrize("module", ["mine", "mine.py", "./mine.py", "{folder}/mine.py"])
def test_modules_and_files(folder: Path, module: str) -> None:
    agent = _make(module.format(folder=folder) + ":Stepper", folder)
    assert agent.style == "step"
    assert agent.act(_SEEN) == "sibling ('small', 'low')"


def test_dotted_modules_and_attributes(folder: Path) -> None:
    assert _make("package.agent:act", folder).act(_SEEN) == "deep"
    assert _make("package/agent.py:act", folder).act(_SEEN) == "deep"
    assert _make("mine:Stepper.Inner", folder).act(_SEEN) == "inner"


def test_arguments(folder: Path) -> None:
    agent = _make("mine:Stepper", folder, model="large", effort="high")
    assert agent.act(_SEEN) == "sibling ('large', 'high')"


def test_a_fresh_instance_for_each_episode(folder: Path) -> None:
    factory = load_agent("mine:Stepper", None, folder)
    first, second = factory.make(_TASK), factory.make(_TASK)
    assert first.act.__self__ is not second.act.__self__  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "style", "result"),
    [
        ("mine:step", "step", "stepped"),
        ("mine:optional", "step", "optional"),
        ("mine:loop", "loop", "looped"),
        ("mine:Looper", "loop", "ran"),
    ],
)
def test_styles(folder: Path, name: str, style: str, result: str) -> None:
    agent = _make(name, folder)
    assert agent.style == style
    assert (agent.act(_SEEN) if style == "step" else agent.run(_TASK.view(), _ENV)) == result


def test_current_folder_is_the_default(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert load_agent("mine.py:step").make(_TASK).act(_SEEN) == "stepped"


# -- errors

_FORMS = "an agent is module:Attr, path/to/file.py:Attr, oracle, replay:FILE, human, "


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", _FORMS),
        ("mine", "name the class or function, too: mine:Stepper, mine:Looper, "),
        ("min", _FORMS),
        ("mine:", _FORMS),
        (":step", _FORMS),
        ("orcale", f"{_FORMS}.* Did you mean 'oracle'?"),
        ("oracle:", "expected oracle"),
        ("replay", "expected replay:FILE"),
        ("replay: ", "expected replay:FILE"),
        ("command", "expected command:CMDLINE"),
        ("tools:gpt", "expected tools"),
        ("nowhere:x", "there is no module 'nowhere' in {folder} or on the import path"),
        ("package.nope:x", "there is no module 'package.nope' in {folder} or on the import path"),
        ("nope.py:x", "there is no file {folder}/nope.py"),
        ("~nobody-of-this-name/a.py:x", "there is no file {folder}/~nobody-of-this-name/a.py"),
        ("needs:x", "importing needs raised ModuleNotFoundError: No module named"),
        ("raises:x", "importing raises raised ValueError: no ({folder}/raises.py:3)"),
        ("raises.py:x", "importing raises.py raised ValueError: no ({folder}/raises.py:3)"),
        ("lines.py:x", "importing lines.py raised ValueError: first second ({folder}/lines.py:1)"),
        ("exits.py:x", "importing exits.py raised SystemExit: 2 ({folder}/exits.py:2)"),
        ("syntax.py:x", "importing syntax.py raised SyntaxError: "),
        ("mine:Steper", "mine has no 'Steper'. Did you mean 'Stepper'?"),
        ("mine:Stepper.Outer", "mine has no 'Stepper.Outer'."),
        ("mine:Neither", "the class has neither act(observation) nor run(task, env)"),
        (
            "mine:Forgetful",
            "run(self, task) cannot be called with task and env: write `def run(self, ",
        ),
        (
            "mine:Selfless",
            "act(observation) cannot be called with observation: write `def act(self, ",
        ),
        ("mine:instance", "this is an instance; name its class, so that every episode gets a "),
        ("mine:number", "5 is neither a class nor a callable"),
        ("mine:Strict", "Strict() cannot be called with the arguments given by "),
        ("mine:opaque", ".*signature"),  # the words are Python's, and change
        ("mine:three", "a callable takes (observation) or (task, env), but this one takes 3 "),
        ("mine:none", "a callable takes (observation) or (task, env), but this one takes 0 "),
        ("mine:star", "a callable takes (observation) or (task, env), but this one takes 0 "),
    ],
)
def test_errors(folder: Path, name: str, message: str) -> None:
    with pytest.raises(AgentLoadError) as caught:
        load_agent(name, None, folder)
    expected = f"--intercode-agent={name}: " + message.replace("{folder}", str(folder))
    assert re.match(re.escape(expected).replace(r"\.\*", ".*"), str(caught.value))
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_that_fails_is_not_left_imported(folder: Path) -> None:
    for _ in range(2):
        with pytest.raises(AgentLoadError, match="ValueError: no"):
            load_agent("raises.py:x", None, folder)
    assert not {"_intercode_user_raises", "raises"} & sys.modules.keys()


def test_a_file_has_the_name_by_which_others_import_it(folder: Path) -> None:
    """Coverage is measured, and objects are pickled, by the names of modules."""
    load_agent("mine.py:Stepper", None, folder)
    load_agent("package/agent.py:act", None, folder)
    assert sys.modules["mine"].__file__ == str(folder / "mine.py")
    assert "_intercode_user_mine" not in sys.modules
    assert importlib.import_module("mine") is sys.modules["mine"]


@pytest.mark.parametrize("name", ["json", "sys", "my-agent", "__main__"])
def test_a_file_with_the_name_of_another_module_keeps_out_of_its_way(
    folder: Path, name: str
) -> None:
    (folder / f"{name}.py").write_text("def act(observation): return 'own'\n")
    before = sys.modules.get(name)
    load_agent(f"{name}.py:act", None, folder)
    assert sys.modules.get(name) is before
    assert sys.modules[f"_intercode_user_{name}"].__file__ == str(folder / f"{name}.py")


@pytest.mark.parametrize("name", ["oracle", "replay:run.jsonl", "mine:step"])
def test_some_take_no_arguments(folder: Path, name: str) -> None:
    with pytest.raises(AgentLoadError, match=r"--intercode-agent-arg model=\.\.\.: the agent '"):
        load_agent(name, {"model": "x"}, folder)


def test_wrong_arguments_are_known_before_the_first_episode(folder: Path) -> None:
    with pytest.raises(AgentLoadError, match="unexpected keyword argument 'modle'"):
        load_agent("mine:Stepper", {"modle": "x"}, folder)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mine:Broken", r"^Broken\(\) raised RuntimeError: no key \(.*mine\.py:\d+\)$"),
        ("mine:Exiting", r"^Exiting\(\) raised SystemExit: 3 \("),
    ],
)
def test_a_constructor_that_raises_is_the_agents_fault(
    folder: Path, name: str, message: str
) -> None:
    factory = load_agent(name, None, folder)
    with pytest.raises(AgentError, match=message):
        factory.make(_TASK)


# -- adapt


class _Both:
    def act(self, observation: str) -> str:
        return "act"

    def run(self, task: object, env: object) -> str:
        return "run"


class _Whole(_Both):
    def reset(self, task: object) -> str:
        return "reset"

    def close(self) -> str:
        return "closed"


def test_adapt_leaves_agents_alone() -> None:
    agent = Agent("step")
    assert adapt(agent) is agent


def test_adapt_prefers_act_and_fills_what_is_missing() -> None:
    agent = adapt(_Both())
    assert (agent.style, agent.act(_SEEN)) == ("step", "act")
    agent.reset(_TASK.view())
    agent.close()
    whole = adapt(_Whole())
    assert whole.reset(_TASK.view()) == "reset"
    assert whole.close() == "closed"


def test_adapt_callables() -> None:
    assert adapt(lambda observation: "x").style == "step"
    assert adapt(lambda task, env: "x").style == "loop"


@pytest.mark.parametrize("wrong", [None, 5, "ls", object(), _Both, lambda: "x"])
def test_adapt_refuses(wrong: Any) -> None:
    with pytest.raises(AgentLoadError, match=r"^the agent .* (neither act|is a class|takes \()"):
        adapt(wrong)


# -- the agents that come with us


class _Recorder:
    """Records actions; says that the episode ends at the n-th."""

    def __init__(self, end: int = 99, *, truncated: bool = False) -> None:
        self.actions: list[str] = []
        self._end = end
        self._truncated = truncated

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        over = len(self.actions) >= self._end
        return "", 0.0, over and not self._truncated, over and self._truncated, {}


def _played(agent: Agent, end: int = 99, *, truncated: bool = False) -> list[str]:
    recorder = _Recorder(end, truncated=truncated)
    agent.run(_TASK.view(), cast(AgentEnvironment, recorder))
    return recorder.actions


def test_oracle_plays_gold() -> None:
    agent = load_agent("oracle").make(_TASK)
    assert _played(agent) == ["one", "two"]
    assert _played(agent, 1) == ["one"]
    assert _played(agent, 1, truncated=True) == ["one"]


def _write(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"replay:{path.name}"


def _row(task_id: object, query: str, *actions: str, **history: Any) -> dict[str, Any]:
    return {
        "task_id": task_id,
        "query": query,
        "turn_history": {"actions": list(actions), **history},
    }


def test_replay_by_id(tmp_path: Path) -> None:
    name = _write(
        tmp_path / "run.jsonl", _row("other", "Do it now.", "no"), _row("set-00003", "?", "a", "b")
    )
    assert _played(_make(name, tmp_path)) == ["a", "b"]
    assert _played(_make(name, tmp_path), 1) == ["a"]
    assert _make(f"replay:{tmp_path}/run.jsonl", Path("/")).style == "loop"


def test_replay_by_query_whatever_its_white_space(tmp_path: Path) -> None:
    name = _write(tmp_path / "run", _row(17, " Do it now.\n", "a"), _row(3, "Else.", "b"))
    assert _played(_make(name, tmp_path)) == ["a"]


def test_replay_tells_equal_queries_apart_by_their_number(tmp_path: Path) -> None:
    rows = [_row(n, "Do it now.", f"number {n}") for n in (0, 3, 30)]
    name = _write(tmp_path / "run", *rows)
    assert _played(_make(name, tmp_path)) == ["number 3"]
    factory = load_agent(name, None, tmp_path)
    for task_id, expected in (("x-00000", "0"), ("x-30", "30"), ("x-7", "0"), ("named", "0")):
        task = Task(task_id, _TASK.query, ("g",), "bash", "s", "s")
        assert _played(factory.make(task)) == [f"number {expected}"]


def test_replay_by_file_and_number_where_the_query_was_reworded(tmp_path: Path) -> None:
    row = {**_row(7, "In old words.", "a"), "dataset": "./data/ctf/ic_ctf.json"}
    factory = load_agent(_write(tmp_path / "run", row), None, tmp_path)
    task = replace(_TASK, id="ic-ctf-00007", source="/data/ctf/ic_ctf.json, row 7")
    assert _played(factory.make(task)) == ["a"]
    for source in ("/data/ctf/ic_ctf.json, row 8", "/data/other.json, row 7", "ic_ctf.json:7", ""):
        with pytest.raises(NoRecording):
            factory.make(replace(task, source=source))


def test_replay_unwraps_the_actions_of_react(tmp_path: Path) -> None:
    actions = ["execute[ls -l]", " execute[a[1]]\n", "submit", "execute[open", "plain"]
    wrapped = _row("set-00003", "q", *actions, thoughts=["t"] * 5)
    assert _played(_make(_write(tmp_path / "a", wrapped), tmp_path)) == [
        "ls -l",
        "a[1]",
        "submit",
        "execute[open",
        "plain",
    ]
    plain = _row("set-00003", "q", *actions)
    assert _played(_make(_write(tmp_path / "b", plain), tmp_path)) == actions


def test_replay_without_a_recording(tmp_path: Path) -> None:
    name = _write(tmp_path / "run.jsonl", _row(0, "Something else.", "a"))
    factory = load_agent(name, None, tmp_path)
    with pytest.raises(NoRecording, match=r"^run\.jsonl holds no episode of task set-00003$"):
        factory.make(_TASK)


@pytest.mark.parametrize("name", ["replay:.", "replay:nope.jsonl"])
def test_replay_of_what_cannot_be_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(str(tmp_path))):
        load_agent(name, None, tmp_path)
