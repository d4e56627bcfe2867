"""The human: plays episodes in the terminal, as a baseline for agents.

The plugin lends it the terminal (``AgentFactory.terminal``). prompt_toolkit, the line editor, is
imported when the agent is made.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

from pytest_intercode.agents.arguments import Argument, read_arguments
from pytest_intercode.agents.protocol import Agent, AgentFactory
from pytest_intercode.core.task import Task
from pytest_intercode.core.values import choice
from pytest_intercode.errors import AgentLoadError

__all__ = ["make_factory"]

_ARGUMENTS = (Argument("keys", choice("emacs", "vi")),)


def make_factory(name: str, rest: str, arguments: Mapping[str, str], folder: Path) -> AgentFactory:
    """Return the factory of players in the terminal.

    Raises:
        AgentLoadError: prompt_toolkit is missing, or an argument is wrong.
    """
    keys = read_arguments(name, arguments, _ARGUMENTS).get("keys")
    if importlib.util.find_spec("prompt_toolkit") is None:
        raise AgentLoadError(
            f"--intercode-agent={name} needs prompt_toolkit: pip install 'pytest-intercode[human]'"
        )

    def make(_: Task) -> Agent:
        from pytest_intercode.agents.human.player import Player

        player = Player(vi=keys == "vi")
        return Agent("loop", run=player.run, name="human", abort=player.abort)

    return AgentFactory(name, make, terminal=True)
