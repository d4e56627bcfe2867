"""The bash kind: one shell; the files and the last command's output are graded."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.environments.answer import Answer
from pytest_intercode.environments.recorded import RecordedEpisode
from pytest_intercode.environments.shell_kind import ShellKind

if TYPE_CHECKING:
    from pytest_intercode.environments.sections import Section

__all__ = ["BashKind"]

_PAPER_ONLY = (
    "the paper profile compares what git status and md5sum print in both sandboxes, which a strict "
    "run does not record"
)
_STRICT_ONLY = "the strict profile compares every change on disk, which a paper run does not record"
_MAX_CHARACTERS = 300  # of a quoted line
_MAX_PATHS = 5  # named in a message


class BashKind(ShellKind):
    """Commands of a shell, graded by its output and files."""

    name = "bash"
    profiles = MappingProxyType(
        {
            "strict": "pytest_intercode.environments.bash.strict:BashEnvironment",
            "paper": "pytest_intercode.environments.bash.paper:PaperBashEnvironment",
        }
    )
    fields = "pytest_intercode.environments.bash.fields:BashFields"
    has_verification = False
    graded = "The output of the last command and the files are graded."
    answer = "an answer in words, which is graded in place of the last output; mostly empty"
    answer_instruction = "Leave the answer empty: the files and your last output are graded."
    answer_file_instruction = (
        "What is graded are the files and, where the task asks for output, that output: write "
        "exactly what a shell would print to the file {answer}."
    )
    siblings_are_wrong = True
    unrecorded = "gold's sandbox"
    prompt = """\
You work in a Bash shell on Linux. An action is Bash code, as you would type it. You start in
$workdir. Nobody answers a program that asks for input.

What is graded is the state in which you leave the files, and what your last action printed. If the
task asks for something to be shown, let your last action print just that.
"""

    def golds(self, task: Task) -> tuple[tuple[str, ...], ...]:
        """Return gold and its alternatives."""
        from pytest_intercode.environments.bash.fields import golds_of

        return golds_of(task)

    def empty_answers(self, task: Task, state: Mapping[str, Any]) -> Iterator[Answer]:
        """Yield an empty line and a blank."""
        yield Answer(("echo",), description="an empty line")
        yield Answer(submitted=" ", description="a blank")

    def wrong_answers(self, task: Task) -> Iterator[Answer]:
        """Yield gold with one command changed."""
        from pytest_intercode.environments.bash.mutations import change_gold

        return change_gold(task)

    def file_actions(self, task: Task) -> Sequence[str]:
        """Return gold."""
        return task.gold

    def find_leftovers(self, task: Task, state: Mapping[str, Any]) -> list[str]:
        """Return what gold leaves in scratch folders that the query does not name."""
        scratch = [posixpath.join(task.workdir, path).rstrip("/") for path in task.reward.scratch]
        folders = [path for path in scratch if path not in task.query]  # others are asked for
        return [
            path
            for path, entry in sorted(state["gold"].get("entries", {}).items())
            if entry is not None
            and any(path.startswith(f"{folder}/") for folder in folders)
            and posixpath.relpath(path, task.workdir) not in task.query
        ]

    def describe_unequal(self, state: Mapping[str, Any]) -> str:
        """Describe the first line of output that differs, and the paths that differ on disk."""
        agent, gold = state["agent"], state["gold"]
        differences = []
        if agent["output"] != gold["output"]:
            a, b = _first_difference(agent["output"], gold["output"])
            differences.append(f"output: {a!r}, then {b!r}")
        agent_entries, gold_entries = agent.get("entries", {}), gold.get("entries", {})
        paths = sorted(agent_entries.keys() | gold_entries.keys())
        changed = [path for path in paths if agent_entries.get(path) != gold_entries.get(path)]
        if changed:
            differences.append(f"on disk: {', '.join(changed[:_MAX_PATHS])}")
        return "; ".join(differences) or "the end states"

    def score(self, episode: RecordedEpisode) -> Reward:
        """Compare outputs and files again."""
        from pytest_intercode.rewards.bash_paper import bash_paper_reward_again
        from pytest_intercode.rewards.bash_strict import (
            bash_strict_reward_again,
            ungradable_reward,
        )

        strict, state = episode.profile == "strict", episode.state
        episode.check_same(_STRICT_ONLY if strict else _PAPER_ONLY)
        if "ungradable" in state:
            return ungradable_reward(state["ungradable"])
        if strict:
            return bash_strict_reward_again(state, episode.options)
        if state["cut"]:
            raise KeyError("status")
        return bash_paper_reward_again(state)

    def judged_state(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the agent's state, and the lines of its files that gold's files do not have."""
        diffs = state.get("diffs", {})
        lines = {
            f"lines of {path}": "\n".join(line[1:] for line in diff if line.startswith("+"))
            for path, diff in diffs.items()
        }
        return {**super().judged_state(state), **lines}

    def end_state_sections(self, state: Mapping[str, Any], record: EpisodeRecord) -> list[Section]:
        """Return the output and the changes on disk."""
        from pytest_intercode.environments.bash.sections import end_state_sections

        return end_state_sections(state, record)


def _first_difference(first: str, second: str) -> tuple[str, str]:
    """Return the first lines that differ, shortened."""
    for first_line, second_line in zip(first.split("\n"), second.split("\n"), strict=False):
        if first_line != second_line:
            return first_line[:_MAX_CHARACTERS], second_line[:_MAX_CHARACTERS]
    return first[:_MAX_CHARACTERS], second[:_MAX_CHARACTERS]
