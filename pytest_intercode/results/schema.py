"""The JSON Schema of a results file's line, from the declarations of the fields.

``docs/episode-record.schema.json`` is what ``python -m pytest_intercode.results.schema`` prints.
"""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import fields
from typing import Any

from pytest_intercode.core.line import LineField
from pytest_intercode.core.record import (
    FORMAT_VERSION,
    EpisodeRecord,
    FirstScore,
    ShardRecord,
    TaskRecord,
)
from pytest_intercode.core.turn import Turn
from pytest_intercode.core.usage import Usage
from pytest_intercode.results.format import line_model

__all__ = ["json_schema"]

_DESCRIPTIONS = {  # of keys that differ in InterCode's files, or that are not a record's field
    "environment": "The environment's name behind ``ic_``.",
    "task_id": "The task's id; a number in InterCode's files.",
    "turn_history": "The trajectory, a list for each column; a list that is shorter than actions "
    "ends early.",
    "turn_history.rewards": "The reward after each action; 0 where the state was not graded.",
    "turn_history.valid_action": "Whether the action ran and ended with status 0; null where that "
    "is not known.",
    "summary": "InterCode's summary of an episode.",
    "summary.max_reward": "The best reward; the episode's score in InterCode's own files.",
    "summary.max_reward_idx": "The turn of the best reward, from 0.",
    "summary.turns_taken": "How many turns there were.",
    "format_version": "The version of this format; 1 did not write it, 0 is an episode of "
    "InterCode's files.",
}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a line."""
    schema = line_model().model_json_schema()
    objects = schema["$defs"]
    descriptions: dict[str, str] = {}
    records: tuple[type[Any], ...] = (Usage, ShardRecord, FirstScore)
    for cls in (TaskRecord, Turn, EpisodeRecord):
        descriptions |= _descriptions(cls)
    parents = {"": schema, "turn_history": objects["TurnHistory"]}
    parents["summary"] = objects["EpisodeSummary"]
    for key, text in {**descriptions, **_DESCRIPTIONS}.items():
        parent, _, name = key.rpartition(".")
        if name in parents[parent]["properties"]:
            parents[parent]["properties"][name]["description"] = text
    for record in records:
        for name, text in _descriptions(record).items():
            objects[record.__name__]["properties"][name]["description"] = text
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"pytest-intercode episode record, version {FORMAT_VERSION}",
        "description": "One line of a results file of pytest-intercode: one episode. InterCode's "
        "own files have the first six keys, and none of the others.",
        **{name: value for name, value in schema.items() if name != "title"},
    }


def _descriptions(cls: type[Any]) -> dict[str, str]:
    """Return the descriptions of a dataclass's fields from its docstring, by their keys."""
    section = (inspect.getdoc(cls) or "").partition("\nAttributes:\n")[2]
    texts = dict(re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", section, re.MULTILINE))
    descriptions = {}
    for field in fields(cls):
        in_line, text = LineField.of(field), " ".join(texts[field.name].split())
        text = re.sub(r":\w+:`~?([^`]+)`", r"``\1``", text)
        text = f"{text[0].upper()}{text[1:]}".removesuffix(".") + "."
        note = " Omitted if empty." if in_line.optional else ""
        descriptions[in_line.key or field.name] = text + note
    return descriptions


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=1))
