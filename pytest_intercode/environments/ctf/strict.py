"""The ctf environment, strict profile: a shell, and a flag to be found and submitted.

Actions run as in bash. Only submitted flags are graded, so there is no gold sandbox, and the flag
is not in the agent's sandbox unless the puzzle puts it there. A wrong flag costs a turn.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.core.text import pluralize
from pytest_intercode.core.turn import Observation, Profile, StepResult
from pytest_intercode.environments.ctf.fields import CtfFields
from pytest_intercode.environments.shell import ShellEnvironment
from pytest_intercode.errors import TaskError
from pytest_intercode.rewards.ctf import FlagDigest, ctf_strict_reward
from pytest_intercode.sandboxes.protocol import Sandbox

__all__ = ["CtfEnvironment"]

# Ends with 0 as soon as no copy of the shell that runs setup is left. A subshell in the background
# is such a copy, and so is every job until its program starts.
_NO_COPIES = """
for try in {1..30}; do
  copies=
  for process in /proc/[0-9]*; do
    mapfile -d '' -t words <"$process/cmdline"
    [ "${words[1]}" = -c ] && [ "${words[3]}" = setup ] && copies=yes
  done 2>/dev/null
  [ "$copies" ] || exit 0
  sleep 0.1
done
exit 1
"""
_SETUP_END_TIMEOUT = 30.0  # seconds for the loop above


class CtfEnvironment(ShellEnvironment):
    """Capture the flag: ``submit FLAG`` ends the episode if the flag is right."""

    name = "ctf"
    profile: Profile = "strict"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._submitted: list[str] = []

    def end_state(self) -> dict[str, Any]:
        """Return the submitted flags, and the digest of gold."""
        if self.task is None:
            return {}
        return {"agent": {"submitted": list(self._submitted)}, "gold": asdict(self._digest())}

    # -- an episode

    def start(self, task: Task) -> None:
        """Start the sandbox, with no flag submitted yet."""
        self._submitted = []
        super().start(task)

    def prepare(self, sandbox: Sandbox, task: Task) -> None:
        """Run setup, whose text must not stay in the sandbox."""
        super().prepare(sandbox, task)
        if task.setup and sandbox.admin(_NO_COPIES, _SETUP_END_TIMEOUT)[0] != 0:
            raise TaskError(
                f"{task.source}: task {task.id!r}: setup left a copy of its shell at work, and the "
                "agent could read setup's text in its memory. Let what goes on be a program of its "
                "own, as in: `program &`, or `(...; exec program) &`"
            )

    def handle_submission(self, action: str, answer: str | None) -> StepResult:
        """End the episode if the flag is right or the last one; otherwise take a normal turn."""
        if answer is None:
            return self.take_turn(action, self._reply_empty)
        self._submitted.append(answer)
        if self.grade(None).value >= 1.0 or self._remaining_flags() == 0:
            return super().handle_submission(action, answer)
        return self.take_turn(action, self._reply_wrong)

    def _reply_wrong(self, _: str) -> Observation:
        count = self._remaining_flags()
        flags = "" if count is None else f", and {pluralize(count, 'more flag')}"
        remaining = f"{self._remaining_turns()}{flags}"
        return Observation(f"[that is not the flag; {remaining}]\n", executed=False)

    def _reply_empty(self, _: str) -> Observation:
        hint = "nothing was submitted: the flag goes behind the word, as in: submit FLAG"
        return Observation(f"[{hint}; {self._remaining_turns()}]\n", executed=False)

    def _remaining_flags(self) -> int | None:
        """Return how many flags may still be submitted; None for any number."""
        maximum = CtfFields.of(self.current_task).submissions
        return None if maximum is None else maximum - len(self._submitted)

    def _remaining_turns(self) -> str:
        """Describe how many turns remain after the current one."""
        remaining = self.max_turns - len(self.turns) - 1
        return f"{remaining} turn{'' if remaining == 1 else 's'} left"

    def grade(self, answer: str | None) -> Reward:
        """Compare the submitted flags with gold."""
        return ctf_strict_reward(self._submitted, self._digest())

    def _digest(self) -> FlagDigest:
        task = self.current_task
        return FlagDigest.of(task.gold[0], ignore_case=CtfFields.of(task).ignore_case)
