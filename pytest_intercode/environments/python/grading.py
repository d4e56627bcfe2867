"""Grading of python: actions are played again, hidden tests run, and a judge compares.

Three sandboxes are involved, of which the agent itself acted only in the first:

- the agent's own sandbox is not trusted, and not used;
- a fresh sandbox plays all of the agent's actions again, and then evaluates what the tests call. It
  sees what the agent's code is given, but never what is expected;
- the judge's sandbox sees what is expected and the values, which are data, but never the agent's
  code.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from pytest_intercode.core.task import ImageSource, Limits, Task
from pytest_intercode.environments.fields import ProgramTest
from pytest_intercode.environments.inside_program import Program
from pytest_intercode.environments.python.hidden_tests import entry_of, split_tests
from pytest_intercode.environments.python.split import Split
from pytest_intercode.errors import SandboxBroken, SandboxError
from pytest_intercode.sandboxes.protocol import PYTHON_WORKER, Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.system.files import bundled_folder

__all__ = [
    "PACKAGE",
    "Judge",
    "Played",
    "Submission",
    "answers_of",
    "grading_spec",
    "play_again",
]

PACKAGE = "pytest_intercode.environments.python.inside"
"""The package of the programs that run in sandboxes."""

_MAX_OUTPUT = 64 * 1024**2  # bytes of answers
_MAX_JUDGED = 16 * 1024**2  # bytes of answers that the judge is given
_MAX_TESTS_TIMEOUT = 300.0  # seconds for all tests of a task
_GRACE_PERIOD = 10.0  # additional seconds, for starting and answering
_REPLAY_SLACK = 30.0  # seconds that a replay may take in addition to twice the first time

_LITERALS = {"inf": "1e999", "-inf": "-1e999", "nan": "(1e999-1e999)"}


@dataclass(frozen=True)
class Played:
    """An action that the agent took.

    Attributes:
        action: its text.
        seconds: how long it took.
        limit: the seconds after which it was cut short; None if it was not.
    """

    action: str
    seconds: float
    limit: float | None = None


@dataclass(frozen=True)
class Submission:
    """What is graded.

    Attributes:
        actions: the agent's actions, in order.
        name: the name of the submitted function or class; may be empty.
        program: the source of the submitted program.
    """

    actions: tuple[Played, ...]
    name: str = ""
    program: str = ""


def grading_spec(spec: SandboxSpec) -> SandboxSpec:
    """Return the spec of the sandbox that replays a session, given the session's own."""
    return replace(spec, limits=replace(spec.limits, output=_MAX_OUTPUT))


def play_again(sandbox: Sandbox, actions: Sequence[Played]) -> bool:
    """Play actions again in a fresh sandbox; return False if that took far too long.

    Actions that raised are played, too. An action that was cut short is cut at the same time again.
    """
    remaining = _REPLAY_SLACK + 2 * sum(played.seconds for played in actions)
    for played in actions:
        limit = _REPLAY_SLACK + 2 * played.seconds if played.limit is None else played.limit
        execution = sandbox.run(played.action, min(limit, remaining))
        remaining -= execution.seconds
        if remaining <= 0 or (execution.ended == "timeout" and played.limit is None):
            return False
    return True


def answers_of(
    sandbox: Sandbox, task: Task, submission: Submission, seconds: float
) -> dict[int, str] | None:
    """Return what the agent's side answers to each test; None if nothing was submitted.

    Args:
        sandbox: the sandbox in which the actions were played again.
        task: the task.
        submission: what is graded.
        seconds: the time for each test.

    Raises:
        ForgedAnswers: the sandbox wrote something that is not an answer of our program.
    """
    tests = [_candidates(test, submission.program) for test in split_tests(task)]
    request = {
        "entry": entry_of(task),
        "submitted": submission.name,
        "tests": tests,
        "seconds": seconds,
    }
    program = Program(sandbox, PACKAGE, "encoding", "one_by_one", "candidate")
    limit = min(_MAX_TESTS_TIMEOUT, seconds * len(tests)) + _GRACE_PERIOD
    _, answers = program.ask(request, limit)
    return None if -1 in answers else answers


def _candidates(test: Any, source: str) -> tuple[Any, ...]:
    """Return the part of a test that the agent's side may see."""
    if isinstance(test, Split):
        return "code", test.steps
    if isinstance(test, ProgramTest):
        return "program", source, test.input
    return "call", f"({''.join(_literal(value) + ', ' for value in test.arguments)})"


def _judges(test: Any) -> tuple[Any, ...]:
    if isinstance(test, Split):
        return "code", test.source, dict(test.raises)
    if isinstance(test, ProgramTest):
        return "program", test.output
    return "call", json.dumps(test.result)


def _literal(value: Any) -> str:
    """Write a JSON value as Python."""
    if isinstance(value, float):
        text = repr(value)
        return _LITERALS.get(text, text)
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_literal(k)}: {_literal(v)}' for k, v in value.items())}}}"
    return repr(value)


def _verdict(line: str) -> str:
    """Read a verdict, and escape it: it may contain the name of a class of the agent."""
    try:
        return re.sub(r"[^\w ,]", "?", str(json.loads(line)))[:80]
    except ValueError:
        return "failed"


class Judge:
    """Compares values with what tests expect. A process has one judge for all of its episodes.

    Its sandbox lives as long as the run. Each request is handled there in a fresh process, under
    another uid. Tests are code of a dataset, so they do not run on the host.

    Args:
        provider: where its sandbox comes from.
    """

    def __init__(self, provider: SandboxProvider) -> None:
        self._provider = provider
        self._lock = threading.Lock()
        self._program: Future[Program] = provider.background(self._start)

    def _start(self) -> Program:
        dockerfile = bundled_folder("dockerfiles") / "python.Dockerfile"
        image = self._provider.image(ImageSource(dockerfile=dockerfile))
        limits = Limits(output=_MAX_OUTPUT)
        spec = SandboxSpec(image, limits, hostname="judge", worker=PYTHON_WORKER)
        return Program(self._provider.acquire(spec), PACKAGE, "decoding", "one_by_one", "judge")

    def verdicts(self, task: Task, answers: dict[int, str], seconds: float) -> list[str]:
        """Return how each test failed; empty for a test that passed.

        Args:
            task: the task.
            answers: the answers of the agent's side.
            seconds: the time for each test.

        Raises:
            SandboxError: the judge's sandbox broke, twice.
        """
        tests, remaining = [], _MAX_JUDGED
        for number, test in enumerate(split_tests(task)):
            answer = answers.get(number, "")
            remaining -= len(answer)
            tests.append((_judges(test), answer if remaining >= 0 else '"too long"'))
        with self._lock:
            try:
                results = self._ask(tests, seconds)
            except SandboxError:
                self.close()
                self._program = self._provider.background(self._start)
                # The agent made the answers, so it is at fault if they take two judges too long.
                results = self._ask(tests, seconds, otherwise='"timed out"')
        return [_verdict(results[number]) for number in range(len(tests))]

    def _ask(self, tests: list[Any], seconds: float, otherwise: str = "") -> dict[int, str]:
        """Return the verdicts; ``otherwise`` is the verdict of tests for which time ran out."""
        program = self._program.result()
        limit = seconds * len(tests) + _GRACE_PERIOD
        try:
            execution, answers = program.ask({"tests": tests, "seconds": seconds}, limit)
        except SandboxBroken as broken:  # no agent acts there, so none is at fault
            raise SandboxError(str(broken)) from broken
        if execution.ended == "timeout" and otherwise:
            answers = {**dict.fromkeys(range(len(tests)), otherwise), **answers}
        if set(range(len(tests))) - answers.keys():
            raise SandboxError(f"the judge gave no verdict ({execution.ended})")
        return answers

    def close(self) -> None:
        """End its sandbox."""
        if not self._program.cancel() and self._program.exception() is None:
            self._program.result().sandbox.close()
