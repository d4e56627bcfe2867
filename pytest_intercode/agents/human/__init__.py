"""The human: plays episodes in the terminal, as a baseline for agents.

The plugin gives it the terminal (``AgentFactory.terminal``). prompt_toolkit, the line editor, is
imported only when the agent is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pytest_intercode.agents.arguments import Argument, read_arguments
from pytest_intercode.agents.protocol import Agent, AgentFactory
from pytest_intercode.core.task import Task
from pytest_intercode.core.values import choice
from pytest_intercode.errors import AgentLoadError
from pytest_intercode.system.extras import has_extra, need

__all__ = ["make_factory"]

_ARGUMENTS = (Argument("keys", choice("emacs", "vi")),)


def make_factory(name: str, rest: str, arguments: Mapping[str, str], folder: Path) -> AgentFactory:
    """Return the factory of players in the terminal.

    Raises:
        AgentLoadError: prompt_toolkit is missing, or an argument is wrong.
    """
    keys = read_arguments(name, arguments, _ARGUMENTS).get("keys")
    if not has_extra("human"):
        raise AgentLoadError(need("human", f"--intercode-agent={name}"))

    def make(_: Task) -> Agent:
        from pytest_intercode.agents.human.player import Player

        player = Player(vi=keys == "vi")
        return Agent("loop", run=player.run, name="human", abort=player.abort)

    return AgentFactory(name, make, terminal=True, continues=False)
