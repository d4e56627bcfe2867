"""The kind for project tests: a shell in a copy of a repository; the test itself grades."""

from __future__ import annotations

from collections.abc import Mapping
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

__all__ = ["ProjectKind"]


class ProjectKind(ShellKind):
    """Commands of a shell in a copy of a project, graded by the assertions of a test."""

    name = "project"
    profiles = MappingProxyType(
        {"strict": "pytest_intercode.environments.project.environment:ProjectEnvironment"}
    )
    fields = "pytest_intercode.environments.project.fields:ProjectFields"
    has_verification = False
    example = "git log --oneline"
    graded = "What counts is what you do in the project, and what you say at the end."
    submission = "MESSAGE"
    answer = "what you say to the user at the end"
    answer_instruction = "The answer is what you say to the user at the end."
    graded_by_test = True
    prompts_alone = True
    not_on_nodes = "is graded by a test of this process"
    prompt = """\
You work in a Bash shell on Linux. An action is Bash code, as you would type it. You start in
$workdir, a repository. Nobody answers a program that asks for input.
"""

    def gold_answer(self, task: Task) -> Answer:
        """Return an answer without actions, because there is no gold."""
        return Answer(())

    def answer_in_words(self, words: str) -> str | None:
        """Return all words, because the answer is a message."""
        return words

    def score(self, episode: RecordedEpisode) -> Reward:
        """Return the reward of the run, because the test's assertions are not recorded."""
        record = episode.record
        return Reward(record.reward, dict(record.parts), record.reason)

    def judged_state(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what the agent said at the end, its commits and its changes, if they were read."""
        project = state.get("project", {})
        commits = [commit.get("message", "") for commit in project.get("commits", ())]
        return {
            "what it said at the end": state.get("message", ""),
            "why nothing of its commits and changes could be read": project.get("unread", ""),
            "commits": commits,
            **{name: project.get(name, ()) for name in ("created", "changed", "deleted", "patch")},
        }

    def end_state_sections(self, state: Mapping[str, Any], record: EpisodeRecord) -> list[Section]:
        """Return what the agent said at the end, its commits and its patch."""
        from pytest_intercode.environments.project.sections import end_state_sections

        return end_state_sections(state)
