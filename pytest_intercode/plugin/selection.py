"""Selects the tasks of a run: bundled suites, datasets, files, node ids and users' marks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from pytest_intercode.agents.choice import AgentChoice
from pytest_intercode.core.task import Task
from pytest_intercode.environments.registry import BUILTIN_ENVIRONMENTS
from pytest_intercode.errors import ConfigurationError, suggestion
from pytest_intercode.plugin.settings import Settings
from pytest_intercode.suites.catalogue import (
    bundled_tasks,
    dataset_names,
    file_tasks,
    named_tasks,
    suite_file,
    with_allowed_hosts,
    with_kit,
    with_network,
    with_shared_verifier,
)

__all__ = ["TASK_ARGUMENTS", "Selection", "split_by_time"]

TASK_ARGUMENTS = {
    "suite": "a suite's file, relative to the test's folder",
    "dataset": "a dataset, as ``--intercode-dataset`` takes it",
    "env": "a bundled suite, by the name of its environment; next to the two above, the tasks of "
    "this environment alone",
    "hardness": "the tasks of this hardness alone",
    "tags": "a tag, or several, that a task has to have",
    "ids": "the id of a task, or several",
    "repeat": "how often each task is tried",
    "pass_rate": "the share of the tries that has to pass, such as 0.8",
}
"""The arguments of a mark that select the tasks of a test, and their meanings."""


class Selection:
    """Reads the tasks that the settings select.

    Args:
        settings: the options.
        modify: edits a list of tasks in place (``pytest_intercode_modify_tasks``).

    Attributes:
        whole_suites: whether all of the suites and datasets that the settings name is run;
            otherwise only the tasks that were selected by their ids.
    """

    def __init__(self, settings: Settings, modify: Callable[[list[Task]], None]) -> None:
        self.settings = settings
        self._modify = modify
        self.whole_suites = True
        self._pasted: dict[str, set[str] | None] = {}
        # The labels of the agents that play a pasted try; an empty label stands for all of them.
        self._pasted_labels: dict[tuple[str, str, int], set[str]] = {}
        self._suites: dict[str, list[Task]] | None = None

    def paste(self, env: str, task_id: str | None) -> None:
        """Select one task by its id, or the whole suite of an environment."""
        if task_id is None:
            self._pasted[env] = None
        elif (ids := self._pasted.setdefault(env, set())) is not None:
            ids.add(task_id)

    def bundled(self) -> dict[str, list[Task]]:
        """Return the selected tasks of bundled suites and datasets, by environment.

        Raises:
            ConfigurationError: a suite or dataset does not exist, or is wrong.
        """
        if self._suites is None:
            self._suites = self._select()
        return self._suites

    def _select(self) -> dict[str, list[Task]]:
        settings = self.settings
        whole = self.whole_suites and (settings.environments or settings.datasets)
        if not (self._pasted or whole):
            return {}
        tasks_by_env: dict[str, list[Task]] = {}
        option = f"--intercode-dataset={','.join(settings.datasets)}"
        first_tasks: dict[tuple[str, str, int], Task] = {}
        for dataset in settings.datasets:
            for task in self.dataset(dataset):
                if settings.environments and task.env not in settings.environments:
                    continue
                first = first_tasks.setdefault((task.env, task.id, task.repeat), task)
                if first is task:
                    tasks_by_env.setdefault(task.env, []).append(task)
                elif first.source != task.source:  # otherwise: a dataset and a part of it
                    raise ConfigurationError(
                        f"{option}: the id {task.id!r} is used twice, at {first.source} and at "
                        f"{task.source}"
                    )
        if settings.datasets and not tasks_by_env:
            environments = ",".join(settings.environments)
            suffix = f" of --intercode-env={environments}" if environments else ""
            raise ConfigurationError(f"{option} has no task{suffix}")
        everything = set(settings.environments) == set(BUILTIN_ENVIRONMENTS)
        whole_environments = (
            settings.environments if self.whole_suites and not settings.datasets else ()
        )
        for env in whole_environments:
            if not everything or suite_file(env).is_file():  # `all` means every suite that exists
                tasks_by_env[env] = self.suite(env)
        for env, ids in self._pasted.items():
            tasks_by_env[env] = self._pasted_tasks(env, ids, tasks_by_env.get(env, []))
        if not self.whole_suites:
            return {env: tasks for env, tasks in tasks_by_env.items() if env in self._pasted}
        return tasks_by_env

    def _pasted_tasks(self, env: str, ids: set[str] | None, tasks: list[Task]) -> list[Task]:
        if ids is None:
            return tasks or self.suite(env)
        candidates: list[Task] = []
        tries_by_name: dict[str, list[tuple[Task, str]]] = {}  # with the label of an agent
        agents = self.settings.agents if len(self.settings.agents) > 1 else ()

        def add_tasks(tasks: Iterable[Task]) -> None:
            for task in tasks:
                candidates.append(task)
                names = {task.id: "", self.item_id(task): ""}
                names |= {self.item_id(task, agent): agent.label for agent in agents}
                for name, label in names.items():
                    tries_by_name.setdefault(name, []).append((task, label))

        add_tasks(tasks or self.suite(env))
        for name in dataset_names():
            if any(task_id.startswith(f"{name}-") for task_id in ids - tries_by_name.keys()):
                add_tasks(self.dataset(name))
        for task_id in sorted(ids):
            if task_id not in tries_by_name:
                raise ConfigurationError(
                    f"intercode/{env}::test_solves[{task_id}]: no bundled suite or dataset has "
                    f"this task.{suggestion(task_id, tries_by_name)}"
                )
            for task, label in tries_by_name[task_id]:
                key = task.env, task.id, task.repeat
                self._pasted_labels.setdefault(key, set()).add(label)
        return [
            task for task in candidates if (task.env, task.id, task.repeat) in self._pasted_labels
        ]

    def is_played(self, task: Task, agent: AgentChoice) -> bool:
        """Whether an agent plays a task of a bundled suite; a pasted id may name another agent."""
        labels = self._pasted_labels.get((task.env, task.id, task.repeat))
        return labels is None or not labels.isdisjoint(("", agent.label))

    def suite(self, env: str, option: str = "") -> list[Task]:
        """Return the tasks of the bundled suite of an environment.

        Args:
            env: the environment.
            option: where it was named, for messages; by default, the option.
        """
        return self.finish(bundled_tasks(env, option or f"--intercode-env={env}"))

    def dataset(self, name: str, folder: Path | None = None, option: str = "") -> list[Task]:
        """Return the tasks of a dataset, by its name, its part's name, or its path.

        Args:
            name: the name or path.
            folder: where a relative path starts; by default, the folder of datasets.
            option: as for :meth:`suite`.
        """
        start = folder or self.settings.dataset_folder
        option, env = option or f"--intercode-dataset={name}", self._only_environment
        permissions = self.settings.permissions
        tasks = named_tasks(
            name, self.settings.data, option, folder=start, env=env, permissions=permissions
        )
        return self.finish(tasks)

    def file(self, path: Path) -> list[Task]:
        """Return the tasks of a suite file or a file of rows."""
        permissions = self.settings.permissions
        return self.finish(file_tasks(path, self._only_environment, permissions))

    @property
    def _only_environment(self) -> str | None:
        environments = self.settings.environments
        return environments[0] if len(environments) == 1 else None

    def finish(self, tasks: Iterable[Task]) -> list[Task]:
        """Let hooks edit the tasks, then apply the options that limit and repeat them."""
        edited = list(tasks)
        self._modify(edited)
        if self.settings.network:
            override = self.settings.override_network
            edited = [with_network(task, override=override) for task in edited]
        elif self.settings.allow_host:
            edited = [with_allowed_hosts(task, self.settings.allow_host) for task in edited]
        if self.settings.verifier == "shared":
            edited = [with_shared_verifier(task) for task in edited]
        if self.settings.kit != "auto":
            edited = [with_kit(task, self.settings.kit) for task in edited]
        part, parts = self.settings.shard or (1, 1)
        part_tasks = edited[: self.settings.limit]
        if self.settings.durations is None:
            part_tasks = part_tasks[part - 1 :: parts]
        else:
            part_tasks = split_by_time(part_tasks, parts, self.settings.durations.seconds)[part - 1]
        return [item_task for task in part_tasks for item_task in self._repeat(task)]

    def _repeat(self, task: Task) -> list[Task]:
        """Return the tries at a task, each with the number of tries and the pass rate."""
        tries = self.settings.tries_at(task.tries)
        rate = self.settings.pass_rate_of(task.pass_rate)
        count = tries if tries > 1 else None
        if (count, rate) != (task.tries, task.pass_rate):
            task = replace(task, tries=count, pass_rate=rate)
        return [replace(task, repeat=n) if n > 1 else task for n in range(1, tries + 1)]

    def item_id(self, task: Task, agent: AgentChoice | None = None) -> str:
        """Return the id of an item: the task's id, and the number of the try if there are more.

        Args:
            task: the task.
            agent: one of several agents; its label is the end of the id.
        """
        name = task.id if task.tries is None else f"{task.id}-{task.repeat}"
        return name if agent is None else f"{name}-{agent.label}"

    def _repeat_marked(
        self, location: str, tasks: Iterable[Task], arguments: Mapping[str, Any]
    ) -> list[Task]:
        """Return the tries at tasks that a mark asks for.

        Raises:
            ConfigurationError: the number of tries or the rate is not valid.
        """
        marked_tasks = []
        for task in tasks:
            if task.repeat == 1:  # the first try stands for all
                tries, rate = self.settings.repetition(
                    f"{location}: @pytest.mark.intercode",
                    arguments,
                    own_tries=task.tries or 1,
                    own_rate=task.pass_rate,
                )
                marked_tasks += self._repeat(replace(task, tries=tries, pass_rate=rate))
        return marked_tasks

    def select_marked(self, location: str, arguments: Mapping[str, Any]) -> list[Task]:
        """Return the tasks that a user's ``@pytest.mark.intercode(...)`` asks for.

        Raises:
            ConfigurationError: the mark names something that does not exist.
        """
        for name in arguments:
            if name not in TASK_ARGUMENTS:
                raise ConfigurationError(
                    f"{location}: @pytest.mark.intercode has no argument {name!r}."
                    f"{suggestion(name, tuple(TASK_ARGUMENTS))} Allowed: "
                    f"{', '.join(TASK_ARGUMENTS)}"
                )
        folder, mark = Path(location.split("::")[0]).parent, f"{location}: @pytest.mark.intercode"
        if "suite" in arguments:
            tasks = self.file(folder / str(arguments["suite"]))
        elif "dataset" in arguments:
            name = str(arguments["dataset"])
            tasks = self.dataset(name, folder, f"{mark}(dataset={name!r})")
        elif "env" in arguments:
            env = str(arguments["env"])
            tasks = self.suite(env, f"{mark}(env={env!r})")
        else:
            raise ConfigurationError(
                f"{location}: uses an intercode fixture, so it has to name its tasks: "
                "@pytest.mark.intercode(env=...), (dataset=...) or (suite='FILE.yaml')"
            )
        if {"repeat", "pass_rate"} & arguments.keys():
            tasks = self._repeat_marked(location, tasks, arguments)
        tags, ids = (_texts_of(location, name, arguments.get(name, ())) for name in ("tags", "ids"))
        task_ids = {task.id for task in tasks}
        for task_id in sorted(ids - task_ids):
            raise ConfigurationError(
                f"{location}: @pytest.mark.intercode(ids=...): there is no task {task_id!r}."
                + suggestion(task_id, task_ids)
            )
        matches = [
            task
            for task in tasks
            if tags <= set(task.tags)
            and arguments.get("env", task.env) == task.env
            and arguments.get("hardness", task.hardness) == task.hardness
            and ("ids" not in arguments or task.id in ids)
        ]
        if not matches:
            mark_text = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
            raise ConfigurationError(
                f"{location}: no task matches @pytest.mark.intercode({mark_text})"
            )
        return matches


def split_by_time(
    tasks: Sequence[Task], parts: int, durations: Mapping[tuple[str, str, str], float]
) -> list[list[Task]]:
    """Split a suite into parts that take the same time: longest first, to the least loaded part.

    The result depends only on the arguments, so it is the same in every process. A task without a
    known time counts as the median of the known ones, of this suite if it has any. Each part keeps
    the suite's order.
    """
    task_durations = [durations.get((task.env, task.suite_name, task.id)) for task in tasks]
    known_durations = (
        [duration for duration in task_durations if duration is not None]
        or list(durations.values())
        or [1.0]
    )
    usual = median(known_durations)
    seconds = [usual if duration is None else duration for duration in task_durations]
    # Otherwise, suites of a single task would all be in the first part.
    name = f"{tasks[0].env} {tasks[0].suite_name}" if tasks else ""
    first = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % parts
    loads = [0.0] * parts
    sizes = [0] * parts
    part_of = [0] * len(tasks)
    for index in sorted(range(len(tasks)), key=lambda index: (-seconds[index], index)):
        part = min(
            range(parts), key=lambda part: (loads[part], sizes[part], (part - first) % parts)
        )
        loads[part] += seconds[index]
        sizes[part] += 1
        part_of[index] = part
    return [
        [task for task, task_part in zip(tasks, part_of, strict=True) if task_part == part]
        for part in range(parts)
    ]


def _texts_of(location: str, name: str, value: Any) -> set[str]:
    """Return the texts of a mark's argument, which may be one text or a list."""
    texts = [value] if isinstance(value, str) else value
    is_collection = isinstance(texts, (list, tuple, set, frozenset))
    if is_collection and all(isinstance(text, str) for text in texts):
        return set(texts)
    raise ConfigurationError(
        f"{location}: @pytest.mark.intercode({name}={value!r:.60}): a text, or a list of texts, is "
        "needed"
    )
