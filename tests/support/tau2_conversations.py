"""Conversations on tasks of tau2-bench: gold's calls, as they are, changed, and by chance."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["conversations", "tasks_of"]

_Call = dict[str, Any]


def tasks_of(data: Path, domain: str, count: int) -> list[dict[str, Any]]:
    """Return tasks of a domain as published: all that are on by default, or a part, by chance."""
    folder = data / "tau2" / "domains" / domain
    base = set(json.loads((folder / "split_tasks.json").read_text("utf-8"))["base"])
    tasks = json.loads((folder / "tasks.json").read_text("utf-8"))
    tasks = [task for task in tasks if task["id"] in base]
    return random.Random(domain).sample(tasks, min(count, len(tasks)))


def conversations(domain: str, tasks: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield eight conversations on each task."""
    pool = [call for task in tasks for call in _gold(task)]
    for task in tasks:
        chance = random.Random(str(task["id"]))
        gold, criteria = _gold(task), task["evaluation_criteria"]
        statements = [{"agent": f"So: {text}."} for text in criteria.get("communicate_info") or ()]
        shouted = [{"agent": line["agent"].upper().replace(" ", ", ")} for line in statements]
        for lines in (
            [*gold, *statements],
            [],
            [*gold[:-1], *statements],
            [*gold, chance.choice(pool), *shouted],
            [*(_changed(call, chance) for call in gold), *statements],
            [*gold, *gold, *statements[1:]],
            [*chance.sample(pool, min(6, len(pool))), *gold, *statements],
            [*chance.sample(pool, min(6, len(pool)))],
        ):
            ending = chance.choice(["user_stop", "agent_stop", "user_stop", "max_steps"])
            yield {
                "domain": domain,
                "task": task,
                "lines": [{"agent": "Hi! How can I help you today?"}, {"user": "Well."}, *lines],
                "ending": "user_stop" if lines[: len(gold)] == gold else ending,
                "verdict": chance.random() < 0.8,
            }


def _gold(task: Mapping[str, Any]) -> list[_Call]:
    return [
        {"requestor": action.get("requestor", "assistant"), **_part(action)}
        for action in task["evaluation_criteria"]["actions"] or ()
    ]


def _part(action: Mapping[str, Any]) -> _Call:
    return {name: action[name] for name in ("name", "arguments")}


def _changed(call: _Call, chance: random.Random) -> _Call:
    """Return a call with something else in one place, as models get it wrong."""
    if chance.random() < 0.5:
        return call
    kind = chance.randrange(6)
    if kind == 0 or not call["arguments"]:
        return {
            **call,
            "name": chance.choice(["think", call["name"] + "s", "_get_order", "calculate"]),
        }
    name = chance.choice(sorted(call["arguments"]))
    value = call["arguments"][name]
    values = [
        *([value[:-1], value.upper()] if isinstance(value, str) else [[], str(value)]),
        *(value[::-1] if isinstance(value, list) else value for _ in range(2)),
        *(None, 5, "5", 5.0, True, {"x": 1}),
    ]
    arguments = {**call["arguments"], name: chance.choice(values)}
    if kind == 1:
        del arguments[name]
    elif kind == 2:
        arguments[chance.choice(["requestor", "tool_name", "self", "more"])] = "user"
    return {**call, "arguments": arguments}
