"""The common base for episodes of programs on this machine (``command:``, ``mcp:``, ``acp:``).

A program that calls models on its own may be sent through the gateway, which meters it, and it may
run in a copy of the task's directory. A :class:`ProgramServices` belongs to an agent, a
:class:`ProgramEpisode` to an episode.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.agents.agent_environment import (
    AgentEnvironment,
    keep_tokens,
    recording_of,
    sandbox_variables,
)
from pytest_intercode.agents.program.process import Program
from pytest_intercode.agents.workspace import Workspace, Workspaces
from pytest_intercode.core.task import Task, TaskView
from pytest_intercode.errors import (
    AgentError,
    AgentLoadError,
    BudgetExhausted,
    ConfigurationError,
    InfrastructureError,
)
from pytest_intercode.gateway.settings import GatewaySettings

if TYPE_CHECKING:
    from pytest_intercode.gateway.gateway import Gateway
    from pytest_intercode.gateway.session import Session

__all__ = ["ProgramEpisode", "ProgramServices", "episode_key"]


def episode_key(task: Task) -> str:
    """Return the key of an episode in recordings; it is the same in every run."""
    return "-".join((task.env, task.suite, task.id, str(task.repeat)))


class ProgramServices:
    """The gateway and the workspaces of an agent's episodes.

    Args:
        name: the agent, for messages.
        settings: the gateway's settings, which decide whether programs are sent through it.
        workspace: the value of the argument of this name; None if it is not given.
        folder: where a relative path starts.

    Attributes:
        workspaces: the workspaces.
        gateway: the gateway; None if nothing is metered.
        priced: whether money can be limited; None if nothing is metered.

    Raises:
        AgentLoadError: the gateway cannot be used, or there is no such folder for workspaces.
    """

    def __init__(
        self, name: str, settings: GatewaySettings | None, workspace: str | None, folder: Path
    ) -> None:
        self.workspaces = Workspaces(workspace, folder)
        self.gateway: Gateway | None = None
        self.priced: bool | None = None
        if settings is None or not settings.programs:
            return
        from pytest_intercode.gateway.gateway import Gateway

        try:
            self.gateway = Gateway(settings)
        except ConfigurationError as error:
            raise AgentLoadError(f"--intercode-agent={name}: {error}") from None
        self.priced = bool(settings.prices)

    def close(self) -> None:
        """End the gateway, and remove the workspaces."""
        try:
            if self.gateway is not None:
                self.gateway.close()
        finally:
            self.workspaces.close()


@dataclass
class ProgramEpisode:
    """One run of a program on one task.

    Attributes:
        services: the agent's services.
        key: identifies the episode in recordings.
        workspace: the copy of the task's directory, if one is requested.
        program: the program, once it has been started.
    """

    services: ProgramServices
    key: str
    workspace: Workspace | None = field(default=None, init=False)
    program: Program | None = field(default=None, init=False)
    _session: Session | None = field(default=None, init=False)
    _aborted: bool = field(default=False, init=False)

    @property
    def metered(self) -> bool:
        """Whether the gateway counts usage; the program's own reports would then count twice."""
        return self.services.gateway is not None

    @contextlib.contextmanager
    def playing(self, task: TaskView, env: AgentEnvironment) -> Iterator[dict[str, str | None]]:
        """Open the workspace and the gateway's session while the program plays.

        Yields:
            Environment variables for the program; the value None removes a variable.

        Raises:
            AgentError: the task has no directory to copy, or a cost is not known although money is
                limited.
            BudgetExhausted: a budget was used up; this replaces the program's own error.
            ConfigurationError: the gateway cannot listen, or its recording cannot be used.
            InfrastructureError: the program has failed and no model could be reached, or the
                server returns no token ids although they are requested.
        """
        self.workspace = self.services.workspaces.open(task, env)
        variables: dict[str, str | None] = {**sandbox_variables(env)}
        if self.workspace is not None:
            variables |= self.workspace.variables
        if self.services.gateway is not None:
            session = self._session = self.services.gateway.open(
                self.key,
                spend=env.spend,
                recording=recording_of(env),
                keep=partial(keep_tokens, env),
            )
            variables |= {**session.hidden(os.environ), **session.variables()}
        try:
            yield variables
        except AgentError:
            self._check_outage()
            raise
        finally:
            self._report(env)

    def abort(self) -> None:
        """Kill the program, from any thread."""
        self._aborted = True
        if self.program is not None:
            self.program.kill()

    def close(self) -> None:
        """End the program, and remove its workspace; may be called twice."""
        if self.program is not None:
            self.program.close()
        if self._session is not None:
            self._session.close()
        if self.workspace is not None:
            self.workspace.close()

    def _check_outage(self) -> None:
        """Check that a model could be reached; if not, the failure is not the program's fault."""
        session = self._session
        if session is None or session.failure:
            return
        session.close()
        if outage := session.outage():
            raise InfrastructureError(f"no model could be reached: {outage}")

    def _report(self, env: AgentEnvironment) -> None:
        """Log the gateway's refusals, and raise the gateway's error if it has one."""
        session = self._session
        if session is None:
            return
        for line in session.refusals:
            env.log(f"[gateway: {line}]\n")
        if session.misconfiguration:
            raise InfrastructureError(session.misconfiguration)
        if session.failure:
            raise AgentError(session.failure)
        if session.exhausted:
            raise BudgetExhausted(session.exhausted)
