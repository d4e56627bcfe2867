"""The tau2 environment: an action is a call of one of a domain's tools; the customer is the user.

The agent has no access to the sandbox: its calls are data, which our program there passes to the
tools. The database, the domain's code and the customer's tools are behind that program. Grading
repeats the calls of both sides, which were recorded outside, in a fresh sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import FileSpec, Task
from pytest_intercode.core.turn import Observation, Profile
from pytest_intercode.environments.gold import Gold, GoldRun
from pytest_intercode.environments.inside_program import ForgedAnswers, Program
from pytest_intercode.environments.shell import ShellEnvironment
from pytest_intercode.environments.tau2.fields import Tau2Fields
from pytest_intercode.environments.tau2.inside.world import ROOT
from pytest_intercode.errors import SandboxBroken, SandboxError, TaskError
from pytest_intercode.rewards.tau2 import tau2_reward
from pytest_intercode.sandboxes.protocol import PYTHON_WORKER, Execution, Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.system.archives import pack_files
from pytest_intercode.system.files import bundled_folder

__all__ = ["Tau2Environment"]

_AGENT = "assistant"  # the dataset's name for the agent's side
_MAX_OUTPUT = 16 * 1024**2  # bytes of one answer
_START_TIMEOUT = 120.0  # seconds to read a domain's database on a busy machine
_MAX_ARGUMENTS = 100_000  # characters of one call's arguments
_MAX_DEPTH = 20  # of nested objects and lists in arguments
_MAX_WORLDS = 4  # packed domains that are kept


def _read_call(action: str) -> tuple[str, str, dict[str, Any]]:
    """Return the caller, the tool and the arguments that an action names.

    Raises:
        ValueError: it is not a call; the message says what is needed.
    """
    try:
        call = json.loads(action)
    except (ValueError, RecursionError):
        call = None
    form = 'an action is {"name": TOOL, "arguments": {...}}, in JSON'
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise ValueError(form)
    arguments = call.get("arguments", {})
    if not isinstance(arguments, dict) or call.keys() - {"name", "arguments", "requestor"}:
        raise ValueError(form)
    return str(call.get("requestor", _AGENT)), call["name"], arguments


def _find_excess(arguments: Mapping[str, Any]) -> str:
    """Return why arguments are too large to use twice, live and in grading; empty if not."""
    text = json.dumps(arguments)
    if len(text) > _MAX_ARGUMENTS:
        return f"the arguments have more than {_MAX_ARGUMENTS:,} characters"
    depth = 0
    parts: list[Any] = [arguments]
    while parts and depth <= _MAX_DEPTH:
        depth += 1
        containers = [part for part in parts if isinstance(part, (dict, list))]
        parts = [
            item
            for container in containers
            for item in (container.values() if isinstance(container, dict) else container)
        ]
    return f"the arguments are nested more than {_MAX_DEPTH} deep" if parts else ""


@lru_cache(maxsize=_MAX_WORLDS)
def _pack_world(world: tuple[tuple[str, Path], ...]) -> bytes:
    files = {
        f"{ROOT}/{name}": FileSpec("file", path.read_bytes(), mode=0o600) for name, path in world
    }
    return pack_files(files, "/", 0.0)


def _make_program(sandbox: Sandbox) -> Program:
    return Program(sandbox, "pytest_intercode.environments.tau2.inside", "models", "world")


def _request(
    program: Program, timeout: float, **values: Any
) -> tuple[Execution, Mapping[int, str]]:
    """Send a request, as JSON, because agents' values such as NaN are not Python literals."""
    return program.ask({"json": json.dumps(values)}, timeout)


class Tau2Environment(ShellEnvironment):
    """Tools on a company's database, and a customer who writes."""

    name = "tau2"
    profile: Profile = "strict"
    dockerfile = bundled_folder("dockerfiles") / "python.Dockerfile"
    takes_commands = False  # an interpreter reads the input of the sandbox

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._program: Program | None = None
        self._grader: Program | None = None
        self._user_functions: tuple[Mapping[str, Any], ...] = ()
        self._calls: list[dict[str, Any]] = []
        self._conversation: list[dict[str, str]] = []
        self._steps = self._errors = 0
        self._checks: dict[str, Any] = {}
        self._early_end = ""

    @classmethod
    def spec(cls, task: Task, provider: SandboxProvider) -> SandboxSpec:
        """Return the sandbox of the tools."""
        spec = super().spec(task, provider)
        limits = replace(spec.limits, output=_MAX_OUTPUT)
        return replace(spec, limits=limits, worker=PYTHON_WORKER)

    @classmethod
    def sandboxes(cls, task: Task, provider: SandboxProvider) -> list[SandboxSpec]:
        """Return the sandbox of the tools, and the sandbox that grades."""
        return [cls.spec(task, provider)] * 2

    # -- an episode

    def start(self, task: Task) -> None:
        """Start the tools on the task's database, and at the same time the sandbox that grades."""
        self._calls, self._conversation = [], []
        self._steps = self._errors = 0
        self._checks, self._early_end = {}, ""
        super().start(task)
        self._program = _make_program(self.sandbox)
        self._open_tools()

    def prepare(self, sandbox: Sandbox, task: Task) -> None:
        """Bring the domain's files into a fresh sandbox."""
        sandbox.unpack(_pack_world(tuple(Tau2Fields.of(task).world.items())))

    def _start_gold(self, task: Task) -> GoldRun:
        def play(sandbox: Sandbox) -> Gold:
            self.prepare(sandbox, task)
            self._grader = _make_program(sandbox)
            self._open_world(self._grader, [])
            return Gold(sandbox)

        return GoldRun(self.provider, self.spec(task, self.provider), play, "start")

    def _open_tools(self) -> None:
        """Open the tools and repeat the calls so far, in case their interpreter was lost."""
        assert self._program is not None
        functions = self._open_world(self._program, self._calls)
        self.functions, self._user_functions = map(tuple, functions)

    def _open_world(self, program: Program, calls: list[dict[str, Any]]) -> Any:
        """Make the task's world and play calls in it; return the tools of both sides."""
        fields = Tau2Fields.of(self.current_task)
        values = {"domain": fields.domain, "initial": fields.initial, "calls": calls}
        return self._ask(program, "open", **values)

    def _ask(self, program: Program, what: str, **values: Any) -> Any:
        """Ask our program for a world, or for a grading.

        Raises:
            TaskError: it does not answer, because the domain's files are not as expected.
            SandboxBroken: it does not answer, and the request has calls to repeat.
        """
        execution, answers = _request(program, _START_TIMEOUT, do=what, **values)
        if 0 not in answers and values["calls"]:
            raise SandboxBroken(f"its calls cannot be made again ({execution.ended})")
        if 0 not in answers:
            output = " ".join(execution.output.decode("utf-8", "replace").split())[-300:]
            raise TaskError(
                f"{self.current_task.source}: task {self.current_task.id!r}: its domain's files "
                f"cannot be used ({execution.ended}): {output}"
            )
        return json.loads(answers[0])

    # -- actions

    def execute(self, action: str) -> Observation:
        """Call a tool for the agent."""
        try:
            requestor, name, arguments = _read_call(action)
        except ValueError as error:
            return Observation(f"[not run: {error}]\n", executed=False)
        if self.has_user:  # without a user, gold and records play both sides
            requestor = _AGENT
        text, failed = self._call(requestor, name, arguments)
        return Observation(text, executed=not failed, status=int(failed))

    def _call_for_user(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool for the user, between two messages.

        Raises:
            BudgetExhausted: the conversation has used all its steps.
        """
        text, _ = self._call("user", name, dict(arguments))
        self.episode.check_open("nobody answers")
        return text

    def _call(self, requestor: str, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Call a tool and count the call; return the result's text, and whether it failed."""
        if excess := _find_excess(arguments):
            text, failed = f"Error: {excess}", True
        else:
            text, failed = self._ask_tool(requestor, name, arguments)
        self._errors += failed
        self._count_steps(2)
        return text, failed

    def _ask_tool(self, requestor: str, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Let our program call a tool; return the result's text, and whether it failed."""
        call = {"requestor": requestor, "name": name, "arguments": arguments}
        assert self._program is not None
        self._calls.append(call)
        try:
            _, answers = _request(self._program, self.action_timeout, do="call", **call)
        except ForgedAnswers as error:
            raise SandboxBroken("something else than the tools wrote answers") from error
        if 0 in answers:
            text, failed = json.loads(answers[0])
            return str(text), bool(failed)
        self._calls.pop()  # it is unknown how much of it was done
        self._open_tools()
        return f"Error: the tool gave no answer in {self.action_timeout:g} s", True

    # -- the conversation

    def answer(self, message: str) -> str | None:
        """Return the customer's reply; both messages are steps of the conversation."""
        conversation = self.current_task.conversation
        is_opening = not self._conversation and conversation and message == conversation.opening
        self._conversation.append({"agent": message})
        if not is_opening:
            self._count_steps(1)
        self.episode.check_open("nobody answers")
        if self.user is not None and self._user_functions:
            self.user.give_tools(self._user_functions, self._call_for_user)
        reply = super().answer(message)
        if reply is not None:
            self._conversation.append({"user": str(reply)})
            self._count_steps(1)
        return reply

    def _count_steps(self, count: int) -> None:
        """Count steps as the dataset's own program does; end the episode at a limit."""
        self._steps += count
        if self._find_limit():
            self.episode.end("budget")

    def _find_limit(self) -> str:
        """Return which limit of the conversation is reached; empty for none."""
        fields = Tau2Fields.of(self.current_task)
        if self._errors >= fields.max_errors:
            return f"{fields.max_errors} calls failed"
        if self._steps >= fields.max_steps:
            return f"{fields.max_steps} steps"
        return ""

    # -- grading

    def grade(self, answer: str | None) -> Reward:
        """Repeat the calls in a fresh sandbox, next to gold's, and compare."""
        task = self.current_task
        criteria = Tau2Fields.of(task).criteria
        sandbox = self._gold_result().sandbox
        try:
            assert self._grader is not None
            self._checks = self._ask(
                self._grader,
                "grade",
                calls=self._calls,
                gold=criteria.get("actions") or [],
                assertions=criteria.get("env_assertions") or [],
            )
        except ForgedAnswers as error:
            raise SandboxError("the grading wrote what cannot be read") from error
        finally:
            sandbox.close()
            if self.episode.goes_on:
                self._gold = self._start_gold(task)  # for the next grading
        self._early_end = self._find_early_end()
        if answer:
            self._conversation.append({"agent": answer})
        return tau2_reward(self.end_state())

    def _find_early_end(self) -> str:
        """Return why the conversation was cut short; empty if one of the two sides ended it."""
        if limit := self._find_limit():
            return limit
        if self.over not in ("", "submitted", "solved"):
            return self.over
        if self.over != "submitted" and self.episode.remaining_turns <= 0:
            return f"{self.max_turns} turns"
        return ""

    def end_state(self) -> dict[str, Any]:
        """Return the calls, the conversation, and the results of grading, as builtins."""
        if self.task is None:
            return {}
        agent = {
            "calls": list(self._calls),
            "conversation": list(self._conversation),
            "premature": self._early_end,
        }
        criteria = dict(Tau2Fields.of(self.task).criteria)
        return {"agent": agent, "checks": dict(self._checks), "criteria": criteria}
