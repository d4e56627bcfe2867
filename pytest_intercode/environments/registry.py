"""Which class runs which environment under which profile."""

from __future__ import annotations

from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.bash import BashEnvironment
from pytest_intercode.environments.bash_paper import PaperBashEnvironment
from pytest_intercode.environments.ctf import CtfEnvironment
from pytest_intercode.environments.ctf_paper import PaperCtfEnvironment
from pytest_intercode.environments.python import PythonEnvironment
from pytest_intercode.environments.python_paper import PaperPythonEnvironment
from pytest_intercode.environments.sql import SqlEnvironment
from pytest_intercode.environments.sql_paper import PaperSqlEnvironment
from pytest_intercode.errors import ConfigurationError, suggestion

__all__ = ["PROFILES", "environment_class"]

PROFILES = ("strict", "paper")

_CLASSES: dict[tuple[str, str], type[Environment]] = {
    ("bash", "strict"): BashEnvironment,
    ("bash", "paper"): PaperBashEnvironment,
    ("ctf", "strict"): CtfEnvironment,
    ("ctf", "paper"): PaperCtfEnvironment,
    ("python", "strict"): PythonEnvironment,
    ("python", "paper"): PaperPythonEnvironment,
    ("sql", "strict"): SqlEnvironment,
    ("sql", "paper"): PaperSqlEnvironment,
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
