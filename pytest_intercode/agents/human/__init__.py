"""The human: plays episodes in the terminal, as a baseline for agents.

Nothing here knows pytest: who runs an episode lends it the terminal (``AgentFactory.terminal``).
prompt_toolkit, which edits the lines, is imported when the agent is made.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

from pytest_intercode.agents.protocol import Agent, AgentFactory
from pytest_intercode.core.task import Task
from pytest_intercode.errors import AgentLoadError, suggestion

__all__ = ["make_factory"]

_KEYS = ("emacs", "vi")


def make_factory(name: str, rest: str, arguments: Mapping[str, str], folder: Path) -> AgentFactory:
    """Return the factory of players in the terminal.

    Args:
        name: the option's value.
        rest: what follows its colon; it has none.
        arguments: ``keys`` is ``emacs`` (the default) or ``vi``.
        folder: not used.

    Raises:
        AgentLoadError: prompt_toolkit is missing, or an argument is wrong.
    """
    given = dict(arguments)
    keys = given.pop("keys", _KEYS[0])
    for other in given:
        raise AgentLoadError(
            f"--intercode-agent-arg {other}=...: the agent human takes keys=emacs or keys=vi."
            + suggestion(other, ["keys"])
        )
    if keys not in _KEYS:
        raise AgentLoadError(
            f"--intercode-agent-arg keys={keys}: allowed are {', '.join(_KEYS)}."
            + suggestion(keys, _KEYS)
        )
    if importlib.util.find_spec("prompt_toolkit") is None:
        raise AgentLoadError(
            f"--intercode-agent={name} needs prompt_toolkit: pip install 'pytest-intercode[human]'"
        )

    def make(_: Task) -> Agent:
        from pytest_intercode.agents.human.player import Player

        player = Player(vi=keys == "vi")
        return Agent("loop", run=player.run, name="human", abort=player.abort)

    return AgentFactory(name, make, terminal=True)
