"""People's labels for the work of agents: ``labels.jsonl`` next to a suite.

::

    {"task": "greets", "text": "Good morning!", "label": "pass"}
    {"task": "greets", "evidence": "3f0c9a5be7712d40", "label": "fail"}

A text is what an agent might have said. ``evidence`` identifies a recorded episode: it is the field
of this name in ``judge`` of the episode's record.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_intercode.core.permissions import NOTHING, Permissions
from pytest_intercode.errors import ConfigurationError, suggestion
from pytest_intercode.system.rows import read_rows
from pytest_intercode.system.suite_folder import SuiteFolder

__all__ = ["FILE_NAME", "Label", "read_labels"]

FILE_NAME = "labels.jsonl"

_KEYS = ("task", "text", "evidence", "label", "note")
_LABELS = ("pass", "fail")


@dataclass(frozen=True)
class Label:
    """The verdict of people on one piece of work.

    Attributes:
        place: the file and the line.
        task: the id of the task.
        passes: whether the work passes.
        text: the work, as an agent might have said it; empty if it is a recorded episode.
        evidence: identifies the recorded episode; empty if there is a text.
    """

    place: str
    task: str
    passes: bool
    text: str = ""
    evidence: str = ""


def read_labels(path: Path, permissions: Permissions = NOTHING) -> list[Label]:
    """Return the labels in a file; none if it does not exist.

    Args:
        path: the file, which is as untrusted as the suite next to it.
        permissions: what it may be other than a file in its folder.

    Raises:
        ConfigurationError: a line is not a label, or the path leads out of its folder.
    """
    with SuiteFolder(path.parent, permissions) as folder:
        file = folder / path.name
        return [_label(*item) for item in read_rows(file)] if file.is_file() else []


def _label(place: str, row: dict[str, Any]) -> Label:
    for key, value in row.items():
        if key not in _KEYS:
            raise ConfigurationError(
                f"{place}: a label has no {key!r}.{suggestion(key, _KEYS)} Allowed: "
                f"{', '.join(_KEYS)}"
            )
        if not isinstance(value, str) or not value:
            raise ConfigurationError(f"{place}: {key}: a text is needed, found {value!r:.60}")
    for key in ("task", "label"):
        if key not in row:
            raise ConfigurationError(f"{place}: {key} is missing")
    if row["label"] not in _LABELS:
        raise ConfigurationError(
            f"{place}: label: {row['label']!r:.60} is not one of {', '.join(_LABELS)}"
        )
    if ("text" in row) == ("evidence" in row):
        raise ConfigurationError(
            f"{place}: give either text, which is judged, or evidence, which names a recorded "
            "episode"
        )
    text, evidence = row.get("text", ""), row.get("evidence", "")
    return Label(place, row["task"], row["label"] == "pass", text, evidence)
