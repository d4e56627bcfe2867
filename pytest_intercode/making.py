"""``make``: an environment without pytest, for reinforcement learning and for trying things."""

from __future__ import annotations

import atexit
from typing import Any

from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.registry import environment_class
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["make"]

_shared: SandboxProvider | None = None


def make(
    env: str, *, profile: str = "strict", provider: SandboxProvider | None = None, **options: Any
) -> Environment:
    """Return an environment.

    ::

        env = pytest_intercode.make("bash")
        observation, info = env.reset(task=task)
        observation, reward, terminated, truncated, info = env.step("ls")
        env.close()

    Args:
        env: the environment's name.
        profile: ``strict`` or ``paper``.
        provider: where sandboxes come from; by default one for the process, ended with it.
        **options: ``feedback``, ``max_turns``, ``action_timeout`` of :class:`Environment`.

    Raises:
        ConfigurationError: there is no such environment or profile.
    """
    global _shared
    cls = environment_class(env, profile)
    if provider is None:
        if _shared is None:
            _shared = SandboxProvider()
            atexit.register(_shared.close)
        provider = _shared
    return cls(provider, **options)
