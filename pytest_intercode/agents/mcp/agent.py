"""The agent ``mcp:CMDLINE``: one program per episode, to which MCP serves the environment.

The server is in this process. It is started for the first episode, and its calls are carried out
on the agent's thread.
"""

from __future__ import annotations

import importlib.metadata
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.arguments import Argument, find_folder, read_arguments
from pytest_intercode.agents.mcp import texts
from pytest_intercode.agents.mcp.calls import Call, Calls
from pytest_intercode.agents.mcp.client import ClientConfiguration, CommandLine
from pytest_intercode.agents.program.episode import ProgramEpisode, ProgramServices, episode_key
from pytest_intercode.agents.program.process import Program, describe_exit
from pytest_intercode.agents.protocol import Agent, AgentFactory, NeverActed
from pytest_intercode.agents.workspace import ARGUMENT
from pytest_intercode.core.task import Task, TaskView
from pytest_intercode.core.values import amount, text
from pytest_intercode.errors import AgentError, AgentLoadError, BudgetExhausted
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.system.extras import has_extra, need
from pytest_intercode.system.private_folder import PrivateFolder

if TYPE_CHECKING:
    from pytest_intercode.agents.mcp.server import Endpoint, McpServer

__all__ = ["make_factory"]

_GRACE_PERIOD = 5.0  # seconds that the program has to exit once the episode is over
_ARGUMENTS = (
    Argument("folder", text),
    Argument("template", text),
    Argument(ARGUMENT, text),
    Argument("grace", amount("a number of seconds from 0 up", zero=True)),
)


def make_factory(
    name: str,
    rest: str,
    arguments: Mapping[str, str],
    folder: Path,
    gateway: GatewaySettings | None = None,
) -> AgentFactory:
    """Return the factory of agents that speak MCP.

    The arguments are ``folder``, to run the program in that folder; ``template``, to run it in a
    copy of that folder; ``workspace``, to run it in a copy of the task's directory; and ``grace``,
    the seconds that it has to exit after the episode.

    Raises:
        AgentLoadError: the command line or an argument is wrong, or the extra is missing.
    """
    _check_extra(name)
    command = CommandLine(name, rest, folder)
    values = read_arguments(name, arguments, _ARGUMENTS)
    working_folder = find_folder("folder", values.get("folder"), folder)
    template = find_folder("template", values.get("template"), folder)
    workspace = values.get(ARGUMENT)
    has_workspace = workspace not in (None, "no")
    if sum((working_folder is not None, template is not None, has_workspace)) > 1:
        raise AgentLoadError(
            "--intercode-agent-arg: the program runs in folder=..., in a copy of template=..., or "
            "in one of the task's directory (workspace=...)"
        )
    services = ProgramServices(name, gateway, workspace, folder)
    grace = values.get("grace", _GRACE_PERIOD)
    shared = _Shared()

    def make(task: Task) -> Agent:
        shared.start()
        episode = _Episode(
            services, episode_key(task), shared, command, folder, working_folder, template, grace
        )
        return Agent("loop", run=episode.run, close=episode.close, abort=episode.abort)

    closing = ExitStack()
    closing.callback(shared.close)
    closing.callback(services.close)  # runs first
    return AgentFactory(
        name,
        make,
        priced=services.priced,
        close=closing.close,
        uses_gateway=services.gateway is not None,
        continues=False,
    )


def _check_extra(name: str) -> None:
    option = f"--intercode-agent={name.partition(':')[0]}"
    if not has_extra("mcp"):
        raise AgentLoadError(need("mcp", option))
    try:
        version = importlib.metadata.version("mcp")
    except importlib.metadata.PackageNotFoundError:
        return
    if int(version.partition(".")[0]) < 2:
        label = f"version 2 of the MCP SDK, and {version} is installed"
        raise AgentLoadError(need("mcp", option, label))


class _Shared:
    """Services that the episodes of one pytest process share; the first episode starts them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: McpServer | None = None
        self._folder: PrivateFolder | None = None

    def start(self) -> McpServer:
        """Return the server; start it if necessary."""
        with self._lock:
            if self._server is None:
                from pytest_intercode.agents.mcp.server import McpServer

                self._server = McpServer()
            return self._server

    def make_folder(self) -> Path:
        """Return a new folder that only this user may open."""
        with self._lock:
            self._folder = self._folder or PrivateFolder()
            return self._folder.make()

    def close(self) -> None:
        """End the server, and remove the folders."""
        with self._lock:
            if self._server is not None:
                self._server.close()
            if self._folder is not None:
                self._folder.close()
            self._server = self._folder = None


@dataclass
class _Episode(ProgramEpisode):
    shared: _Shared
    command: CommandLine
    option_folder: Path
    working_folder: Path | None
    template: Path | None
    grace: float
    _calls: Calls = field(default_factory=Calls, init=False)
    _server: McpServer | None = field(default=None, init=False)
    _endpoint: Endpoint | None = field(default=None, init=False)
    _client: ClientConfiguration | None = field(default=None, init=False)
    _turns_left: int = field(default=0, init=False)
    _over: bool = field(default=False, init=False)
    _called: bool = field(default=False, init=False)
    _aborted_early: bool = field(default=False, init=False)

    def run(self, task: TaskView, env: AgentEnvironment) -> None:
        """Play the episode: start the program, and carry out its calls until it ends."""
        self._turns_left = task.max_turns
        with self.playing(task, env) as variables:
            program, endpoint = self._start(task, variables)
            self._serve(program, endpoint, env)

    def _serve(self, program: Program, endpoint: Endpoint, env: AgentEnvironment) -> None:
        deadline: float | None = None
        while True:
            call = self._calls.next(None if deadline is None else deadline - time.monotonic())
            if not isinstance(call, Call):
                break
            self._called = True
            if call.pending:
                env.log(program.output())
                self._carry_out(call, env)
            if self._over and deadline is None:
                deadline = time.monotonic() + self.grace
        env.log(program.output())
        if self.workspace is not None and call != "aborted":
            self.workspace.push_last()
        if not self._over and not self._aborted_early:
            self._check_end(program, endpoint, aborted=call == "aborted")

    def abort(self) -> None:
        """Kill the program; from any thread, at any moment."""
        program = self.program
        self._aborted_early |= program is None
        # Set the reason first. A killed program would otherwise end the calls like a program that
        # failed on its own, but a failure after the abort does not count.
        self._calls.end("aborted")
        if program is not None:
            program.kill()

    def close(self) -> None:
        """End the program and its endpoint, and remove its files; may be called twice."""
        self._calls.close(texts.OVER)
        super().close()
        if self._server is not None and self._endpoint is not None:
            self._server.shut(self._endpoint)
            self._endpoint = None
        if self._client is not None:
            self._client.remove()
            self._client = None

    def _start(
        self, task: TaskView, variables: Mapping[str, str | None]
    ) -> tuple[Program, Endpoint]:
        client = self._client = ClientConfiguration(
            self.shared.make_folder(),
            self.working_folder if self.workspace is None else self.workspace.folder,
            self.template,
        )
        server = self._server = self.shared.start()
        endpoint = self._endpoint = server.open(
            task, self._calls, lambda: self._turns_left, client.socket
        )
        sandbox = variables.get("INTERCODE_SANDBOX") or ""
        client.write(
            *(task, self.option_folder, endpoint.url, endpoint.token, sandbox),
            workspace=self.workspace is not None,
        )
        program = self.program = Program(
            self.command.fill(client.values),
            folder=client.folder,
            variables={**client.variables, **variables},
            pipes=False,
        )

        def wait() -> None:
            program.wait(None)
            self._calls.end("exited")

        threading.Thread(target=wait, name="intercode-mcp-wait", daemon=True).start()
        return program, endpoint

    def _carry_out(self, call: Call, env: AgentEnvironment) -> None:
        reply = texts.OVER
        try:
            if not self._over:
                if self.workspace is not None:
                    self.workspace.push()
                act = env.step if call.tool == "execute" else env.submit
                observation, _, terminated, truncated, _ = act(call.text)
                self._turns_left = observation.turns_left
                self._over = terminated or truncated
                if terminated and (_submits(call) or observation.reward != 1.0):
                    reply = texts.SUBMITTED
                else:
                    reply = texts.result(observation, over=self._over)
                if self.workspace is not None and not self._over:
                    self.workspace.pull()
        except BudgetExhausted:
            self._over = True
        finally:
            call.answer(reply)

    def _check_end(self, program: Program, endpoint: Endpoint, *, aborted: bool) -> None:
        """Refuse a program that failed, or did not connect or call a tool in its episode."""
        status = 0 if aborted else program.wait(0) or 0
        output = program.last_lines()
        last = f"; its last output: {output}" if output else ""
        if status:
            raise AgentError(f"the program {describe_exit(status)} before it submitted{last}")
        ending = "was stopped, as its time was up," if aborted else "ended"
        if not endpoint.connected:
            raise NeverActed(
                f"the program {ending} without connecting to the MCP server: is {{config}} or the "
                f"like in its command line?{last}"
            )
        if not self._called:
            progress = "asked for the list of tools" if endpoint.tools_listed else "connected"
            question = (
                "may it use execute and submit"
                if endpoint.tools_listed
                else "does it load its tools"
            )
            raise NeverActed(
                f"the program {ending} without calling a tool; it {progress} and did no more: "
                f"{question}, and does its model answer?{last}"
            )


def _submits(call: Call) -> bool:
    return call.tool == "submit" or call.text.split()[:1] == ["submit"]
