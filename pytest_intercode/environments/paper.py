"""Base classes of the paper profile: ``skip``, and the shell of bash and ctf.

InterCode lets an agent give up with ``skip``. In its shell, each action is a process of its own,
made of the words that a string splits into, and the effect of ``cd`` is derived from its text.
Published numbers depend on both.
"""

from __future__ import annotations

import abc
import shlex
from collections.abc import Mapping
from typing import Any

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.turn import Observation, StepResult, Turn
from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.shell import ShellEnvironment, unsendable
from pytest_intercode.sandboxes.protocol import Execution, Sandbox

__all__ = [
    "MALFORMED",
    "TIMED_OUT",
    "PaperEnvironment",
    "PaperShell",
    "resolve_cd",
    "run_words",
    "split_words",
]

MALFORMED = "Malformed command"
TIMED_OUT = "Command timed out"


class PaperEnvironment(Environment):
    """An environment in which the action ``skip`` ends the episode."""

    def submission(self, action: str) -> str | None:
        """Treat every action that begins with ``submit`` as a submission without an answer."""
        return "" if action.startswith("submit") else None

    def respond(self, action: str) -> StepResult:
        """Run one action; ``skip`` ends the episode with a reward of 0."""
        if action != "skip":
            return super().respond(action)
        self.turns.append(Turn(action, "", True))
        self.episode.final = self.episode.best or Reward(0.0)
        self.episode.over = "skipped"
        return Observation(""), 0.0, True, False, {}


def split_words(text: str) -> list[str] | None:
    """Split a string into the words of a command; None if no process can be started with them."""
    try:
        return None if unsendable(text) else shlex.split(text)
    except ValueError:
        return None


def resolve_cd(directory: str, action: str) -> str:
    """Return the directory that InterCode believes an action starting with ``cd`` leads to."""
    _, _, target = action.partition("cd ")
    target = target.strip()
    path = target if target.startswith("/") else f"{directory}/{target}"
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


# Docker's exec ends when all processes, background jobs included, have closed its output. Here, a
# `cat` waits for that. It has this name before the action begins, which may list processes.
_WAITING = (
    "exec {out}> >(exec cat); "
    "for ((n = 0; n < 2000; n++)); do "
    "read -r name 2>/dev/null </proc/$!/comm && [[ $name != cat ]] || break; done; "
    "{ (%s) >&$out 2>&1 {out}>&-; } 2>/dev/null; "  # hides the shell's own message on its end
    "status=$?; exec {out}>&-; wait $!; (exit $status)"
)


def run_words(
    sandbox: Sandbox,
    words: list[str] | None,
    directory: str,
    timeout: float,
    variables: Mapping[str, str] | None = None,
) -> tuple[str, int | None]:
    """Run a process with the environment of ``docker exec``; return its output and its status.

    Args:
        sandbox: where it runs.
        words: its words; None for an action that cannot be split.
        directory: where it starts.
        timeout: seconds until it is killed.
        variables: what the image adds to the environment.
    """
    if words is None:
        return MALFORMED, None
    assignments = [f"{name}={value}" for name, value in (variables or {}).items()]
    process = (
        f'cd -- {shlex.quote(directory)} && exec env -i PATH="$PATH" HOSTNAME="$HOSTNAME" '
        f"HOME=/root {shlex.join([*assignments, *words])}"
    )
    command = _WAITING % process
    execution: Execution = sandbox.run(command, timeout)
    if execution.ended != "itself":
        return TIMED_OUT, None
    try:
        return execution.output.decode("utf-8"), execution.status
    except UnicodeDecodeError:
        return MALFORMED, None


class PaperShell(PaperEnvironment, ShellEnvironment):
    """InterCode's shell: each action is a process, and only the directory is kept between them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._directory = "/"
        self._observation = ""

    @abc.abstractmethod
    def _split(self, action: str) -> list[str] | None:
        """Return the words of the process that an action becomes; None if it is malformed."""

    def _variables(self) -> dict[str, str]:
        """Return what InterCode's image adds to the environment of processes."""
        return {}

    def execute(self, action: str) -> Observation:
        """Run the action as a process of its own, in the directory that ``cd`` led to."""
        target = None
        directory = self._directory
        if action.startswith("cd"):
            target, directory = resolve_cd(self._directory, action), "/"
            action = f"cd {target}"
        words = self._split(action)
        text, status = run_words(
            self.sandbox, words, directory, self.action_timeout, self._variables()
        )
        if target is not None and status == 0:
            self._directory = target
        self._observation = text
        return Observation(text, executed=status == 0, status=status)
