"""The Gymnasium interface: importing it registers ``InterCode/Bash-v0`` and the others.

::

    import gymnasium
    import pytest_intercode.gym

    env = gymnasium.make("InterCode/Bash-v0", dataset="nl2bash", profile="paper")

A process that has not imported this module, such as a spawned worker, can name it in the id:
``pytest_intercode.gym:InterCode/Bash-v0``.
"""

from __future__ import annotations

from pytest_intercode.system.extras import need

try:
    import gymnasium
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(need("gym", "pytest_intercode.gym"), name=error.name) from None

from pytest_intercode.environments.registry import watch_environments
from pytest_intercode.gym.environment import IntercodeEnv
from pytest_intercode.gym.text import UnicodeText

__all__ = ["IntercodeEnv", "UnicodeText"]


def _register(env: str) -> None:
    name = f"InterCode/{env.capitalize()}-v0"
    if name not in gymnasium.registry:
        gymnasium.register(
            name, entry_point="pytest_intercode.gym:IntercodeEnv", kwargs={"env": env}
        )


watch_environments(_register)  # our environments, and those that other packages add
