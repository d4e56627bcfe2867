"""Which class runs which environment under which profile."""

from __future__ import annotations

from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.bash import BashEnvironment
from pytest_intercode.environments.bash_paper import PaperBashEnvironment
from pytest_intercode.errors import ConfigurationError, suggestion

__all__ = ["PROFILES", "environment_class"]

PROFILES = ("strict", "paper")

_CLASSES: dict[tuple[str, str], type[Environment]] = {
    ("bash", "strict"): BashEnvironment,
    ("bash", "paper"): PaperBashEnvironment,
}


def environment_class(env: str, profile: str) -> type[Environment]:
    """Return the class for an environment and a profile.

    Raises:
        ConfigurationError: there is none.
    """
    found = _CLASSES.get((env, profile))
    if found is None:
        allowed = sorted({name for name, _ in _CLASSES})
        raise ConfigurationError(
            f"the environment {env!r} cannot be run with the profile {profile!r}. Environments "
            f"that can: {', '.join(allowed)}.{suggestion(env, allowed)}"
        )
    return found
