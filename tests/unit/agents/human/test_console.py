"""The line editor and the player, with keys from a pipe and a terminal that is a text.

What a real terminal adds is in tests/integration/test_human.py.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output.plain_text import PlainTextOutput

from pytest_intercode.agents.human import make_factory
from pytest_intercode.agents.human.console import (
    Aborted,
    Cleared,
    Console,
    EndOfInput,
    history_file,
    open_history,
)
from pytest_intercode.agents.human.player import Player
from pytest_intercode.agents.protocol import AgentFactory, QuitRun
from pytest_intercode.core.task import TaskView
from pytest_intercode.core.turn import Observation, StepResult
from pytest_intercode.errors import AgentLoadError

TASK = TaskView("t", "Do \x1b[31mit.", "bash", "s", "s", "easy", ("files",), "/work", 3)
ENTER, CLEAR, END, UP = "\r", "\x03", "\x04", "\x1b[A"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "pytest-intercode"


@pytest.fixture
def keys() -> Iterator[PipeInput]:
    with create_pipe_input() as source:
        yield source


@pytest.fixture
def screen() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def console(keys: PipeInput, screen: io.StringIO) -> Console:
    return Console(source=keys, sink=PlainTextOutput(screen))


def read(console: Console, keys: PipeInput, typed: str, env: str = "bash", engine: str = "") -> str:
    if typed:
        keys.send_text(typed)
    with console.open(env, engine, open_history(env)[0]):
        return console.read("> ")


# -- one action


@pytest.mark.parametrize(
    ("env", "engine", "typed", "action"),
    [
        ("bash", "", "ls -1\r", "ls -1"),
        ("bash", "", "echo 'a\rb'\r", "echo 'a\nb'"),
        ("bash", "", "ls\x1b\rpwd\r", "ls\npwd"),  # Alt-Enter
        ("bash", "", "echo 'a\x18\r", "echo 'a"),  # Ctrl-X Enter
        ("bash", "", "cat <<E\r\ta\rE\r", "cat <<E\n\ta\nE"),
        ("bash", "", "\x1b[200~ls\rpwd\x1b[201~\r", "ls\npwd"),  # pasted
        ("ctf", "", "submit don't\r", "submit don't"),
        ("sql", "sqlite", "select 1\r;\r", "select 1\n;"),
        ("sql", "mysql", "select 1\r\r", "select 1"),
        ("python", "", "def f():\rreturn 1\r\r", "def f():\n    return 1"),
        ("python", "", "for x in y:\rif x:\rz()\r\r", "for x in y:\n    if x:\n        z()"),
        ("python", "", "if x:\r\x15\tf()\r\r", "if x:\n    f()"),  # Ctrl-U, Tab
        ("bash", "", "echo a\\ \r", "echo a\\ "),  # a blank that counts
    ],
)
def test_what_is_typed_is_the_action(
    console: Console, keys: PipeInput, env: str, engine: str, typed: str, action: str
) -> None:
    assert read(console, keys, typed, env, engine) == action


def test_the_keys_of_vi(keys: PipeInput, screen: io.StringIO) -> None:
    console = Console(vi=True, source=keys, sink=PlainTextOutput(screen))
    assert read(console, keys, "lss\x1bxi\r") == "ls"


def test_clearing_and_the_end_of_input(console: Console, keys: PipeInput) -> None:
    with pytest.raises(Cleared):
        read(console, keys, "ls" + CLEAR)
    with pytest.raises(EndOfInput) as end:
        read(console, keys, END)
    assert not end.value.closed
    assert read(console, keys, "l" + END + "s\r") == "ls"  # a key like others within a line


def test_a_terminal_that_has_gone(console: Console, keys: PipeInput) -> None:
    keys.close()
    with pytest.raises(EndOfInput) as end:
        read(console, keys, "")
    assert end.value.closed


@pytest.mark.parametrize(
    ("typed", "said"),
    [("y\r", True), ("YES\r", True), ("\r", False), ("n\r", False), (CLEAR, False), (END, True)],
)
def test_a_question(console: Console, keys: PipeInput, typed: str, said: bool) -> None:
    keys.send_text(typed)
    with console.open("bash", "", open_history("bash")[0]):
        assert console.confirm("Sure?") is said


def test_what_was_typed_before_an_episode_does_not_count(console: Console, keys: PipeInput) -> None:
    assert read(console, keys, "one\rtwo\r") == "one"  # what is left waits for the next prompt
    assert read(console, keys, "three\r") == "three"


def test_abort_ends_the_prompt_that_waits(console: Console, keys: PipeInput) -> None:
    aborting = threading.Timer(0.3, console.abort)
    with console.open("bash", "", open_history("bash")[0]):
        aborting.start()
        with pytest.raises(Aborted):
            console.read("> ")
        with pytest.raises(Aborted):  # nor does another wait
            console.read("> ")
    aborting.join()
    console.abort()


# -- history


def test_history_is_kept_for_each_environment(
    console: Console, keys: PipeInput, state: Path
) -> None:
    read(console, keys, "echo 'one\rtwo'\r")
    read(console, keys, ":help\r")
    read(console, keys, "print(1)\r", "python")
    assert read(console, keys, UP + ENTER) == "echo 'one\ntwo'"
    assert read(console, keys, UP + ENTER, "python") == "print(1)"
    kept = history_file("bash")
    assert kept == state / "history-bash"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert state.stat().st_mode & 0o777 == 0o700
    assert "help" not in kept.read_text()


def test_where_history_is_kept_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_STATE_HOME", value)
        assert history_file("sql") == tmp_path / ".local/state/pytest-intercode/history-sql"


# -- an episode


class Recorder:
    """Takes the place of an episode: remembers actions, and answers as it is told."""

    def __init__(self, *answers: Observation) -> None:
        self.actions: list[str] = []
        self.answers = list(answers)

    def step(self, action: str) -> StepResult:
        self.actions.append(action)
        over = action == "submit"
        observation = Observation("") if over else self.answers.pop(0)
        return observation, 0.0, over, observation.turns_left == 0 and not over, {}


def play(console: Console, keys: PipeInput, typed: str, *answers: Observation) -> list[str]:
    if typed:
        keys.send_text(typed)
    environment: Any = Recorder(*answers)
    Player(console=console).run(TASK, environment)
    actions: list[str] = environment.actions
    return actions


def test_an_episode(console: Console, keys: PipeInput, screen: io.StringIO) -> None:
    answers = (
        Observation("\x1b[2Jcleared\n", turns_left=2),
        Observation("", executed=False, status=3, reward=0.5, turns_left=1),
    )
    assert play(console, keys, "ls\r  \rfalse\rsubmit\r", *answers) == ["ls", "false", "submit"]
    seen = screen.getvalue().replace("\r\n", "\n")
    assert "\x1b" not in seen
    for text in (
        "== t (bash, easy, files)\n",
        "Do \\x1b[31mit.\n",
        "workdir /work, 3 turns left.",
        "\\x1b[2Jcleared\n",
        "[exit status 3, reward 0.50]\n",
    ):
        assert text in seen


def test_the_last_turn_ends_it(console: Console, keys: PipeInput) -> None:
    assert play(console, keys, "ls\r", Observation("a", turns_left=0)) == ["ls"]


@pytest.mark.parametrize("typed", [":give-up\r", END + "y\r", "half" + CLEAR + END + END])
def test_giving_up_submits_nothing(console: Console, keys: PipeInput, typed: str) -> None:
    assert play(console, keys, typed) == []


def test_not_giving_up_after_all(console: Console, keys: PipeInput) -> None:
    assert play(console, keys, END + "n\rsubmit\r") == ["submit"]


def test_commands_cost_no_turn(console: Console, keys: PipeInput, screen: io.StringIO) -> None:
    typed = ":help\r:task\r:taks\r :help\rsubmit\r"
    assert play(console, keys, typed, Observation("", turns_left=2)) == [" :help", "submit"]
    seen = screen.getvalue().replace("\r\n", "\n")
    assert f"History: {history_file('bash')}" in seen
    assert seen.count("== t (") == 2
    assert "[no command :taks. Did you mean ':task'?" in seen


def test_quitting(console: Console, keys: PipeInput) -> None:
    with pytest.raises(QuitRun, match=":quit"):
        play(console, keys, ":quit\r")
    keys.close()
    with pytest.raises(QuitRun, match="was closed"):
        play(console, keys, "")


def test_history_that_cannot_be_kept(
    console: Console, keys: PipeInput, screen: io.StringIO, state: Path
) -> None:
    state.write_text("in the way")
    assert play(console, keys, "submit\r") == ["submit"]
    assert f"[history is not kept: {state}" in screen.getvalue()


def test_a_sql_task_names_its_database(
    console: Console, keys: PipeInput, screen: io.StringIO
) -> None:
    task = TaskView("q", "How many?", "sql", "s", "s", "", (), "/", 1, "mysql", "shop")
    keys.send_text("submit\r")
    environment: Any = Recorder()
    Player(console=console).run(task, environment)
    assert "database shop (mysql), 1 turn left." in screen.getvalue()


# -- loading


def factory(**arguments: str) -> AgentFactory:
    return make_factory("human", "", arguments, Path())


def test_the_factory() -> None:
    made = factory(keys="vi")
    assert made.terminal
    assert made.name == "human"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"keys": "vim"}, r"keys=vim: allowed are emacs, vi\. Did you mean 'vi'\?"),
        (
            {"key": "vi"},
            r"key=\.\.\.: the agent 'human' has no such argument; it takes keys\. "
            r"Did you mean 'keys'\?",
        ),
    ],
)
def test_wrong_arguments(arguments: dict[str, str], said: str) -> None:
    with pytest.raises(AgentLoadError, match=said):
        factory(**arguments)


def test_without_the_line_editor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "prompt_toolkit", None)
    with pytest.raises(AgentLoadError, match=r"pip install 'pytest-intercode\[human\]'"):
        factory()
