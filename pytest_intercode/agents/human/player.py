"""One episode of the human: shows the task and runs what they type until the episode ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_intercode.agents.human.completeness import is_command
from pytest_intercode.agents.human.console import (
    Aborted,
    Cleared,
    Console,
    EndOfInput,
    history_file,
    open_history,
)
from pytest_intercode.agents.protocol import QuitRun
from pytest_intercode.core.text import pluralize
from pytest_intercode.environments.registry import kind_of
from pytest_intercode.errors import suggestion

if TYPE_CHECKING:
    from pytest_intercode.agents.agent_environment import AgentEnvironment
    from pytest_intercode.core.task import TaskView
    from pytest_intercode.core.turn import Observation

__all__ = ["Player"]

_TITLE = "bold"
_NOTICE = "ansiyellow"

_HELP = """\
What you type is an action, and costs a turn, as an agent's does.
  submit            end the episode; submit ANSWER gives an answer in place of the last output
  :task             show the task again
  :give-up, Ctrl-D  end the episode without submitting; the state is graded as it is
  :quit             end the whole run; this episode does not count, the earlier ones stay
Keys
  Enter             run it; {continuation}
  Alt-Enter         begin a new line (or Escape, then Enter)
  Ctrl-X Enter      run it, complete or not
  Ctrl-X Ctrl-E     write it in your editor ($VISUAL or $EDITOR), and run it after that
  Up, Ctrl-R        what you typed before, in this run and in earlier ones
  Ctrl-C            clear what you typed
Characters that do not show as themselves are shown as escapes, such as \\x1b.
History: {history}"""


class Player:
    """One human working on one task.

    Args:
        vi: whether to use the keys of vi instead of those of emacs.
        console: the terminal; by default the process's own.
    """

    def __init__(self, *, vi: bool = False, console: Console | None = None) -> None:
        self._console = console or Console(vi=vi)

    def abort(self) -> None:
        """End the waiting prompt, from another thread."""
        self._console.abort()

    def run(self, task: TaskView, env: AgentEnvironment) -> None:
        """Play the episode.

        Raises:
            QuitRun: the human wants to end the whole run.
        """
        console = self._console
        history, history_problem = open_history(task.env)
        with console.open(task.env, task.engine, history):
            self._show_task(task, task.max_turns)
            if history_problem:
                console.show(f"[history is not kept: {history_problem}]", _NOTICE)
            turns_left = task.max_turns
            try:
                while True:
                    action = self._next_action(task, turns_left)
                    if action is None:
                        return
                    observation, _reward, terminated, truncated, _info = env.step(action)
                    if observation:
                        console.show(observation)
                    if terminated or truncated:
                        return  # the outcome is shown by the plugin
                    notes = _describe_result(observation)
                    if notes:
                        console.show(f"[{', '.join(notes)}]", _NOTICE)
                    turns_left = observation.turns_left
            except Aborted:
                console.show("[the episode was stopped]", _NOTICE)

    def _next_action(self, task: TaskView, turns_left: int) -> str | None:
        """Return the action to run, or None if the human gives up."""
        console = self._console
        while True:
            try:
                text = console.read(f"{task.env} ({turns_left} left)> ")
            except Cleared:
                continue
            except EndOfInput as end:
                if end.closed:
                    raise QuitRun("the human's terminal was closed") from None
                if console.confirm("Give up? The state is graded as it is."):
                    return None
                continue
            if not text.strip():
                continue
            if not is_command(text):
                return text
            match command := text.strip():
                case ":give-up":
                    return None
                case ":quit":
                    raise QuitRun("the human ended the run with :quit")
                case ":help" | ":?":
                    continuation = kind_of(task.env).continuation
                    history = history_file(task.env)
                    console.show(_HELP.format(continuation=continuation, history=history), _NOTICE)
                case ":task":
                    self._show_task(task, turns_left)
                case _:
                    near = suggestion(command, (":help", ":task", ":give-up", ":quit"))
                    console.show(
                        f"[no command {command}.{near} :help lists them; after a blank it is an "
                        "action]",
                        _NOTICE,
                    )

    def _show_task(self, task: TaskView, turns_left: int) -> None:
        facts = [word for word in (task.env, task.hardness, *task.tags) if word]
        details = [f"workdir {task.workdir}"] if kind_of(task.env).shows_workdir else []
        if task.engine:
            details.append(f"database {task.database} ({task.engine})")
        show = self._console.show
        show("")
        show(f"== {task.id} ({', '.join(facts)})", _TITLE)
        show(task.query)
        show(
            f"{', '.join([*details, pluralize(turns_left, 'turn')])} left. submit ends it; :help",
            _NOTICE,
        )


def _describe_result(observation: Observation) -> list[str]:
    """Return an observation's attributes as texts, if they add something to its own text."""
    notes = []
    if observation.status:
        notes.append(f"exit status {observation.status}")
    if observation.reward is not None:
        notes.append(f"reward {observation.reward:.2f}")
    return notes
