"""Creates environments without pytest, for reinforcement learning and for experiments."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import get_args

from pytest_intercode.core.permissions import Permissions
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Feedback, Profile
from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.registry import (
    PROFILES,
    environment_class,
    environment_names,
)
from pytest_intercode.environments.task_order import TaskOrder
from pytest_intercode.errors import ConfigurationError, suggestion
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.suites.arguments import ArgumentChecks
from pytest_intercode.suites.catalogue import (
    bundled_tasks,
    data_folder,
    dataset_names,
    dataset_of,
    file_tasks,
    named_tasks,
    suite_file,
    with_allowed_hosts,
    with_network,
)
from pytest_intercode.suites.formats import find_format

__all__ = ["make", "runnable", "runnable_of_endless", "shared_provider", "tasks_called"]

_MAX_REFUSED_IN_A_ROW = 10_000  # tasks of an endless list that cannot be run, before giving up

# By process id, because a forked child must not use, and cannot end, its parent's sandboxes.
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
    allow_path: Sequence[str | os.PathLike[str]] = (),
    pass_env: Sequence[str] = (),
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
        suite: a suite (``.yaml``) instead of the bundled one.
        dataset: a dataset instead of a suite: a name such as ``nl2bash``, a part such as
            ``nl2bash-fs2``, or the path of a suite or of rows.
        data: a folder with the layout of InterCode's ``data/``; by default INTERCODE_DATA, else
            the folder of ``pytest-intercode fetch``.
        profile: ``strict`` or ``paper``.
        feedback: ``reward`` grades after every action, and ends the episode at 1.0.
        max_turns: maximum actions in an episode; None for each task's own number.
        action_timeout: seconds for an action; None for each task's own number.
        network: True to let sandboxes reach the whole network, or a list of hosts, as for
            ``--intercode-allow-host``; without it, tasks that need the network are left out.
        allow_path: folders that the suite may read in addition to its own.
        pass_env: environment variables whose values its tasks may have.
        provider: the provider of sandboxes; by default one for the process, which ends with it.

    Raises:
        ConfigurationError: there is no such environment, profile, suite or dataset, or another
            argument is wrong.
    """
    checks = ArgumentChecks(f"make({env!r})")
    if not isinstance(env, str):
        raise ConfigurationError(f"{checks.request}: a name is needed, such as 'bash'")
    cls = environment_class(env, checks.choice("profile", profile, PROFILES) or "strict")
    suite, dataset, data = (
        checks.path(name, value)
        for name, value in (("suite", suite), ("dataset", dataset), ("data", data))
    )
    if suite is not None and dataset is not None:
        raise ConfigurationError(f"make({env!r}): give either suite or dataset, not both")
    permissions = checks.permissions(network, allow_path, pass_env)
    environment = cls(
        checks.provider(provider) or shared_provider(),
        feedback=checks.choice("feedback", feedback, get_args(Feedback)) or "observation",
        max_turns=checks.whole("max_turns", max_turns),
        action_timeout=checks.amount("action_timeout", action_timeout),
    )

    def listed() -> list[Task]:
        return runnable(_tasks(env, suite, dataset, data, permissions), permissions)

    order = TaskOrder(listed, env)
    if suite is not None or dataset is not None:
        _ = order.tasks  # report a mistake in a name now; a bundled suite is read later
    environment.tasks = order
    return environment


def shared_provider() -> SandboxProvider:
    """Return the provider of this process; its sandboxes end with the process."""
    new_provider = SandboxProvider()
    provider = _providers.setdefault(os.getpid(), new_provider)
    if provider is new_provider:
        atexit.register(new_provider.close)
    return provider


def _tasks(
    env: str,
    suite: str | os.PathLike[str] | None,
    dataset: str | os.PathLike[str] | None,
    data: str | os.PathLike[str] | None,
    permissions: Permissions,
) -> Sequence[Task]:
    if suite is not None:
        request = f"make({env!r}, suite={os.fspath(suite)!r})"
        path = Path(suite).expanduser()
        if not path.is_file():
            location = "" if path.is_absolute() else f" in the working directory {Path.cwd()}"
            raise ConfigurationError(f"{request}: there is no such file{location}")
        tasks = file_tasks(path, env, permissions)
    elif dataset is not None:
        name = os.fspath(dataset)
        request = f"make({env!r}, dataset={name!r})"
        folder = data_folder(data, "data")
        tasks = named_tasks(name, folder, request, folder=Path(), env=env, permissions=permissions)
    else:
        return bundled_tasks(env, f"make({env!r})")
    own_tasks = [task for task in tasks if task.env == env]
    if not own_tasks:
        raise ConfigurationError(f"{request}: its tasks are for the environment {tasks[0].env}")
    return own_tasks


def tasks_called(
    name: str, data: str | os.PathLike[str] | None, request: str, permissions: Permissions
) -> Sequence[Task]:
    """Return the tasks for a name: a bundled suite, a dataset or a part of it, or a path.

    Args:
        name: the name; an environment's name means its bundled suite.
        data: as for :func:`make`.
        request: how the user asked for it, for messages.
        permissions: the permissions of its tasks on this machine.

    Raises:
        ConfigurationError: there is no such suite, dataset or file, or it is wrong.
    """
    bundled = [env for env in environment_names() if suite_file(env).is_file()]
    if name in bundled:
        return bundled_tasks(name, request)
    is_path = os.sep in name or find_format(Path(name).expanduser()) is not None
    if not is_path and dataset_of(name) is None:
        candidates = [*bundled, *dataset_names()]
        raise ConfigurationError(
            f"{request}: there is no such suite or dataset.{suggestion(name, candidates)} "
            f"Allowed: the suites {', '.join(bundled)}, the datasets "
            f"{', '.join(dataset_names())}, or the path of a suite (.yaml) or of a folder of task "
            "folders"
        )
    folder = data_folder(data, "data")
    return named_tasks(name, folder, request, folder=Path(), env=None, permissions=permissions)


def runnable(tasks: Sequence[Task], permissions: Permissions) -> list[Task]:
    """Return the tasks that can be run here, with the network that they may have.

    Raises:
        ConfigurationError: no task can be run here.
    """
    connected = [
        _connected(task, permissions) for task in tasks if not _obstacle(task, permissions)
    ]
    if not connected:
        raise _none_of(tasks, permissions)
    return connected


def runnable_of_endless(tasks: Iterable[Task], permissions: Permissions) -> Iterator[Task]:
    """Yield the tasks that can be run here, of an iterable that may be infinite.

    Raises:
        ConfigurationError: very many tasks in a row cannot be run here.
    """
    refused: list[Task] = []
    for task in tasks:
        if not _obstacle(task, permissions):
            refused.clear()
            yield _connected(task, permissions)
            continue
        refused.append(task)
        if len(refused) == _MAX_REFUSED_IN_A_ROW:
            raise _none_of(refused, permissions)


def _obstacle(task: Task, permissions: Permissions) -> str:
    reachable = permissions.network or permissions.hosts or task.limits.hosts
    offline = task.needs_network and not reachable
    return task.skip or ("it needs the network: give network=True" if offline else "")


def _connected(task: Task, permissions: Permissions) -> Task:
    if permissions.network:
        return with_network(task)
    return with_allowed_hosts(task, permissions.hosts) if permissions.hosts else task


def _none_of(tasks: Sequence[Task], permissions: Permissions) -> ConfigurationError:
    if not tasks:
        return ConfigurationError("there are no tasks to run")
    return ConfigurationError(
        f"none of the {len(tasks)} tasks can be run here; {tasks[0].id}: "
        f"{_obstacle(tasks[0], permissions)}"
    )
