"""The tau2 kind: calls of a company's tools; its database and the conversation are graded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task, TaskView
from pytest_intercode.environments.answer import Answer
from pytest_intercode.environments.kind import EnvironmentKind, Tool
from pytest_intercode.environments.recorded import RecordedEpisode

if TYPE_CHECKING:
    from pytest_intercode.environments.sections import Section

__all__ = ["Tau2Kind"]


class Tau2Kind(EnvironmentKind):
    """Calls of tools on a database, for a customer."""

    name = "tau2"
    profiles = MappingProxyType(
        {"strict": "pytest_intercode.environments.tau2.strict:Tau2Environment"}
    )
    fields = "pytest_intercode.environments.tau2.fields:Tau2Fields"
    has_verification = False
    language = "JSON"
    labels = ("json", "tau2")
    suffix = ".json"
    example = '{"name": "get_order_details", "arguments": {"order_id": "#W0000000"}}'
    graded = "The database that the calls leave is graded, and what the customer was told."
    answer = "what the customer is told last"
    tool = Tool("call", "call", "Call a tool of the company's.")
    continuation = "Enter calls it"
    shows_workdir = False
    unrecorded = "the calls and the conversation"
    # with_paths, which finds the files to send, does not look into mappings such as `world`.
    not_on_nodes = "has tasks that name files in a mapping, and such files are not sent to nodes"
    prompt = "You act for a company, with tools on its database. A call is JSON, such as $example\n"

    def describe_code(self, task: TaskView) -> str:
        """Describe an action, for models."""
        return f"a call of one of the company's tools, as {self.example}"

    def gold_answer(self, task: Task) -> Answer:
        """Return gold's calls, and its last message to the customer."""
        *calls, last = task.gold
        return Answer(tuple(calls), last.removeprefix("submit").strip())

    def wrong_answers(self, task: Task) -> Iterator[Answer]:
        """Yield gold without its last call."""
        gold = self.gold_answer(task)
        if gold.actions:
            description = "gold without its last call"
            yield Answer(gold.actions[:-1], gold.submitted, description, certain=False)

    def data_of(self, task: Task) -> tuple[Any, ...]:
        """Return the domain, and what is done to its database at first."""
        from pytest_intercode.environments.tau2.fields import Tau2Fields

        fields = Tau2Fields.of(task)
        return (self.name, fields.domain, json.dumps(fields.initial, sort_keys=True))

    def score(self, episode: RecordedEpisode) -> Reward:
        """Compute the product of what was compared again."""
        from pytest_intercode.rewards.tau2 import tau2_reward

        episode.check_same()
        return tau2_reward(episode.state)

    def end_state_sections(self, state: Mapping[str, Any], record: EpisodeRecord) -> list[Section]:
        """Return the calls of both sides, and which of the graded conditions hold."""
        from pytest_intercode.environments.sections import compare_table, show_lines

        agent, checks, criteria = state["agent"], state["checks"], state["criteria"]
        lines = [["=" if checks["db"] else "!", "the database", "as gold leaves it"]]
        assertions = criteria.get("env_assertions") or []
        for holds, assertion in zip(checks["assertions"], assertions, strict=False):
            text = json.dumps(assertion.get("arguments"))
            lines.append(["=" if holds else "!", str(assertion.get("func_name")), text])
        calls = [
            f"{c['requestor']}: {c['name']} {json.dumps(c['arguments'])}" for c in agent["calls"]
        ]
        return [
            compare_table("What is graded", ["what", "has to be"], lines),
            show_lines("Calls", calls),
        ]
