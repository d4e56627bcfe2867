"""The agent ``command:CMDLINE``: a program in any language that speaks JSON lines.

The program is started once per episode. It reads a line about its task, and then alternately writes
a line and reads one (docs/agents.md describes the protocol). It always ends with its episode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.ledger import log
from pytest_intercode.agents.program.episode import ProgramEpisode, ProgramServices, episode_key
from pytest_intercode.agents.program.messages import JsonLines, parse
from pytest_intercode.agents.program.process import Program, describe_exit, read_command_line
from pytest_intercode.agents.protocol import Agent, AgentFactory
from pytest_intercode.agents.workspace import ARGUMENT
from pytest_intercode.core.servers import TRANSPORTS
from pytest_intercode.core.task import Task, TaskView
from pytest_intercode.core.text import replace_surrogates
from pytest_intercode.errors import AgentError, BudgetExhausted
from pytest_intercode.gateway.settings import GatewaySettings

__all__ = ["VERSION", "make_factory"]

VERSION = 1
"""The protocol's version; it increases with every incompatible change."""

_RARE = ("mcp", "skills")  # keys that are empty for most tasks
_EXIT_TIMEOUT = 2.0  # seconds that a program has to exit after the end of the episode


def make_factory(
    name: str,
    rest: str,
    arguments: Mapping[str, str],
    folder: Path,
    gateway: GatewaySettings | None = None,
) -> AgentFactory:
    """Return a factory whose agents each run a program once.

    Raises:
        AgentLoadError: the command line cannot be parsed, or does not name a program.
    """
    words = read_command_line(name, rest, folder)
    program_arguments = dict(arguments)
    services = ProgramServices(name, gateway, program_arguments.pop(ARGUMENT, None), folder)

    def make(task: Task) -> Agent:
        episode = _Episode(services, episode_key(task), words, program_arguments, folder)
        return Agent(
            "loop",
            run=episode.run,
            close=episode.close,
            abort=episode.abort,
            again=lambda: make(task),
            transports=TRANSPORTS,
        )

    return AgentFactory(
        name,
        make,
        priced=services.priced,
        close=services.close,
        uses_gateway=services.gateway is not None,
        continues=False,
    )


@dataclass
class _Episode(ProgramEpisode):
    words: list[str]
    arguments: Mapping[str, str]
    folder: Path

    def run(self, task: TaskView, env: AgentEnvironment) -> None:
        """Start the program and carry out its messages until the episode is over."""
        with self.playing(task, env) as variables:
            program = self.program = Program(
                self.words,
                folder=self.folder,
                cwd=self.workspace.folder if self.workspace is not None else None,
                # Without the first, Python's print() would buffer lines.
                variables={"PYTHONUNBUFFERED": "1", **variables},
            )
            try:
                if not self._aborted:
                    self._play(program, task, env)
            finally:
                env.log(program.output())
                if self._aborted:  # possibly before self.program was set
                    program.close()

    def _play(self, program: Program, task: TaskView, env: AgentEnvironment) -> None:
        lines = JsonLines(program)
        facts = {
            key: replace_surrogates(value) if isinstance(value, str) else value
            for key, value in asdict(task).items()
            if value or key not in _RARE  # most programs do not know these keys
        }
        lines.send({"type": "task", "version": VERSION, "task": facts, "arguments": self.arguments})
        reason = self._converse(program, lines, env)
        if self.workspace is not None and not self._aborted:
            self.workspace.push_last()
        if reason:
            self._say_end(program, lines, env, reason)
        elif not self._aborted:
            self._check_exit(program, env)
        elif not lines.received:
            env.log("[the program wrote no line; does it flush its standard output?]\n")

    def close(self) -> None:
        """End the program and everything that it started."""
        super().close()
        if self.program is not None and self.program.survivors:
            log(f"[{self.program.survivors} of its processes could not be killed]\n")

    def _converse(
        self, program: Program, lines: JsonLines, env: AgentEnvironment
    ) -> Literal["", "budget", "solved", "submitted"]:
        """Return why the episode is over; empty if the program ended first."""
        workspace = self.workspace
        while (line := lines.receive()) is not None:
            message = parse(line, lines.received)
            env.log(program.output())
            try:
                if message.get("thought"):
                    env.think(message["thought"])
                if message.get("usage") and not self.metered:
                    env.spend(**message["usage"])
                if workspace is not None:
                    workspace.push()
                if "submit" in message:
                    result = env.submit(message["submit"])
                else:
                    result = env.step(message["action"])
                observation, _, terminated, truncated, _ = result
                if workspace is not None and not (terminated or truncated):
                    workspace.pull()
            except BudgetExhausted:
                return "budget"
            if truncated:
                return "budget"
            if terminated:
                solved = observation.reward == 1.0 and not _submits(message)
                return "solved" if solved else "submitted"
            lines.send(
                {
                    "type": "observation",
                    "observation": replace_surrogates(observation),
                    "executed": observation.executed,
                    "status": observation.status,
                    "reward": observation.reward,
                    "turns_left": observation.turns_left,
                }
            )
        return ""

    def _say_end(
        self, program: Program, lines: JsonLines, env: AgentEnvironment, reason: str
    ) -> None:
        """Tell the program that the episode is over, and give it time to exit."""
        lines.send({"type": "end", "reason": reason})
        lines.close()
        status = program.wait(_EXIT_TIMEOUT)
        if status is None:
            program.kill()
            env.log(f"[killed: it still ran {_EXIT_TIMEOUT:g} s after the end of its input]\n")
        elif status and not self._aborted:
            env.log(f"[it {describe_exit(status)} after the episode]\n")

    def _check_exit(self, program: Program, env: AgentEnvironment) -> None:
        """Accept status 0 as a submission; any other end is the program's fault."""
        status = program.wait(_EXIT_TIMEOUT)
        if status == 0 or self._aborted:
            return
        env.log(program.output())
        if status is None:
            raise AgentError(
                "the program closed its standard output, and neither submitted nor exited"
            )
        last = program.last_lines()
        raise AgentError(f"the program {describe_exit(status)}{f': {last}' if last else ''}")


def _submits(message: Mapping[str, Any]) -> bool:
    return "submit" in message or message["action"].split(None, 1)[:1] == ["submit"]
