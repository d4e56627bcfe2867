"""The agent ``acp:CMDLINE``: a program on this machine that speaks the Agent Client Protocol.

It is started for each episode. The files and terminals that it requests from its client are those
of the sandbox; what it does without its client happens on this machine, as with ``command:``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pytest_intercode.agents.acp.connection import AgentRefused, ConnectionLost
from pytest_intercode.agents.acp.conversation import PERMISSIONS, Conversation, SessionSettings
from pytest_intercode.agents.acp.sandbox_services import CAPABILITIES, SandboxServices
from pytest_intercode.agents.acp.updates import Updates
from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.arguments import Argument, read_arguments
from pytest_intercode.agents.program.episode import ProgramEpisode, ProgramServices, episode_key
from pytest_intercode.agents.program.messages import JsonLines
from pytest_intercode.agents.program.process import Program, describe_exit, read_command_line
from pytest_intercode.agents.program_task import ANSWER_FOLDER, describe_program_task, read_answer
from pytest_intercode.agents.protocol import Agent, AgentFactory, NeverActed
from pytest_intercode.agents.workspace import ARGUMENT
from pytest_intercode.core.task import Task, TaskView
from pytest_intercode.core.values import choice, text
from pytest_intercode.environments.registry import kind_of
from pytest_intercode.errors import AgentError, BudgetExhausted
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.system.private_folder import PrivateFolder

__all__ = ["make_factory"]

_EXIT_TIMEOUT = 1.0  # seconds that a program has to exit after the end of its input
_HERE = "{here}"  # in the command line: the folder from which relative paths start
_ARGUMENTS = (
    Argument(ARGUMENT, text),
    Argument("permission", choice(*PERMISSIONS)),
    Argument("mode", text),
    Argument("auth", text),
)
_PROMISE = "on this machine, with files and terminals of the sandbox for what it asks of its client"
_WORKSPACE_ADVICE = (
    "The present folder is a copy of {workdir}: files that you edit here are changed there before "
    "each command of a terminal, and the other way round."
)

_WORKSPACE_HINT = (
    "the folder of a session is one of the sandbox; an agent that needs it on this machine gets a "
    "copy by --intercode-agent-arg workspace=yes"
)


def make_factory(
    name: str,
    rest: str,
    arguments: Mapping[str, str],
    folder: Path,
    gateway: GatewaySettings | None = None,
) -> AgentFactory:
    """Return the factory of agents that speak ACP.

    The arguments are ``permission``, ``mode`` and ``auth`` (:class:`SessionSettings`), and
    ``workspace`` to run the program in a copy of the task's directory.

    Raises:
        AgentLoadError: the command line or an argument is wrong.
    """
    words = read_command_line(name, rest, folder, {_HERE: str(folder)})
    values = read_arguments(name, arguments, _ARGUMENTS)
    services = ProgramServices(name, gateway, values.pop(ARGUMENT, None), folder)
    settings = SessionSettings(**values)
    private = PrivateFolder()

    def make(task: Task) -> Agent:
        episode = _Episode(services, episode_key(task), words, folder, private, settings)
        return Agent(
            "loop",
            run=episode.run,
            close=episode.close,
            abort=episode.abort,
            again=lambda: make(task),
            continues=True,
        )

    closing = ExitStack()
    closing.callback(private.close)
    closing.callback(services.close)  # runs first
    return AgentFactory(
        name,
        make,
        priced=services.priced,
        close=closing.close,
        scratch=(ANSWER_FOLDER,),
        needs_shell=True,
        uses_gateway=services.gateway is not None,
        continues=True,
        place=_PROMISE,
    )


@dataclass
class _Episode(ProgramEpisode):
    words: list[str]
    folder: Path
    private: PrivateFolder
    settings: SessionSettings

    def run(self, task: TaskView, env: AgentEnvironment) -> None:
        """Start the program, let it work on the task, and submit its answer."""
        with self.playing(task, env) as variables:
            env.log(f"[the agent runs {_PROMISE}]\n")
            workspace = self.workspace
            working_folder = self.private.make() if workspace is None else workspace.folder
            program = self.program = Program(
                self.words,
                folder=self.folder,
                cwd=working_folder,
                variables={"PWD": str(working_folder), **variables},
            )
            if self._aborted:
                return
            updates = Updates(env, take_turns=True)
            try:
                self._converse(program, task, env, updates)
            except AgentError:
                program.kill()  # it has violated the protocol, so do not wait for it
                raise
            finally:
                self._end(program, env)
            if not self._aborted:
                answer = self._answer(env, updates)
                env.think(updates.take_thought())
                env.submit(answer)

    def _converse(
        self, program: Program, task: TaskView, env: AgentEnvironment, updates: Updates
    ) -> None:
        def check() -> None:
            if env.over and not self._aborted:
                raise BudgetExhausted("the episode is over")

        lines = JsonLines(program, check)
        workspace = self.workspace
        conversation = Conversation(
            env,
            lines,
            updates,
            self.settings,
            capabilities=CAPABILITIES,
            handlers=SandboxServices(env, updates, workspace).handlers,
            spend=None if self.metered else env.spend,
        )
        prompt = describe_program_task(task, env.has_user)
        if workspace is not None and not kind_of(task.env).prompts_alone:
            prompt += f" {_WORKSPACE_ADVICE.format(workdir=task.workdir)}"
        try:
            folder = task.workdir if workspace is None else str(workspace.folder)
            conversation.open(folder, {})
            conversation.converse(prompt, self._hand_back(env))
        except AgentRefused as refusal:
            if refusal.method == "session/new" and workspace is None:
                raise AgentError(f"{refusal}; {_WORKSPACE_HINT}") from None
            raise
        except ConnectionLost as lost:
            self._explain(program, env, lost.method, greeted=conversation.greeted)
        except BudgetExhausted:
            lines.release()
            conversation.cancel()
            # When time is up, the episode is over before its program is stopped.
            if not conversation.greeted:
                program.wait(_EXIT_TIMEOUT)
                if self._aborted:
                    self._explain(program, env, "initialize", greeted=False)
            raise
        finally:
            lines.close()

    def _hand_back(self, env: AgentEnvironment) -> Callable[[str], str | None]:
        """Return a function that hands back to the user or the tests, which need the files."""
        workspace = self.workspace

        def ask(message: str) -> str | None:
            if workspace is not None:
                workspace.push()
            return env.ask(message)

        return ask

    def _explain(
        self, program: Program, env: AgentEnvironment, method: str, *, greeted: bool
    ) -> None:
        """Raise an error that says how the program ended before it answered.

        Args:
            program: the program.
            env: the episode.
            method: the method of the request that it did not answer.
            greeted: whether it has answered ``initialize`` before.

        Raises:
            AgentError: the program ended on its own, or never answered at all.
        """
        status = program.wait(_EXIT_TIMEOUT)
        env.log(program.output())
        output = program.last_lines()
        last = f"; its last output: {output}" if output else ""
        ending = "was stopped, as its time was up," if self._aborted else "ended"
        if not self._aborted and status is not None:
            ending = describe_exit(status)
        if not greeted:
            raise NeverActed(
                f"the program {ending} without an answer to initialize: does it speak ACP, and "
                f"need no further word for that, such as --acp?{last}"
            )
        if not self._aborted:
            raise AgentError(f"the program {ending} before it answered {method}{last}")

    def _end(self, program: Program, env: AgentEnvironment) -> None:
        """End the program, and copy in the last changes of its workspace."""
        if program.wait(_EXIT_TIMEOUT) is None:
            program.kill()
        env.log(program.output())
        if self.workspace is not None and not self._aborted:
            self.workspace.push_last()

    def _answer(self, env: AgentEnvironment, updates: Updates) -> str:
        """Return the answer to grade instead of the last output, which is a terminal's."""
        kind = kind_of(env.task.env)
        answer = read_answer(env)
        if answer is not None:
            return answer
        return updates.message if kind.needs_answer or kind.graded_by_test else ""
