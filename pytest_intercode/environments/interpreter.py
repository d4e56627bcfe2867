"""The base of environments whose actions are source code for an interpreter that keeps its state.

An environment for another language derives from this one. It names the program, and defines how the
output of the hidden tests is compared with their output after gold; everything else is here.

The program is a child of the sandbox's shell, which sends actions to it. It reads them from
descriptor 4, each ended by a NUL byte; after each one it writes a line to descriptor 3, the status
(0 for success). Descriptor 0 is empty; 1 and 2 are for the agent's output. The program ends when 4
does. If it dies, or is killed because an action does not end, a new program without its state
replaces it, and the observation says so.
"""

from __future__ import annotations

import abc
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.environments.fields import CodeTest, InterpreterFields
from pytest_intercode.environments.gold import Gold, GoldRun
from pytest_intercode.environments.shell import NAMES_LOST, ShellEnvironment, text_of
from pytest_intercode.errors import ConfigurationError, GoldError, MissingProgram
from pytest_intercode.sandboxes.protocol import HOST, Execution, Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["InterpreterEnvironment"]

# The shell runs this before the first action. The program writes to the action's own output, which
# keeps the order and the limits; the output of a plain coprocess would go to the shell.
_START = (
    "exec {{__out}}>&1; "
    "coproc __program {{ exec {program} 3>&1 4<&0 </dev/null >&$__out 2>&1 {{__out}}>&-; }}; "
    "exec {{__out}}>&- {{__to}}>&${{__program[1]}} {{__from}}<&${{__program[0]}}; "
    "__pid=$__program_PID; "
)
# An earlier action started the program, so it is not killed together with one that does not end.
_END = 'kill -KILL "$__pid" 2>/dev/null; while [ -e "/proc/$__pid/fd/1" ]; do sleep 0.01; done'
# If the program dies, the shell exits with its status, which the channel reports.
_FEED = (
    "printf '%s\\0' {code} >&$__to; IFS= read -r __status <&$__from || "
    '{{ wait "$__pid"; exit "$?"; }} 2>/dev/null; __intercode_status "$__status"'
)


class _Interpreter:
    """The program in one sandbox, which is started with the first action."""

    def __init__(self, sandbox: Sandbox, program: Sequence[str]) -> None:
        self._sandbox = sandbox
        self._program = program
        self._start = _START.format(program=shlex.join(program))
        self._runs = False

    def is_installed(self) -> bool:
        """Whether the sandbox has the program."""
        status, _ = self._sandbox.admin(f"command -v -- {shlex.quote(self._program[0])}", 10.0)
        return status == 0

    def run(self, code: str, timeout: float) -> Execution:
        """Run one action in the program."""
        line = _FEED.format(code=shlex.quote(code))
        execution = self._sandbox.run(line if self._runs else self._start + line, timeout)
        self._runs = execution.ended == "itself" and not execution.restarted
        if not self._runs and execution.ended != "cancelled":
            self._sandbox.run(_END, timeout)  # and drop what the program printed until then
        return execution


class InterpreterEnvironment(ShellEnvironment):
    """An interpreter: it runs each action as source code, and keeps its state between actions.

    Gold is played in an interpreter of its own. Then the task's ``tests``, which are source code,
    too, run in both, and :meth:`compare` is given what each of them printed. For a task without
    tests, it is given what the last action printed, or what the agent submitted. The tests run in
    the interpreter that the agent used, so they should not leave anything behind.

    Attributes:
        program: the words of the command that starts the interpreter. The module's docstring
            describes the protocol that it has to follow.
    """

    fields = InterpreterFields
    program: Sequence[str] = ()
    _reader = "interpreter"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._interpreter: _Interpreter | None = None
        self._expected: list[str] = []
        self._printed: tuple[list[str | None], list[str]] | None = None

    @staticmethod
    @abc.abstractmethod
    def compare(agent: Sequence[str | None], gold: Sequence[str]) -> Reward:
        """Grade: a pure function of what the tests printed on both sides, in the tests' order.

        The agent's output is None for a test that did not end with status 0.
        """

    @classmethod
    def sandboxes(cls, task: Task, provider: SandboxProvider) -> list[SandboxSpec]:
        """Return two equal specs: the agent's and gold's."""
        return [cls.spec(task, provider)] * 2

    def end_state(self) -> dict[str, Any]:
        """Return what both sides printed."""
        if self._printed is None:
            return {}
        agents_texts, golds_texts = self._printed
        return {"agent": {"printed": agents_texts}, "gold": {"printed": golds_texts}}

    @classmethod
    def graded_again(cls, state: Mapping[str, Any]) -> Reward:
        """Compare the recorded output of both sides again."""
        return cls.compare(state["agent"]["printed"], state["gold"]["printed"])

    # -- an episode

    def start(self, task: Task) -> None:
        """Start the agent's sandbox, and play gold in another at the same time."""
        self._printed = None
        _tests(task)  # report a mistake in them before anything is started
        self._expected = []
        super().start(task)
        self._interpreter = _Interpreter(self.sandbox, self.program)

    def _start_gold(self, task: Task) -> GoldRun:
        expected = self._expected

        def play(sandbox: Sandbox) -> Gold:
            self.prepare(sandbox, task)
            expected.extend(self._play_gold(_Interpreter(sandbox, self.program), task))
            return Gold(sandbox)

        return GoldRun(self.provider, self.spec(task, self.provider), play)

    def _play_gold(self, interpreter: _Interpreter, task: Task) -> list[str]:
        """Return what the tests print after gold, or what gold prints if there are no tests."""
        prefix = f"{task.source}: task {task.id!r}"
        tests, printed = _tests(task), []
        for code in (*task.gold, *tests):
            execution = interpreter.run(code, self.action_timeout)
            on_this_machine = self.spec(task, self.provider).image == HOST
            if execution.status != 0 and on_this_machine and not interpreter.is_installed():
                raise MissingProgram(
                    f"{prefix}: this machine lacks {self.program[0]}; install it, or give "
                    "--intercode-rootfs"
                )
            if execution.status != 0:
                raise GoldError(
                    f"{prefix}: gold, or a test after it, does not end well: {code[:100]!r} "
                    f"printed {text_of(execution)[-200:]!r}"
                )
            printed.append(text_of(execution))
        compared = printed[len(task.gold) :] if tests else printed[-1:]
        if not all(compared):
            problem = "a test prints nothing after gold" if tests else "gold prints nothing"
            raise GoldError(f"{prefix}: {problem}, so nothing can be compared")
        return compared

    def _run(self, action: str) -> Execution:
        assert self._interpreter is not None
        return self._interpreter.run(action, self.action_timeout)

    def _describe_state(self, execution: Execution) -> str:
        return NAMES_LOST

    def grade(self, answer: str | None) -> Reward:
        """Run the hidden tests and compare what they print with what they printed after gold."""
        self._gold_result()
        agents_texts: list[str | None] = [
            _printed(self._run(code)) for code in _tests(self.current_task)
        ]
        if not agents_texts:
            agents_texts = [_printed(self._last) if answer is None else answer]
        self._printed = agents_texts, self._expected
        return self.compare(agents_texts, self._expected)


def _tests(task: Task) -> list[str]:
    """Return the hidden tests.

    Raises:
        ConfigurationError: one of them is not source code.
    """
    tests = InterpreterFields.of(task).tests
    for test in tests:
        if not isinstance(test, CodeTest):
            raise ConfigurationError(
                f"{task.source}: task {task.id!r}: tests: a test of the env {task.env} is its "
                "source, a string"
            )
    return [test.code for test in tests if isinstance(test, CodeTest)]


def _printed(execution: Execution | None) -> str | None:
    if execution is None or execution.status != 0:
        return None
    return text_of(execution)
