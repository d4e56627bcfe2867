"""An episode as the human plays it: the task is shown, what they type is run, until they end it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_intercode.agents.human.completeness import is_command
from pytest_intercode.agents.human.console import Aborted, Cleared, Console, EndOfInput
from pytest_intercode.agents.human.history import history_file, open_history
from pytest_intercode.agents.protocol import QuitRun
from pytest_intercode.errors import suggestion

if TYPE_CHECKING:
    from pytest_intercode.agents.agent_environment import AgentEnvironment
    from pytest_intercode.core.task import TaskView
    from pytest_intercode.core.turn import Observation

__all__ = ["Player"]

_TITLE = "bold"
_OURS = "ansiyellow"

_HELP = """\
What you type is an action, and costs a turn, as an agent's does.
  submit            end the episode; submit ANSWER gives an answer in place of the last output
  :task             show the task again
  :give-up, Ctrl-D  end the episode without submitting; the state is graded as it is
  :quit             end the whole run; this episode does not count, the earlier ones stay
Keys
  Enter             run it; {more}
  Alt-Enter         begin a new line (or Escape, then Enter)
  Ctrl-X Enter      run it, complete or not
  Ctrl-X Ctrl-E     write it in your editor ($VISUAL or $EDITOR), and run it after that
  Up, Ctrl-R        what you typed before, in this run and in earlier ones
  Ctrl-C            clear what you typed
Characters that do not show as themselves are shown as escapes, such as \\x1b.
History: {history}"""

_MORE = {
    "bash": "an open quote, here-document, loop or backslash goes on",
    "ctf": "an open quote, here-document, loop or backslash goes on",
    "sql": "SQL goes on until a ; or an empty line",
    "python": "an open bracket or block goes on; an empty line ends a block",
}


class Player:
    """One human at one task.

    Args:
        vi: the keys of vi instead of those of emacs.
        console: the terminal; by default the process's own.
    """

    def __init__(self, *, vi: bool = False, console: Console | None = None) -> None:
        self._console = console or Console(vi=vi)

    def abort(self) -> None:
        """End the prompt that waits, from another thread."""
        self._console.abort()

    def run(self, task: TaskView, env: AgentEnvironment) -> None:
        """Play the episode.

        Raises:
            QuitRun: the human wants to end the whole run.
        """
        console = self._console
        history, not_kept = open_history(task.env)
        with console.open(task.env, task.engine, history):
            self._show_task(task, task.max_turns)
            if not_kept:
                console.show(f"[history is not kept: {not_kept}]", _OURS)
            turns_left = task.max_turns
            try:
                while True:
                    action = self._next_action(task, turns_left)
                    if action is None:
                        return
                    observation, _reward, terminated, truncated, _info = env.step(action)
                    self._show(observation)
                    if terminated or truncated:
                        return  # who runs the episode says how it ended
                    self._tell(_notes(observation))
                    turns_left = observation.turns_left
            except Aborted:
                console.show("[called off]", _OURS)

    def _next_action(self, task: TaskView, turns_left: int) -> str | None:
        """Return what the human wants run, or None if they give up."""
        console = self._console
        while True:
            try:
                text = console.read(f"{task.env} ({turns_left} left)> ")
            except Cleared:
                continue
            except EndOfInput as end:
                if end.for_good:
                    raise QuitRun("the human's terminal has gone") from None
                if console.confirms("Give up? The state is graded as it is."):
                    return None
                continue
            if not text.strip():
                continue
            if not is_command(text):
                return text
            word = text.strip()
            if word == ":give-up":
                return None
            if word == ":quit":
                raise QuitRun("the human ended the run with :quit")
            self._obey(word, task, turns_left)

    def _obey(self, word: str, task: TaskView, turns_left: int) -> None:
        if word in (":help", ":?"):
            self._console.show(
                _HELP.format(more=_MORE[task.env], history=history_file(task.env)), _OURS
            )
        elif word == ":task":
            self._show_task(task, turns_left)
        else:
            near = suggestion(word, (":help", ":task", ":give-up", ":quit"))
            self._console.show(
                f"[no command {word}.{near} :help lists them; after a blank it is an action]",
                _OURS,
            )

    def _show_task(self, task: TaskView, turns_left: int) -> None:
        facts = [word for word in (task.env, task.hardness, *task.tags) if word]
        where = [f"workdir {task.workdir}"] if task.env != "sql" else []
        if task.engine:
            where.append(f"database {task.database} ({task.engine})")
        show = self._console.show
        show("")
        show(f"== {task.id} ({', '.join(facts)})", _TITLE)
        show(task.query)
        show(f"{', '.join([*where, _turns(turns_left)])} left. submit ends it; :help", _OURS)

    def _show(self, observation: Observation) -> None:
        if observation:
            self._console.show(observation)

    def _tell(self, notes: list[str]) -> None:
        if notes:
            self._console.show(f"[{', '.join(notes)}]", _OURS)


def _notes(observation: Observation) -> list[str]:
    """Return what an agent reads from the attributes of an observation."""
    notes = []
    if observation.status:
        notes.append(f"exit status {observation.status}")
    if observation.reward is not None:
        notes.append(f"reward {observation.reward:.2f}")
    return notes


def _turns(number: int) -> str:
    return "1 turn" if number == 1 else f"{number} turns"
