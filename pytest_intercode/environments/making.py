"""Makes environments without pytest, for reinforcement learning and for experiments."""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from pathlib import Path

from pytest_intercode.core.hosts import parse_host
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Feedback, Profile
from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.registry import environment_class
from pytest_intercode.environments.task_order import TaskOrder
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.suites.catalogue import (
    bundled_tasks,
    data_folder,
    file_tasks,
    named_tasks,
    online,
    reaching,
)

__all__ = ["make", "shared_provider"]

# By process id: a forked child must not use, and cannot end, the sandboxes of its parent.
_providers: dict[int, SandboxProvider] = {}


def make(
    env: str,
    *,
    suite: str | os.PathLike[str] | None = None,
    dataset: str | os.PathLike[str] | None = None,
    data: str | os.PathLike[str] | None = None,
    profile: Profile = "strict",
    feedback: Feedback = "observation",
    max_turns: int | None = None,
    action_timeout: float | None = None,
    network: bool | Sequence[str] = False,
    provider: SandboxProvider | None = None,
) -> Environment:
    """Return an environment, with the tasks that its ``reset`` chooses from.

    ::

        env = pytest_intercode.make("bash")
        observation, info = env.reset(seed=1)
        observation, reward, terminated, truncated, info = env.step("ls")
        env.close()

    Args:
        env: the environment's name.
        suite: a suite (``.yaml``) in place of the bundled one.
        dataset: a dataset in its place: a name such as ``nl2bash``, a part such as
            ``nl2bash-fs2``, or the path of a suite or of rows.
        data: a folder laid out as InterCode's ``data/``; by default INTERCODE_DATA, else what
            ``pytest-intercode fetch`` got.
        profile: ``strict`` or ``paper``.
        feedback: ``reward`` grades after every action, and ends the episode at 1.0.
        max_turns: actions in an episode; None for each task's own number.
        action_timeout: seconds for an action; None for each task's own number.
        network: let sandboxes reach the network, or some hosts of it, as
            ``--intercode-allow-host`` names them; without it, tasks that need it are left out.
        provider: where sandboxes come from; by default one for the process, ended with it.

    Raises:
        ConfigurationError: there is no such environment, profile, suite or dataset.
    """
    cls = environment_class(env, profile)
    if suite is not None and dataset is not None:
        raise ConfigurationError(f"make({env!r}): either suite or dataset, not both")
    reached = network if isinstance(network, bool) else _hosts(network, f"make({env!r})")
    order = TaskOrder(lambda: _runnable(_tasks(env, suite, dataset, data), reached), env)
    if suite is not None or dataset is not None:
        _ = order.tasks  # report a mistake in a name now; a bundled suite is read later
    made = cls(
        provider or shared_provider(),
        feedback=feedback,
        max_turns=max_turns,
        action_timeout=action_timeout,
    )
    made.tasks = order
    return made


def shared_provider() -> SandboxProvider:
    """Return the provider of this process; its sandboxes end with the process."""
    made = SandboxProvider()
    provider = _providers.setdefault(os.getpid(), made)
    if provider is made:
        atexit.register(made.close)
    return provider


def _tasks(
    env: str,
    suite: str | os.PathLike[str] | None,
    dataset: str | os.PathLike[str] | None,
    data: str | os.PathLike[str] | None,
) -> Sequence[Task]:
    if suite is not None:
        asked = f"make({env!r}, suite={os.fspath(suite)!r})"
        path = Path(suite).expanduser()
        if not path.is_file():
            here = "" if path.is_absolute() else f" in the working directory {Path.cwd()}"
            raise ConfigurationError(f"{asked}: there is no such file{here}")
        tasks = file_tasks(path, env)
    elif dataset is not None:
        name = os.fspath(dataset)
        asked = f"make({env!r}, dataset={name!r})"
        tasks = named_tasks(name, data_folder(data, "data"), asked, folder=Path(), env=env)
    else:
        return bundled_tasks(env, f"make({env!r})")
    chosen = [task for task in tasks if task.env == env]
    if not chosen:
        raise ConfigurationError(f"{asked}: its tasks are of the environment {tasks[0].env}")
    return chosen


def _hosts(written: Sequence[str], asked: str) -> tuple[str, ...]:
    try:
        return tuple(str(parse_host(each)) for each in written)
    except ValueError as error:
        raise ConfigurationError(f"{asked}: network: {error}") from None


def _runnable(tasks: Sequence[Task], network: bool | tuple[str, ...]) -> list[Task]:
    """Return the tasks that can be run here."""

    def obstacle(task: Task) -> str:
        offline = "network" in task.tags and not (network or task.limits.hosts)
        return task.skip or ("it needs the network: give network=True" if offline else "")

    runnable = [task for task in tasks if not obstacle(task)]
    if network:
        hosts = network if isinstance(network, tuple) else None
        runnable = [reaching(task, hosts) if hosts else online(task) for task in runnable]
    if not runnable:
        raise ConfigurationError(
            f"none of the {len(tasks)} tasks can be run here; {tasks[0].id}: {obstacle(tasks[0])}"
        )
    return runnable
