"""The agent ``mcp:CMDLINE``: a program per episode, with the environment served to it over MCP.

The program talks to a server in this process; its calls are carried out on the agent's thread,
where the environment may be used. The SDK is imported when the first agent is made.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_intercode.agents.arguments import Argument, read_arguments
from pytest_intercode.agents.mcp import wording
from pytest_intercode.agents.mcp.calls import Call, Calls, Event
from pytest_intercode.agents.mcp.command_line import CommandLine
from pytest_intercode.agents.mcp.configuration import Handover
from pytest_intercode.agents.program import Program, said_of_exit
from pytest_intercode.agents.protocol import Agent, AgentFactory
from pytest_intercode.core.task import Task, TaskView
from pytest_intercode.core.values import amount, text
from pytest_intercode.databases.private_folder import PrivateFolder
from pytest_intercode.errors import AgentError, AgentLoadError, BudgetExhausted

if TYPE_CHECKING:
    from pytest_intercode.agents.mcp.server import Door, Serving

__all__ = ["make_factory"]

_GRACE = 5.0  # seconds that the program has to end by itself once the episode is over
_LAST_LINES = 3  # of what it printed, in the reason of an error
_LONGEST = 400  # characters of them
_ARGUMENTS = (
    Argument("folder", text),
    Argument("grace", amount("a number of seconds from 0 up", zero=True)),
)
_EXITED = Event("the program has ended")
_ABORTED = Event("the run ends the episode")


def make_factory(name: str, rest: str, arguments: Mapping[str, str], folder: Path) -> AgentFactory:
    """Return the factory of agents that speak MCP.

    Args:
        name: the value of ``--intercode-agent``.
        rest: the command line in it.
        arguments: ``folder`` (where the program runs) and ``grace`` (seconds that it has to end
            by itself).
        folder: where relative paths start.

    Raises:
        AgentLoadError: the command line or an argument is wrong, or the extra is missing.
    """
    _check_extra(name)
    command = CommandLine(name, rest, folder)
    values = read_arguments(name, arguments, _ARGUMENTS)
    working = values.get("folder")
    if working is not None:
        working = (folder / Path(working).expanduser()).absolute()
        if not working.is_dir():
            raise AgentLoadError(f"--intercode-agent-arg folder=...: there is no folder {working}")
    grace = values.get("grace", _GRACE)
    host = _Host()

    def make(task: Task) -> Agent:
        host.start()
        episode = _Episode(host, command, folder, working, grace)
        return Agent("loop", run=episode.run, close=episode.close, abort=episode.abort)

    return AgentFactory(name, make, close=host.close)


def _check_extra(name: str) -> None:
    form = name.partition(":")[0]
    how = "pip install 'pytest-intercode[mcp]'"
    if importlib.util.find_spec("mcp") is None:
        raise AgentLoadError(f"--intercode-agent={form} needs the MCP SDK: {how}")
    try:
        version = importlib.metadata.version("mcp")
    except importlib.metadata.PackageNotFoundError:
        return
    if int(version.partition(".")[0]) < 2:
        raise AgentLoadError(
            f"--intercode-agent={form} needs version 2 of the MCP SDK, and {version} is installed: "
            f"{how}"
        )


class _Host:
    """What the episodes of one pytest process share; started by the first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._serving: Serving | None = None
        self._folder: PrivateFolder | None = None

    def start(self) -> Serving:
        """Return the server, which is then at work."""
        with self._lock:
            if self._serving is None:
                from pytest_intercode.agents.mcp.server import Serving

                self._serving = Serving()
            return self._serving

    def private(self) -> Path:
        """Return a new folder that nobody else may look into."""
        with self._lock:
            if self._folder is None:
                self._folder = PrivateFolder()
            return self._folder.make()

    def close(self) -> None:
        """End the server."""
        with self._lock:
            if self._serving is not None:
                self._serving.close()
                self._serving = None
            if self._folder is not None:
                self._folder.close()
                self._folder = None


class _Episode:
    """One program on one task."""

    def __init__(
        self, host: _Host, command: CommandLine, here: Path, working: Path | None, grace: float
    ) -> None:
        self._host = host
        self._command = command
        self._here = here
        self._working = working
        self._grace = grace
        self._calls = Calls()
        self._program: Program | None = None
        self._serving: Serving | None = None
        self._door: Door | None = None
        self._handover: Handover | None = None
        self._turns_left = 0
        self._over = False
        self._said = ""

    def run(self, task: TaskView, env: Any) -> None:
        """Play the episode: start the program, and carry out its calls until it ends."""
        self._turns_left = task.max_turns
        program, door = self._start(task)
        until: float | None = None
        while True:
            event = self._calls.next(None if until is None else until - time.monotonic())
            if not isinstance(event, Call):
                break
            if event.wanted:
                self._take(program, env)
                self._carry_out(event, env)
            if self._over and until is None:
                until = time.monotonic() + self._grace
        status = program.wait(0) if event is _EXITED else None
        self._take(program, env)
        if status is not None and not self._over:
            self._judge(status, door)

    def abort(self) -> None:
        """Kill the program; from any thread, at any moment."""
        program = self._program
        if program is not None:
            program.kill()
        self._calls.tell(_ABORTED)

    def close(self) -> None:
        """End the program and its server, and remove its files; may be called twice."""
        self._calls.close(wording.OVER)
        if self._program is not None:
            self._program.close()
        if self._serving is not None and self._door is not None:
            self._serving.shut(self._door)
            self._door = None
        if self._handover is not None:
            self._handover.remove()
            self._handover = None

    def _start(self, task: TaskView) -> tuple[Program, Door]:
        from pytest_intercode.agents.mcp.tools import make_server

        self._serving = serving = self._host.start()
        self._handover = handover = Handover(self._host.private(), self._working)
        server = make_server(task, self._calls, lambda: self._turns_left)
        self._door = door = serving.open(server, handover.socket)
        handover.write(task, self._here, door.url, door.token)
        self._program = program = Program(
            self._command.fill(handover.values),
            folder=handover.folder,
            variables=handover.variables,
            pipes=False,
        )
        threading.Thread(
            target=self._wait, args=(program,), name="intercode-mcp-wait", daemon=True
        ).start()
        return program, door

    def _wait(self, program: Program) -> None:
        program.wait(None)
        self._calls.tell(_EXITED)

    def _carry_out(self, call: Call, env: Any) -> None:
        reply = wording.OVER
        try:
            if not self._over:
                act = env.step if call.tool == "execute" else env.submit
                observation, _, terminated, truncated, _ = act(call.text)
                self._turns_left = observation.turns_left
                self._over = terminated or truncated
                said = {
                    "status": observation.status,
                    "executed": observation.executed,
                    "reward": observation.reward,
                    "turns_left": observation.turns_left,
                }
                if not self._over:
                    reply = wording.reply(observation, **said)
                elif terminated and (_submits(call) or observation.reward != 1.0):
                    reply = wording.submitted()
                else:
                    reply = wording.over(observation, **said)
        except BudgetExhausted:
            self._over = True
        finally:
            call.answer(reply)

    def _take(self, program: Program, env: Any) -> None:
        """Put what the program printed into the trajectory."""
        printed = program.stderr()
        if printed:
            self._said = (self._said + printed)[-4000:]
            env.log(printed)

    def _judge(self, status: int, door: Door) -> None:
        """Say what is wrong with a program that ended before the episode did.

        Raises:
            AgentError: something is.
        """
        last = _last(self._said)
        if status != 0:
            raise AgentError(f"the program {said_of_exit(status)} before it submitted{last}")
        if not door.used:
            raise AgentError(
                "the program ended without a word to the MCP server: is {config} or the like in "
                f"its command line?{last}"
            )


def _submits(call: Call) -> bool:
    return call.tool == "submit" or call.text.split()[:1] == ["submit"]


def _last(printed: str) -> str:
    lines = [" ".join(line.split()) for line in printed.splitlines() if line.strip()]
    last = " / ".join(lines[-_LAST_LINES:])
    return f"; its last words: {last[-_LONGEST:]}" if last else ""
