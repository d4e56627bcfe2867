"""The environment Perl, with a kind of its own: prompt, tool, wrong answers, page and records."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_intercode import (
    Answer,
    EnvironmentKind,
    EpisodeRecord,
    InterpreterEnvironment,
    Reward,
    Section,
    Task,
    Tool,
)

_FOLDER = Path(__file__).parent


class PerlKind(EnvironmentKind):
    """What the other parts of a run ask of Perl."""

    language = "Perl"
    labels = ("perl", "pl")
    suffix = ".pl"
    prompt = (
        "You work in a Perl interpreter in $workdir. An action is $language, such as: $example\n"
    )
    example = "print $0"
    graded = "What the hidden tests print is graded."
    tool = Tool("perl", "source", "Run Perl in the task's interpreter.")
    continuation = "an open brace goes on"
    idle_action = "1"

    def missing_input(self, text: str, engine: str) -> str:
        """Ask for the braces that are still open."""
        return "the closing }" if text.count("{") > text.count("}") else ""

    def wrong_answers(self, task: Task) -> Iterator[Answer]:
        """Yield gold with its first number one higher."""
        *first, last = task.gold
        number = re.search(r"\d+", last)
        if number:
            changed = f"{last[: number.start()]}{int(number[0]) + 1}{last[number.end() :]}"
            yield Answer((*first, changed), description="another number", certain=False)

    def end_state_sections(self, state: Mapping[str, Any], record: EpisodeRecord) -> list[Section]:
        """Return what the tests printed, a line for each."""
        pairs = zip(state["agent"]["printed"], state["gold"]["printed"], strict=True)
        lines = [["=" if agent == gold else "!", str(agent), gold] for agent, gold in pairs]
        head = ["agent", "gold"]
        equal = all(line[0] == "=" for line in lines)
        return [{"title": "Printed by Perl", "same": equal, "head": head, "lines": lines}]


class PerlEnvironment(InterpreterEnvironment):
    """Perl as it is: `my` variables, subs and modules last from action to action."""

    name = "perl"
    kind = PerlKind
    suite = _FOLDER / "perl.yaml"
    dockerfile = _FOLDER / "perl.Dockerfile"
    program = ("perl", "-e", (_FOLDER / "repl.pl").read_text())

    @staticmethod
    def compare(agent: Sequence[str | None], gold: Sequence[str]) -> Reward:
        """Return the share of tests that print what they print after gold."""
        share = sum(map(str.__eq__, map(str, agent), gold)) / len(gold)
        return Reward(share, {"tests": share}, "" if share == 1.0 else "other tests are right")
