"""The python kind: one interpreter; hidden tests grade what is defined in it."""

from __future__ import annotations

import codeop
import re
import warnings
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task, TaskView
from pytest_intercode.environments.answer import Answer, quote_both
from pytest_intercode.environments.kind import EnvironmentKind, Tool
from pytest_intercode.environments.recorded import RecordedEpisode

if TYPE_CHECKING:
    from pytest_intercode.environments.sections import Section

__all__ = ["PythonKind"]

_PAPER_ONLY = (
    "the paper profile compares what each test does to the agent's function and to gold's, which a "
    "strict run does not record"
)
_STRICT_ONLY = (
    "the strict profile has hidden tests run in a fresh process, which a paper run does not do"
)


class PythonKind(EnvironmentKind):
    """Source code for one interpreter, graded by hidden tests."""

    name = "python"
    profiles = MappingProxyType(
        {
            "strict": "pytest_intercode.environments.python.strict:PythonEnvironment",
            "paper": "pytest_intercode.environments.python.paper:PaperPythonEnvironment",
        }
    )
    fields = "pytest_intercode.environments.python.fields:PythonFields"
    has_verification = False
    language = "Python"
    labels = ("python", "py", "python3", "ipython")
    suffix = ".py"
    example = "def double(x):\n    return 2 * x"
    graded = "The function or class that the task asks for is graded by hidden tests."
    submission = "NAME"
    answer = "the name of the function or class, or its source"
    answer_instruction = "The answer is the name of the function or class that solves the task."
    tool = Tool("python", "code", "Run source in the task's interpreter.")
    continuation = "an open bracket or block goes on; an empty line ends a block"
    indents = True
    idle_action = "pass"
    unrecorded = "what the tests gave"
    prompt = """\
You work in a Python interpreter that remembers all names from one action to the next. An action is
Python code.

What is graded is the function, class or program that the task asks for, by tests that you do not
see. Give it the name that the task uses, and let it return what is asked for instead of printing
it.
"""

    def describe_code(self, task: TaskView) -> str:
        """Describe an action, for models."""
        return (
            "Python source. One interpreter runs it all and remembers names; the value of the last "
            "expression is shown"
        )

    def check(self, task: Task) -> None:
        """Check the hidden tests."""
        from pytest_intercode.environments.python.hidden_tests import check_tests

        check_tests(task)

    def gold_answer(self, task: Task) -> Answer:
        """Return gold, and the name that its tests call."""
        from pytest_intercode.environments.python.hidden_tests import entry_of

        return Answer(tuple(task.gold), entry_of(task).partition(".")[0])

    def answer_in_words(self, words: str) -> str | None:
        """Return a single name; several words are prose."""
        return words.rstrip(".") if re.fullmatch(r"[^\W\d][\w.]*?\.?", words) else None

    def missing_input(self, text: str, engine: str) -> str:
        """Ask for the same input as Python's own prompt: an empty line ends a block."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compiled = codeop.compile_command(text, symbol="exec")
        except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
            return ""
        if compiled is None:
            return "the end of the statement"
        last = text.rpartition("\n")[2]
        if last.strip() and last[0] in " \t":
            return "an empty line, which ends the block"
        return ""

    def empty_answers(self, task: Task, state: Mapping[str, Any]) -> Iterator[Answer]:
        """Yield a body that does nothing."""
        from pytest_intercode.environments.python.mutations import empty_answer

        yield empty_answer(task)

    def wrong_answers(self, task: Task) -> Iterator[Answer]:
        """Yield constants, then gold with one operator or number changed."""
        from pytest_intercode.environments.python.mutations import change_gold, constants

        yield from constants(task)
        yield from change_gold(task)

    def data_of(self, task: Task) -> tuple[Any, ...]:
        """Return only the name, because tasks do not have data."""
        return (self.name,)

    def normalise_gold(self, task: Task) -> str:
        """Return gold's syntax tree, or its text if it does not parse."""
        import ast

        from pytest_intercode.environments.python.hidden_tests import parse_code

        tree = parse_code("\n".join(task.gold))
        return super().normalise_gold(task) if tree is None else ast.dump(tree)

    def describe_changed(self, first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
        """Quote both states if they differ."""
        return quote_both(first, second) if first != second else ""

    def score(self, episode: RecordedEpisode) -> Reward:
        """Count the passing tests again."""
        from pytest_intercode.rewards.python import (
            python_paper_reward_again,
            python_strict_reward,
        )

        strict = episode.profile == "strict"
        episode.check_same(_STRICT_ONLY if strict else _PAPER_ONLY)
        if strict:
            return python_strict_reward(episode.state["tests"])
        return python_paper_reward_again(episode.state)

    def end_state_sections(self, state: Mapping[str, Any], record: EpisodeRecord) -> list[Section]:
        """Return the tests and their results."""
        from pytest_intercode.environments.sections import compare_table

        if "tests" in state:
            lines = [
                ["!" if failure else "=", f"{number}", str(failure or "passed")]
                for number, failure in enumerate(state["tests"], 1)
            ]
            return [compare_table("Hidden tests", ["test", "what it did"], lines)]
        agent, gold = state["agent"], state["gold"]
        tests = [*agent, *(test for test in gold if test not in agent)]
        lines = [
            [
                "=" if test in agent and agent[test] == gold.get(test) else "!",
                test,
                str(agent.get(test, "")),
                str(gold.get(test, "")),
            ]
            for test in tests
        ]
        return [compare_table("Tests", ["test", "agent", "gold"], lines)]
