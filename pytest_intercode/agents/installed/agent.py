"""The agent ``installed:RECIPE``: a program that runs in the task's sandbox, with its own tools.

It has its bundle (read-only) and a home in memory, which is not graded. It reaches models only
through the gateway: a port of the sandbox leads to our Unix socket. A forwarder in the sandbox does
that, or the sandbox itself if it does not share a folder with us. The agent's turns are read from
its exchanges with the gateway.
"""

from __future__ import annotations

import posixpath
import secrets
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_intercode.agents.agent_environment import (
    AgentEnvironment,
    exhaust,
    forward_port,
    show_pending,
)
from pytest_intercode.agents.arguments import Argument, find_folder, read_arguments
from pytest_intercode.agents.installed.acp import AcpStreams
from pytest_intercode.agents.installed.bundle import BUNDLE_FOLDER, find_bundle, find_program
from pytest_intercode.agents.installed.recipe import MODEL, Recipe, fill, load_recipe
from pytest_intercode.agents.installed.script import (
    CANNOT_RUN,
    GATEWAY_FOLDER,
    SCRIPT_FILE,
    START,
    Script,
)
from pytest_intercode.agents.installed.services import InstalledServices
from pytest_intercode.agents.program.episode import episode_key
from pytest_intercode.agents.program.process import check_value
from pytest_intercode.agents.program_task import (
    ANSWER_FILE,
    ANSWER_FOLDER,
    describe_program_task,
    read_answer,
)
from pytest_intercode.agents.protocol import Agent, AgentFactory
from pytest_intercode.core.platforms import Platform
from pytest_intercode.core.task import Task, TaskView
from pytest_intercode.core.values import text
from pytest_intercode.environments.registry import kind_of
from pytest_intercode.errors import (
    AgentError,
    AgentLoadError,
    BudgetExhausted,
    InfrastructureError,
)
from pytest_intercode.gateway.exchange import Exchange
from pytest_intercode.gateway.session import Session
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.gateway.trajectory import final_message, turns
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.system.digest import file_digest

__all__ = ["make_factory", "read_recipe"]

_PROGRAM_TIMEOUT = 7 * 86400.0  # seconds; in effect no limit, as the episode has its own
_PORTS, _ACP_PORTS = range(20_000, 40_000), range(40_000, 60_000)
_PLACE = "in the sandbox, and acts there by itself; what it says comes over ACP"
_TEMPLATE = "template"  # the argument that every recipe has
_MAX_MESSAGE_CHARACTERS = 400  # of the program's output in an error message


def make_factory(
    name: str,
    rest: str,
    arguments: Mapping[str, str],
    folder: Path,
    gateway: GatewaySettings | None = None,
    progress: Callable[[str], None] | None = None,
    sandbox: SandboxSettings | None = None,
) -> AgentFactory:
    """Return a factory whose agents each run an installed program once.

    Raises:
        AgentLoadError: the recipe, its program or an argument is wrong.
    """
    option = f"--intercode-agent={name}"
    short_name, recipe, recipe_folder, recipe_values, template = read_recipe(
        name, rest, arguments, folder
    )
    try:
        bundle, platform = find_bundle(
            *(short_name, recipe, recipe_folder, option),
            progress or _report,
            sandbox or SandboxSettings(),
        )
        program = find_program(bundle, recipe, option)
    except AgentLoadError as error:
        if gateway is not None and gateway.offline:
            return _missing_factory(name, error)
        raise
    shared = InstalledServices(gateway or GatewaySettings.of_environment(), option)

    def make(task: Task) -> Agent:
        fixed = {
            **recipe_values,
            "program": program,
            "bundle": BUNDLE_FOLDER,
            "home": ANSWER_FOLDER,
            "answer": ANSWER_FILE,
        }
        key = episode_key(task)
        episode = _Episode(shared, recipe, fixed, key, short_name, template, platform)
        return Agent(
            "loop",
            run=episode.run,
            close=episode.close,
            abort=episode.close,
            continues=recipe.continues,
            transports=recipe.transports,
        )

    return AgentFactory(
        name,
        make,
        priced=bool(shared.settings.prices),
        close=shared.close,
        readonly=((str(bundle), BUNDLE_FOLDER), (str(shared.folder), GATEWAY_FOLDER)),
        scratch=(ANSWER_FOLDER,),
        needs_shell=True,
        uses_gateway=True,
        continues=recipe.continues,
        version=_version(recipe, bundle / Path(program).relative_to(BUNDLE_FOLDER)),
        place=_PLACE if recipe.protocol else "",
        programs=frozenset((posixpath.basename(program), *_find_bare_name(recipe.command[0]))),
    )


def _missing_factory(name: str, error: AgentLoadError) -> AgentFactory:
    """Return the factory of an agent that is not installed; its records can still be replayed."""

    def make(task: Task) -> Agent:
        raise error

    return AgentFactory(name, make, needs_shell=True, uses_gateway=True)


def _version(recipe: Recipe, program: Path) -> str:
    """Return the packages that a program comes from; for one in a folder, a digest."""
    return " ".join((*recipe.npm, *recipe.python)) or f"sha256:{file_digest(program)[:16]}"


def read_recipe(
    name: str, rest: str, arguments: Mapping[str, str], folder: Path
) -> tuple[str, Recipe, Path, dict[str, str], Path | None]:
    """Read the recipe of an agent, and its arguments.

    Returns:
        The recipe's short name, the recipe, the folder that it is in, the values of its arguments,
        and the template folder, a copy of which each episode starts with.

    Raises:
        AgentLoadError: the recipe or an argument is wrong.
    """
    option = f"--intercode-agent={name}"
    short_name, recipe, recipe_folder = load_recipe(rest.strip() or name, folder, option)
    parameters = tuple(Argument(key, text) for key in (*recipe.arguments, _TEMPLATE))
    values = {**recipe.arguments, **read_arguments(name, arguments, parameters)}
    template = find_folder(_TEMPLATE, values.pop(_TEMPLATE, None), folder)
    missing = [key for key, value in values.items() if value is None]
    if missing:
        key = missing[0]
        raise AgentLoadError(
            f"{option}: no {key} is given: give --intercode-agent={name}:{key}=... or "
            f"--intercode-agent-arg {key}=..."
        )
    if values.get("model") == MODEL:
        raise AgentLoadError(f"{option}: {MODEL} is a placeholder; write the name of a model")
    recipe_values = {key: str(value) for key, value in values.items()}
    return short_name, recipe, recipe_folder, recipe_values, template


def _find_bare_name(word: str) -> list[str]:
    """Return the word of a command line if it names a program to be found on PATH."""
    return [] if "/" in word or "{" in word else [word]


def _report(line: str) -> None:
    print(f"intercode: {line}", file=sys.stderr, flush=True)


@dataclass
class _Episode:
    """One run of the program on one task."""

    shared: InstalledServices
    recipe: Recipe
    values: Mapping[str, str]
    key: str
    name: str
    template: Path | None
    platform: Platform | None  # the program is installed for it; None for a folder of the user's
    _session: Session | None = None
    _recorded: set[int] = field(default_factory=set)  # ids of exchanges whose turns are recorded
    _streams: AcpStreams | None = None
    _latest: list[Exchange] = field(default_factory=list)  # exchanges since the user's last reply

    def run(self, task: TaskView, env: AgentEnvironment) -> None:
        """Start the program in the sandbox, wait until it ends, and submit its answer.

        As long as the user replies to its last message, the program continues with the reply.
        """
        if not kind_of(task.env).has_shell:
            raise AgentError(
                f"an installed agent needs a shell, which the environment {task.env} has not: "
                "give an mcp: agent there"
            )
        session, socket = self.shared.open(self.key, env, task.max_turns)
        self._session = session
        show_pending(env, lambda: [turn.action for turn in turns(self._unrecorded(session))])
        port = secrets.choice(_PORTS)
        end_forwarding = forward_port(env, port, socket)
        status: int | None = 0
        output, fault = "", None
        try:
            forwards = {port: socket.name} if end_forwarding is None else {}
            values = self._values(task, env, session, port)
            files = {path: fill(content, values) for path, content in self.recipe.files.items()}
            if self.recipe.protocol:
                status, output = self._converse(task, env, session, values, files, forwards)
            else:
                status, output = self._run_alone(task, env, session, values, files, forwards)
        except AgentError as error:
            fault = error  # the gateway's errors take precedence, see _check
        finally:
            session.close()
            if session.exhausted and not env.over:  # another thread is about to record it
                exhaust(env, session.exhausted)
            if end_forwarding is not None:
                end_forwarding()
            self._record_turns(env, session)
            for line in session.refusals:
                env.log(f"[gateway: {line}]\n")
        self._check(status, output, session, env.over, fault)
        answer = self._answer(task, env, session)
        env.submit(answer)

    def close(self) -> None:
        """Refuse all further requests; from any thread, even twice."""
        if self._session is not None:
            self._session.close()
        if self._streams is not None:
            self._streams.shut()

    def _run_alone(
        self,
        task: TaskView,
        env: AgentEnvironment,
        session: Session,
        values: dict[str, str],
        files: Mapping[str, str],
        forwards: Mapping[int, str],
    ) -> tuple[int | None, str]:
        """Run a program that exits after its last message; run it again for each user reply."""
        script = self._script(self.recipe.command, task, session, values, forwards).alone()
        self._put_files(env, {**files, SCRIPT_FILE: script}, self.template)
        status, output = env.exec(START, timeout=_PROGRAM_TIMEOUT)
        while status == 0 and (reply := self._ask(env, session)) is not None:
            values["reply"] = check_value("reply", reply)
            script = self._script(self.recipe.resume, task, session, values, forwards).alone()
            self._put_files(env, {SCRIPT_FILE: script})
            status, output = env.exec(START, timeout=_PROGRAM_TIMEOUT)
        return status, output

    def _converse(
        self,
        task: TaskView,
        env: AgentEnvironment,
        session: Session,
        values: Mapping[str, str],
        files: Mapping[str, str],
        forwards: Mapping[int, str],
    ) -> tuple[int | None, str]:
        """Run a program that speaks ACP."""
        settings = self.recipe.session.settings(values)
        path, port = self.shared.new_socket(), secrets.choice(_ACP_PORTS)
        self._streams = streams = AcpStreams(path)
        try:
            end_forwarding = forward_port(env, port, path)
            if end_forwarding is None:
                forwards = {**forwards, port: path.name}
            try:
                words = self.recipe.command
                script = self._script(words, task, session, values, forwards).connected(port)
                self._put_files(env, {**files, SCRIPT_FILE: script}, self.template)
                return streams.converse(
                    *(env, settings, task.workdir, task.mcp, values["prompt"]),
                    ask=lambda message: self._ask(env, session, message),
                )
            finally:
                if end_forwarding is not None:
                    end_forwarding()
        finally:
            streams.close()

    def _ask(self, env: AgentEnvironment, session: Session, message: str = "") -> str | None:
        """Hand the program's last message to the user; return the reply, or None at the end.

        Args:
            env: the episode.
            session: the gateway's session; its last answer is the message if none is given.
            message: the message.
        """
        if not env.is_answered:
            return None
        self._record_turns(env, session)
        message = message or final_message(self._latest)
        if env.over or session.exhausted or session.failure or (env.has_user and not message):
            return None
        reply = env.ask(message)
        if reply is not None:
            self._latest = []
        return reply

    def _values(
        self, task: TaskView, env: AgentEnvironment, session: Session, port: int
    ) -> dict[str, str]:
        """Return the values of the placeholders.

        Args:
            task: the task.
            env: its episode.
            session: the gateway's session.
            port: the port of the sandbox that leads to the gateway.
        """
        return {
            **self.values,
            "query": check_value("query", task.query),
            "gateway": f"http://127.0.0.1:{port}",
            "token": session.token,
            "prompt": describe_program_task(task, env.has_user),
            "servers": self.recipe.mcp.render(task.mcp) if self.recipe.mcp is not None else "",
        }

    def _script(
        self,
        words: Sequence[str],
        task: TaskView,
        session: Session,
        values: Mapping[str, str],
        forwards: Mapping[int, str],
    ) -> Script:
        """Return the script that runs the program.

        Args:
            words: the command line, as in the recipe.
            task: the task.
            session: the gateway's session.
            values: the values of the placeholders.
            forwards: the socket's name, by the port that a forwarder connects to it.
        """
        has_skills = bool(task.skills and self.recipe.skills)
        variables = {"HOME": ANSWER_FOLDER, "TMPDIR": f"{ANSWER_FOLDER}/tmp"}
        variables |= session.variables(values["gateway"])
        variables |= {key: fill(value, values) for key, value in self.recipe.variables.items()}
        return Script(
            node=f"{BUNDLE_FOLDER}/node/bin:" if self.recipe.node else "",
            variables=variables,
            words=self.recipe.fill_words(words, task.mcp, values),
            platform=self.platform,
            forwards=forwards,
            skills=(task.skills, self.recipe.skills) if has_skills else None,
        )

    def _put_files(
        self, env: AgentEnvironment, files: Mapping[str, str], template: Path | None = None
    ) -> None:
        """Put files into the program's home.

        Args:
            env: the episode.
            files: the files' contents by their paths in the home.
            template: a folder whose content is put there as well.
        """
        staged = self.shared.make_folder()
        home = staged / "home"
        try:
            if template is not None:
                shutil.copytree(template, home, symlinks=True)
            for path, content in files.items():
                file = home / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.unlink(missing_ok=True)  # it may be a link from the template
                file.write_text(content, "utf-8")
            env.upload(home, ANSWER_FOLDER)
        finally:
            shutil.rmtree(staged)

    def _record_turns(self, env: AgentEnvironment, session: Session) -> None:
        """Record the turns that the program took since the last call."""
        new = self._unrecorded(session)
        self._recorded.update(map(id, new))
        self._latest += new
        for turn in turns(new):
            env.record_turn(
                turn.action,
                turn.observation,
                thought=turn.thought,
                usage=turn.usage,
                tool=turn.tool,
                status=turn.status,
                model_calls=turn.calls,
            )

    def _unrecorded(self, session: Session) -> list[Exchange]:
        """Return the exchanges whose turns are not recorded yet."""
        # A count would not suffice: a request that started earlier may have ended later.
        return [exchange for exchange in session.exchanges if id(exchange) not in self._recorded]

    def _check(
        self,
        status: int | None,
        output: str,
        session: Session,
        over: bool,
        fault: AgentError | None,
    ) -> None:
        """Check that the program ended properly.

        Raises:
            BudgetExhausted: its requests were refused, as a budget is used up.
            InfrastructureError: no model could be reached, which is not the program's fault, or
                the server returns no token ids.
            AgentError: the program failed, or did not ask a model.
        """
        if session.misconfiguration:
            raise InfrastructureError(session.misconfiguration)
        if session.failure:
            raise AgentError(session.failure)
        if outage := session.outage():
            raise InfrastructureError(f"no model could be reached: {outage}")
        if session.exhausted or over:
            raise BudgetExhausted(session.exhausted or "the episode is over")
        if fault is not None:
            raise fault
        last = " ".join(output.split())[-_MAX_MESSAGE_CHARACTERS:]
        if status == CANNOT_RUN:
            raise AgentError(f"{self.name} cannot run in this sandbox: {last}")
        refusals = "; ".join(session.refusals[:2])
        reason = f" ({refusals})" if refusals else ""
        if status != 0:
            ending = "was stopped" if status is None else f"exited with status {status}"
            raise AgentError(f"{self.name} {ending}{reason}; its last output: {last}")
        if not self._latest:
            raise AgentError(
                f"{self.name} ended without asking a model{reason}; its last output: {last}"
            )

    def _answer(self, task: TaskView, env: AgentEnvironment, session: Session) -> str:
        """Return the answer that is graded instead of the last output."""
        answer = read_answer(env)
        if answer is not None or not kind_of(task.env).reads_answer:
            return answer or ""
        message = self._streams.message if self._streams is not None else ""
        return message or final_message(session.exchanges)
