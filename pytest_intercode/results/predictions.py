"""Predictions: patches by the ids of their tasks, in the form that SWE-bench and others read.

One object per line, or a list of them: ``instance_id``, ``model_name_or_path``, ``model_patch``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.errors import ConfigurationError, MissingFile
from pytest_intercode.system.rows import read_rows

__all__ = ["Prediction", "prediction_line", "read_predictions"]


@dataclass(frozen=True)
class Prediction:
    """The patch that a model makes for a repository.

    Attributes:
        instance: the id of the task.
        model: the name of the model or the agent.
        patch: the patch; None or blank for none.
    """

    instance: str
    model: str
    patch: str | None


def prediction_line(record: EpisodeRecord) -> str | None:
    """Return an episode's patch as a line of JSON; None if the episode is not the one that counts.

    The first try at a task with a repository counts. An episode that could not be graded has no
    patch.
    """
    patch = record.state.get("patch")
    if not isinstance(patch, str) or record.superseded or record.task.repeat > 1:
        return None
    model = record.agent_arguments.get("model", "")
    line = {
        "instance_id": record.task.id,
        "model_name_or_path": f"{record.agent}:{model}" if model else record.agent,
        "model_patch": patch,
    }
    return json.dumps(line)


def read_predictions(path: Path) -> dict[str, Prediction]:
    """Return predictions by the ids of their tasks.

    Args:
        path: a file of JSON Lines, or of JSON with a list or an object of them.

    Raises:
        ConfigurationError: the file cannot be read, or contains something else.
    """
    if path.suffix not in (".json", ".jsonl"):
        if not path.exists():
            raise MissingFile(f"{path}: there is no such file")
        raise ConfigurationError(
            f"{path}: predictions have to be a file of JSON Lines (.jsonl) or .json"
        )
    predictions: dict[str, Prediction] = {}
    for location, row in read_rows(path):
        prediction = _prediction(location, row)
        if prediction.instance in predictions:
            raise ConfigurationError(
                f"{location}: instance_id: {prediction.instance!r} is given twice; a task has one "
                "prediction"
            )
        predictions[prediction.instance] = prediction
    return predictions


def _prediction(location: str, row: Mapping[str, Any]) -> Prediction:
    instance, patch = row.get("instance_id"), row.get("model_patch")
    if not isinstance(instance, str) or not instance:
        keys = ", ".join(row)
        raise ConfigurationError(f"{location}: instance_id: a text is needed. The keys are: {keys}")
    if "model_patch" not in row:
        raise ConfigurationError(
            f"{location}: model_patch is missing: the patch as git diff writes it, or null. The "
            f"keys are: {', '.join(row)}"
        )
    if patch is not None and not isinstance(patch, str):
        raise ConfigurationError(
            f"{location}: model_patch: a text or null is needed: {patch!r:.60}"
        )
    return Prediction(instance, str(row.get("model_name_or_path") or ""), patch)
