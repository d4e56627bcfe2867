"""The swe kind: a shell in a repository; tests of the files grade it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.environments.answer import Answer
from pytest_intercode.environments.recorded import NotRecorded, RecordedEpisode
from pytest_intercode.environments.shell_kind import ShellKind
from pytest_intercode.errors import SuiteError

if TYPE_CHECKING:
    from pytest_intercode.environments.sections import Section

__all__ = ["SweKind"]

_RESULTS = (  # the name of tests in a record, their mark on the page, and its meaning
    ("unfixed", "!", "fails, and has to pass"),
    ("broken", "!", "passed before, and fails"),
    ("fixed", "=", "passes"),
    ("kept", "=", "passes as before"),
)


class SweKind(ShellKind):
    """Commands of a shell in a repository, graded by tests."""

    name = "swe"
    profiles = MappingProxyType(
        {"strict": "pytest_intercode.environments.swe.strict:SweEnvironment"}
    )
    fields = "pytest_intercode.environments.swe.fields:SweFields"
    published_rows = True
    example = "git log --oneline"
    graded = "The files are graded, by tests that are not shown."
    answer = "empty: the files are graded"
    answer_instruction = "Leave the answer empty: tests are run on the files as you leave them."
    reads_answer = False
    prompt = """\
You work in a Bash shell on Linux. An action is Bash code, as you would type it. You start in
$workdir. Nobody answers a program that asks for input.

What is graded is the state in which you leave the files: tests that you do not see are run on them.
What you change in tests, and in the settings of what runs them, is not used.
"""

    def check(self, task: Task) -> None:
        """Check that the task has a verification."""
        if task.verification is None:
            raise SuiteError(
                f"{task.source}: task {task.id!r}: verification: a swe task needs one: {{command: "
                "COMMAND, parser: NAME, fail_to_pass: [TEST]}"
            )

    def data_of(self, task: Task) -> tuple[Any, ...]:
        """Return the data that a task works on, including its repository."""
        from pytest_intercode.environments.swe.fields import repository_of

        return (*super().data_of(task), repository_of(task))

    def can_share_verifier(self, task: Task) -> bool:
        """Whether a task's tests may run in the agent's sandbox: not in a repository."""
        from pytest_intercode.environments.swe.fields import repository_of

        return repository_of(task) is None

    def lacks_tests(self, task: Task) -> bool:
        """Whether a task does not have tests."""
        return task.verification is None

    def gold_answer(self, task: Task) -> Answer:
        """Return gold's commands; git applies a patch."""
        from pytest_intercode.environments.swe.gold import gold_actions

        return Answer(tuple(gold_actions(task)))

    def wrong_answers(self, task: Task) -> Iterator[Answer]:
        """Return incomplete versions of gold's patch."""
        from pytest_intercode.environments.swe.gold import change_gold

        return change_gold(task)

    def score(self, episode: RecordedEpisode) -> Reward:
        """Count the passing tests again."""
        from pytest_intercode.rewards.swe import swe_reward_again

        if episode.profile != "strict":
            raise NotRecorded("swe: InterCode has no reward for it, so it has no profile 'paper'")
        if not isinstance(episode.state.get("tests"), Mapping):
            record = episode.record
            return Reward(record.reward, dict(record.parts), record.reason)  # no tests ran
        return swe_reward_again(episode.state["tests"])

    def end_state_sections(self, state: Mapping[str, Any], record: EpisodeRecord) -> list[Section]:
        """Return the tests, and the patch that the agent left."""
        from pytest_intercode.environments.sections import compare_table, show_marked_lines

        sections = []
        tests = state.get("tests")
        if isinstance(tests, Mapping):
            lines = [[mark, test, text] for key, mark, text in _RESULTS for test in tests[key]]
            sections.append(compare_table("Tests", ["test", "result"], lines))
        rewards = state.get("rewards")
        if isinstance(rewards, Mapping):  # parts that a machine's tests have named themselves
            lines = [["=" if v >= 1 else "!", name, f"{v:g}"] for name, v in rewards.items()]
            sections.append(compare_table("Rewards", ["part", "value"], lines))
        patch = state["patch"].splitlines()
        if patch or not isinstance(rewards, Mapping):
            marked = [
                [line[0], line[1:]] if line[:1] in ("+", "-") else ["", line] for line in patch
            ] or [["", "nothing was changed"]]
            sections.append(show_marked_lines("Patch", marked, same=None))
        if state["left_out"]:
            sections[-1]["note"] = f"Not tested: {', '.join(state['left_out'])}."
        return sections
