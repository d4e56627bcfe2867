"""Finds tasks by a name or a path (bundled suites, datasets, files), and the folder of the data.

It only reads files. The options of pytest, ``make``, ``audit`` and ``rescore`` all use it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pytest_intercode.core.facts import Fact
from pytest_intercode.core.hosts import MAX_HOSTS
from pytest_intercode.core.permissions import (
    EVERYTHING,
    NOTHING,
    Permissions,
    change_limits,
    change_verifications,
)
from pytest_intercode.core.task import Limits, Task, Verification
from pytest_intercode.environments.registry import (
    environment_names,
    is_environment,
    kind_of,
)
from pytest_intercode.errors import ConfigurationError, MissingFile, SuiteError, suggestion
from pytest_intercode.suites.formats import find_format
from pytest_intercode.suites.loader import load_suite
from pytest_intercode.suites.upstream import DATASETS, ELSEWHERE, Dataset, files_of
from pytest_intercode.system.files import bundled_folder, cache_folder

__all__ = [
    "DataFolder",
    "bundled_tasks",
    "data_folder",
    "dataset_names",
    "dataset_of",
    "dataset_tasks",
    "default_data",
    "describe_data",
    "fetch_command",
    "file_tasks",
    "named_tasks",
    "suite_file",
    "with_allowed_hosts",
    "with_kit",
    "with_network",
    "with_shared_verifier",
]


class DataFolder(NamedTuple):
    """A folder with the layout of InterCode's ``data/``.

    Attributes:
        path: the folder.
        source: the option or the variable that names it, for messages.
    """

    path: Path
    source: str


def data_folder(path: str | os.PathLike[str] | None, option: str) -> DataFolder | None:
    """Return the folder of InterCode's data, or None if there is none.

    It is the given one, else that of the variable INTERCODE_DATA, else the one that
    ``pytest-intercode fetch`` fills, if it exists. Whether a named folder exists is checked when
    a dataset is read from it.

    Args:
        path: the folder that the user named, or None.
        option: the option or the argument with ``path``, for messages.
    """
    if path:
        return DataFolder(Path(path).expanduser(), option)
    variable = os.environ.get("INTERCODE_DATA")
    if variable:
        return DataFolder(Path.cwd() / Path(variable).expanduser(), "INTERCODE_DATA")
    fetched = default_data()
    return DataFolder(fetched, "XDG_CACHE_HOME") if fetched.is_dir() else None


def default_data() -> Path:
    """Return the folder of fetched data, below the user's caches."""
    return cache_folder() / "data"


def suite_file(env: str) -> Path:
    """Return the path of an environment's bundled suite, which need not exist."""
    suite = kind_of(env).suite
    if suite is not None:
        return Path(suite)
    return bundled_folder("tasks") / f"{env}.yaml"


def bundled_tasks(env: str, option: str) -> tuple[Task, ...]:
    """Return the tasks of the bundled suite of an environment, built in or added.

    Args:
        env: the environment.
        option: how the user asked for it, for messages.

    Raises:
        ConfigurationError: there is no bundled suite.
    """
    path = suite_file(env)
    if not path.is_file():
        if is_environment(env):
            dataset = f"the dataset {env}, or " if env in dataset_names() else ""
            raise ConfigurationError(
                f"{option}: the environment {env} has no suite of its own; give {dataset}a .yaml "
                f"with env: {env}"
            )
        names = [name for name in environment_names() if suite_file(name).is_file()]
        raise ConfigurationError(
            f"{option}: there is no bundled suite of this name. Bundled: {', '.join(names)}."
            + suggestion(env, names)
        )
    return load_suite(path, permissions=EVERYTHING).tasks


def dataset_names() -> list[str]:
    """Return the names of the known datasets."""
    return sorted(path.stem for path in (bundled_folder("tasks") / "datasets").glob("*.yaml"))


def dataset_of(name: str) -> str | None:
    """Return the dataset for a name, which may be its own name or that of a part."""
    matching_names = (n for n in dataset_names() if name == n or name.startswith(f"{n}-"))
    return max(matching_names, key=len, default=None)


def file_tasks(path: Path, env: str | None, permissions: Permissions = NOTHING) -> Sequence[Task]:
    """Return the tasks at a path: of a suite (``.yaml``), of rows, or of another format.

    Args:
        path: the file; if no format recognises it, it is read as a suite.
        env: the environment of rows; None if it is not known.
        permissions: the permissions of the tasks on this machine, beyond their folder.

    Raises:
        ConfigurationError: the file is wrong, or has no tasks; or these are rows and ``env`` is
            None.
    """
    suite_format = find_format(path)
    if suite_format is None:
        tasks: Sequence[Task] = load_suite(path, permissions=permissions).tasks
    else:
        tasks = suite_format.load(path, env, permissions)
    if not tasks:
        raise SuiteError(f"{path}: contains no tasks")
    return tasks


def named_tasks(
    name: str,
    data: DataFolder | None,
    option: str,
    *,
    folder: Path,
    env: str | None,
    permissions: Permissions = NOTHING,
) -> Sequence[Task]:
    """Return the tasks of a dataset with this name, or at this path.

    Args:
        name: a dataset, a part of one, or a path that a format of suites/formats.py recognises.
        data: the folder of InterCode's data, or None.
        option: how the user asked for it, for messages.
        folder: the folder where a relative path starts.
        env: the environment of rows; None if it is not known.
        permissions: the permissions of the tasks on this machine, beyond their folder.

    Raises:
        ConfigurationError: there is no such dataset or file, or it is wrong.
    """
    path = folder / Path(name).expanduser()
    suite_format = find_format(path)
    # In a folder with data, the name of a dataset may also be that of a folder.
    if suite_format is None or (path.is_dir() and dataset_of(name) is not None):
        return dataset_tasks(name, data, option, permissions)
    return file_tasks(path, env, permissions)


def dataset_tasks(
    name: str, data: DataFolder | None, option: str, permissions: Permissions = NOTHING
) -> list[Task]:
    """Return the tasks of a dataset, or of a part of it.

    Args:
        name: the name of the dataset or of the part.
        data: the folder of InterCode's data, or None.
        option: how the user asked for it, for messages.
        permissions: the permissions of its rows on this machine, beyond that folder.

    Raises:
        ConfigurationError: there is no such dataset or part, or its data is missing; the message
            then contains the command that gets it.
    """
    whole = dataset_of(name)
    if whole is None:
        names = dataset_names()
        raise ConfigurationError(
            f"{option}: there is no such dataset.{suggestion(name, names)} Allowed: "
            f"{', '.join(names)}, or the path of a suite (.yaml), of rows (.json, .jsonl, .csv, "
            ".tsv) or of a folder of task folders"
        )
    if data is None:
        raise ConfigurationError(f"{option}: its data are missing. {_remedy(whole, None)}")
    if not data.path.is_dir():
        raise MissingFile(
            f"{data.source}={data.path}: there is no such folder. {_remedy(whole, data.path)}"
        )
    try:
        manifest = bundled_folder("tasks") / "datasets" / f"{whole}.yaml"
        suite = load_suite(manifest, data.path, permissions)
    except MissingFile as error:
        message = str(error) if str(error).endswith((".", "?")) else f"{error}."
        raise MissingFile(f"{option}: {message} {_remedy(whole, data.path)}") from None
    tasks = [task for task in suite.tasks if name in (whole, task.dataset)]
    if not tasks:
        parts = sorted({task.dataset for task in suite.tasks})
        raise ConfigurationError(
            f"{option}: {whole} has the parts {', '.join(parts)}.{suggestion(name, parts)}"
        )
    return tasks


def describe_data(data: DataFolder | None) -> Iterator[Fact]:
    """Yield facts about the bundled suites, and about the datasets that can be fetched.

    It does not check the content of files.

    Args:
        data: the folder of InterCode's data, or None.
    """
    bundled = []
    for name in environment_names():
        try:
            bundled += [name] if suite_file(name).is_file() else []
        except ConfigurationError as error:  # an environment of another package cannot be loaded
            yield Fact(f"environment {name}", str(error), "note")
    yield Fact("bundled suites", ", ".join(bundled))
    folder = data.path if data is not None else default_data()
    counts = {name: _count_files(dataset, folder) for name, dataset in DATASETS.items()}
    missing = [name for name, (present, total) in counts.items() if present < total]
    whole = [name for name in counts if name not in missing]
    if whole:
        yield Fact("datasets", f"{', '.join(whole)} are in {folder}")
    if missing:
        parts = [
            f"{present} of {total} files of {name} are present"
            for name, (present, total) in counts.items()
            if 0 < present < total
        ]
        hint = f"{', '.join(missing)}: get them with {fetch_command('NAME', folder)}"
        yield Fact("datasets", "; ".join([hint, *parts]), "note")


def _count_files(dataset: Dataset, folder: Path) -> tuple[int, int]:
    """Return how many files of a dataset are in a folder, and how many the dataset has."""
    targets = [file.target for file in files_of(*dataset.paths)]
    targets += [dataset.archive(script) for script, _ in dataset.filesystems]
    return sum((folder / target).is_file() for target in targets), len(targets)


def fetch_command(dataset: str, data: Path | None) -> str:
    """Return the command that gets a dataset, into a folder or the default one."""
    target_options = [] if data is None or data == default_data() else ["--to", str(data)]
    return shlex.join(["pytest-intercode", "fetch", dataset, *target_options])


def _remedy(dataset: str, data: Path | None) -> str:
    own_folder = "a folder of your own, laid out as InterCode's data/, with --intercode-data=DIR"
    name = next((n for n in DATASETS if dataset == n or dataset.startswith(f"{n}-")), None)
    if name is None:
        return f"{ELSEWHERE.get(dataset, 'They cannot be fetched')}. Name {own_folder}"
    return f"Get them with: {fetch_command(name, data)}; or name {own_folder}"


def with_network(task: Task, *, override: bool = False) -> Task:
    """Return the task with the network for its sandboxes, except those whose network it limits.

    Tests that install packages then fetch them, as published, instead of using the kit.

    Args:
        task: the task.
        override: whether all sandboxes get the network, even if the task limits it.
    """

    def open_network(limits: Limits) -> Limits:
        if (limits.offline or limits.hosts) and not override:
            return limits
        return replace(limits, network=True, hosts=(), offline=False)

    task = change_limits(task, open_network)

    def set_fetches(verification: Verification) -> Verification:
        fresh_limits = verification.limits if verification.place == "fresh" else None
        networked = (fresh_limits or task.limits).network
        return replace(verification, fetches=networked and verification.kit is not None)

    return change_verifications(task, set_fetches)


def with_kit(task: Task, kit: str) -> Task:
    """Return the task with tests that use the verifier kit ``always``, or ``never``."""

    def set_fetches(verification: Verification) -> Verification:
        fetches = kit == "never" and verification.kit is not None
        return replace(verification, fetches=fetches)

    return change_verifications(task, set_fetches)


def with_shared_verifier(task: Task) -> Task:
    """Return the task with tests that run in the agent's own sandbox, next to its processes.

    A task whose environment does not support this is not changed, such as one with a repository.
    Neither are tests with their own machine.
    """

    def share(verification: Verification) -> Verification:
        has_own_machine = verification.image is not None or verification.artifacts is not None
        if has_own_machine or verification.place == "shell":
            return verification
        return replace(verification, place="agents")

    if task.verification is None or not kind_of(task.env).can_share_verifier(task):
        return task
    skip = None if task.verification.place == "shell" else task.skip
    return replace(change_verifications(task, share), skip=skip)


def with_allowed_hosts(task: Task, hosts: Iterable[str]) -> Task:
    """Return the task with further hosts that its sandboxes may reach.

    Sandboxes that reach all hosts are not changed, nor are those that must not reach any.

    Raises:
        ConfigurationError: there are more hosts than a sandbox may reach.
    """

    def add_hosts(limits: Limits) -> Limits:
        if limits.network or limits.offline:
            return limits
        all_hosts = tuple(dict.fromkeys((*limits.hosts, *hosts)))
        if len(all_hosts) > MAX_HOSTS:
            raise ConfigurationError(
                f"{task.source}: task {task.id!r}: a sandbox may reach at most "
                f"{MAX_HOSTS} hosts, found {len(all_hosts)} with those of --intercode-allow-host"
            )
        return replace(limits, hosts=all_hosts)

    return change_limits(task, add_hosts)
