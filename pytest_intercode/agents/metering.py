"""Programs that reach models by themselves, led through a gateway: their variables, their ledger.

For agents whose program runs on this machine (``command:``, ``mcp:``). One :class:`GatewayMeter`
belongs to a factory, one :class:`EpisodeMeter` to an episode.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.core.task import Task
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

__all__ = ["EpisodeMeter", "GatewayMeter", "episode_key"]


def episode_key(task: Task) -> str:
    """Return what names an episode in recordings: the same in every run."""
    return "-".join((task.env, task.suite, task.id, str(task.repeat)))


class GatewayMeter:
    """The gateway of a factory's episodes; without one, nothing is metered.

    Args:
        name: the agent, for messages.
        settings: the gateway's; programs are led through it where they say so.

    Attributes:
        priced: whether money can be limited; None where nothing is metered.

    Raises:
        AgentLoadError: the gateway cannot be used.
    """

    def __init__(self, name: str, settings: GatewaySettings | None) -> None:
        self._gateway: Gateway | None = None
        self.priced: bool | None = None
        if settings is None or not settings.programs:
            return
        from pytest_intercode.gateway.gateway import Gateway

        try:
            self._gateway = Gateway(settings)
        except ConfigurationError as error:
            raise AgentLoadError(f"--intercode-agent={name}: {error}") from None
        self.priced = bool(settings.prices)

    def open(self, task: Task) -> EpisodeMeter:
        """Return the meter of an episode."""
        return EpisodeMeter(self._gateway, episode_key(task))

    def close(self) -> None:
        """End the gateway."""
        if self._gateway is not None:
            self._gateway.close()


class EpisodeMeter:
    """The meter of one episode.

    Args:
        gateway: the gateway; None for an episode that is not metered.
        key: names the episode in recordings.
    """

    def __init__(self, gateway: Gateway | None, key: str) -> None:
        self._gateway = gateway
        self._key = key
        self._session: Session | None = None

    @property
    def active(self) -> bool:
        """Whether the episode is metered: what its program itself reports then counts twice."""
        return self._gateway is not None

    def begin(self, env: AgentEnvironment) -> Mapping[str, str | None]:
        """Open the session; return the program's variables, None for those that it is not to have.

        Raises:
            ConfigurationError: the gateway cannot listen, or its recording cannot be used.
        """
        if self._gateway is None:
            return {}
        session = self._session = self._gateway.open(self._key, spend=env.spend)
        return {**session.hidden(os.environ), **session.variables()}

    def report(self, env: AgentEnvironment) -> None:
        """Log what was refused, and see that the tokens could be counted.

        Raises:
            AgentError: a cost is not known, though money is limited.
            BudgetExhausted: a budget was used up; it says more than the way the program took it.
        """
        session = self._session
        if session is None:
            return
        for line in session.refusals:
            env.log(f"[gateway: {line}]\n")
        if session.failure:
            raise AgentError(session.failure)
        if session.exhausted:
            raise BudgetExhausted(session.exhausted)

    def check_outage(self) -> None:
        """See that a model could be reached, when the program has failed.

        Raises:
            InfrastructureError: none could, which the program could not help.
        """
        session = self._session
        if session is None or session.failure:
            return
        session.close()
        if outage := session.outage():
            raise InfrastructureError(f"no model could be reached: {outage}")

    def close(self) -> None:
        """Refuse what is still asked; may be called twice."""
        if self._session is not None:
            self._session.close()
