"""Builds tasks from a suite: from fields in layers, and from files in the suite's folder.

It reads the files that contain parts of a task, and checks whether a Dockerfile exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from pydantic import BaseModel

from pytest_intercode.core.judge import Judge
from pytest_intercode.core.task import ImageSource, Task
from pytest_intercode.errors import MissingFile
from pytest_intercode.suites.forms import build_forms, find_dockerfile
from pytest_intercode.suites.schema import LayerModel
from pytest_intercode.suites.services import lay_services, sorted_services
from pytest_intercode.system.suite_folder import SuitePath

__all__ = ["build_task"]


def _apply(task: Task, layer: LayerModel, folder: SuitePath, per_task: Mapping[str, Any]) -> Task:
    """Lay the fields of a layer, and those of only this task, over a task; the others stay."""
    values = build_forms(_explicit_fields(layer), folder) | per_task
    if isinstance(values.get("gold"), str):
        values["gold"] = (values["gold"],)
    if "user" in values:  # in a Task, `user` is the account in the sandbox
        values["conversation"] = values.pop("user")
    if "repeat" in values:  # in a Task, `repeat` is the number of the try
        values["tries"] = values.pop("repeat")
    if "variables" in values:
        values["variables"] = tuple(values["variables"].items())
    for name in {"files", "audit"} & values.keys():
        values[name] = {**getattr(task, name), **values[name]}
    if "reward" in values:
        values["reward"] = replace(task.reward, **_explicit_fields(values["reward"]))
    if "judge" in values:
        judge_values = build_forms(_explicit_fields(values["judge"]), folder)
        values["judge"] = replace(task.judge or Judge(), **judge_values)
    limits = _explicit_fields(values.pop("limits")) if "limits" in values else {}
    network = values.pop("network", limits.pop("network", None))
    if network is not None:
        hosts = network if isinstance(network, tuple) else ()
        limits |= {"network": network is True, "hosts": hosts, "offline": not network}
    if limits:
        values["limits"] = replace(task.limits, **limits)
    if layer.image is not None:
        values["image"] = ImageSource(image=layer.image)
    if layer.dockerfile is not None:
        values["image"] = ImageSource(dockerfile=find_dockerfile(folder, values.pop("dockerfile")))
    if "services" in values:
        values["services"] = lay_services(task.services, values["services"])
    own_names = {field.name for field in fields(task.fields)} & values.keys()
    own_values = {name: values.pop(name) for name in own_names}
    if own_values:
        values["fields"] = replace(task.fields, **own_values)
    return replace(task, **values) if values else task


def _explicit_fields(model: BaseModel) -> dict[str, Any]:
    """Return the fields that are given; null has the same meaning as leaving a field out."""
    every = {name: getattr(model, name) for name in model.model_fields_set}
    return {name: value for name, value in every.items() if value is not None}


def build_task(
    blank: Task,
    layers: list[LayerModel],
    *,
    folder: SuitePath,
    **per_task: Any,
) -> Task:
    """Build a task from a blank one and layers of fields; later layers replace earlier ones.

    Args:
        blank: a task with the values that all tasks of the suite share.
        layers: the fields to lay over it; one or more.
        folder: the folder where relative paths in the suite start.
        per_task: fields of only this task that no layer has, such as its source.

    Raises:
        MissingFile: a file that the task names cannot be read.
    """
    *base_layers, last_layer = layers
    task = blank
    try:
        for layer in base_layers:
            task = _apply(task, layer, folder, {})
        task = _apply(task, last_layer, folder, per_task)
    except MissingFile as error:
        raise MissingFile(f"{per_task.get('source', blank.source)}: {error}") from None
    task = sorted_services(task) if task.services else task
    return replace(task, needs_network="network" in task.tags)
