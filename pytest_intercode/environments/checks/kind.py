"""The checks kind: a shell; an answer is graded, or scripts check the machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.environments.answer import Answer
from pytest_intercode.environments.recorded import RecordedEpisode
from pytest_intercode.environments.shell_kind import ShellKind
from pytest_intercode.errors import SuiteError

if TYPE_CHECKING:
    from pytest_intercode.environments.sections import Section

__all__ = ["ChecksKind"]

_SUBMIT = "submit "


class ChecksKind(ShellKind):
    """Commands of a shell, graded by an answer or by scripts."""

    name = "checks"
    profiles = MappingProxyType(
        {"strict": "pytest_intercode.environments.checks.strict:ChecksEnvironment"}
    )
    fields = "pytest_intercode.environments.checks.fields:ChecksFields"
    has_verification = False
    graded = "The answer is graded, or the machine as it is left."
    answer = "the answer to the task's question, and nothing else; empty where it asks for none"
    answer_instruction = "The answer is exact, such as one number: no sentence."
    answer_file_instruction = (
        "If the task is a question, write the exact answer, such as one number, and nothing else "
        "to the file {answer}."
    )
    unrecorded = "gold's sandbox"
    prompt = """\
You work in a Bash shell on Linux. An action is Bash code, as you would type it. You start in
$workdir. Nobody answers a program that asks for input.

If the task is a question, submit the exact answer, such as one number and no sentence: $submit
Without an answer, what your last action printed is taken for one. If the task is to change
something, the machine is graded as you leave it.
"""

    def check(self, task: Task) -> None:
        """Check that exactly one of the fields defines how the task is graded."""
        from pytest_intercode.environments.checks.fields import ChecksFields

        fields = ChecksFields.of(task)
        ways = [name for name in ("match", "compare", "checks") if getattr(fields, name)]
        if len(ways) != 1:
            raise SuiteError(
                f"{task.source}: task {task.id!r}: one of match, compare and checks is needed, "
                f"found {', '.join(ways) or 'none'}"
            )
        if any(command.startswith(_SUBMIT) for command in task.gold) and not fields.match:
            raise SuiteError(
                f"{task.source}: task {task.id!r}: gold: with {ways[0]}, what the last command "
                "prints is the answer; remove `submit`"
            )

    def gold_answer(self, task: Task) -> Answer:
        """Return gold's commands, and what it submits."""
        *commands, last = task.gold
        if last.startswith(_SUBMIT):
            return Answer(tuple(commands), last.removeprefix(_SUBMIT))
        return Answer(task.gold)

    def empty_answers(self, task: Task, state: Mapping[str, Any]) -> Iterator[Answer]:
        """Yield an empty line and a blank."""
        yield Answer(("echo",), description="an empty line")
        yield Answer(submitted=" ", description="a blank")

    def wrong_answers(self, task: Task) -> Iterator[Answer]:
        """Yield short answers that are guesses."""
        for text in ("0", "1", "yes", "no"):
            yield Answer(submitted=text, description="a short answer", certain=False)

    def score(self, episode: RecordedEpisode) -> Reward:
        """Compare the answers again, or count the checks that passed."""
        from pytest_intercode.rewards.checks import checks_reward

        episode.check_same()
        return checks_reward(episode.state)

    def end_state_sections(self, state: Mapping[str, Any], record: EpisodeRecord) -> list[Section]:
        """Return the answer next to the right one, and how the scripts ended."""
        from pytest_intercode.environments.sections import compare_table

        agent, gold = state["agent"], state["gold"]
        is_right = record.reward >= 1
        if not gold["checks"]:
            lines = [
                ["=" if is_right else "!", "answer", str(agent["answer"]), str(gold["answer"])]
            ]
            return [compare_table("Answer", ["what", "agent's", "gold's"], lines)]
        lines = [
            ["=" if status == 0 else "!", f"check {number}", f"status {status}", "status 0"]
            for number, status in enumerate(agent["statuses"], 1)
        ]
        lines += [["!", "replaced", str(path), ""] for path in agent["programs"]]
        return [compare_table("Checks", ["what", "agent's", "gold's"], lines)]
