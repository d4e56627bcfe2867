"""The end state of an episode beside gold's, from what its row records.

Each environment records its own (``end_state`` in ``environments/``); here all become sections of
marked lines (:mod:`pytest_intercode.page.sections`), which the page can show without knowing any
environment. Reads rows of any version: what is not as expected is shown as it is.
"""

from __future__ import annotations

import json
import posixpath
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_intercode.page.sections import Section, in_order, plain, sides, table, texts
from pytest_intercode.rewards.recording import options_again

__all__ = ["compared"]


def compared(row: Mapping[str, Any]) -> list[Section]:
    """Return the sections of a row's end state; none where it records none."""
    state = row.get("end_state")
    if not isinstance(state, Mapping) or not state:
        return []
    env = str(row.get("environment") or "").removeprefix("ic_")
    show = _SHOWN.get(env, _any)
    try:
        sections = show(state, row)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        sections = _any(state, row)
    turn = state.get("turn")
    if sections and isinstance(turn, int):
        sections[0].setdefault("note", f"The best try's, after turn {turn}.")
    return sections


# -- bash


def _bash(state: Mapping[str, Any], row: Mapping[str, Any]) -> list[Section]:
    agent, gold = state["agent"], state["gold"]
    output = texts("Output", agent["output"], gold["output"])
    sections = [output]
    if "status" in agent:
        return [*sections, *_bash_paper(agent, gold)]
    parts = row.get("reward_parts") or {}
    if agent.get("digest") or gold.get("digest"):
        output["note"] = "Too long to be kept whole; its beginnings are shown."
        output["same"] = [agent["digest"], agent["output"]] == [gold["digest"], gold["output"]]
    if "output" not in parts:
        output |= {"same": None, "note": "It does not count: gold's effects are on disk."}
    elif parts["output"] == 1 and not output["same"]:
        output |= {"same": True, "note": "Equal as the task's normalisers write it."}
    if "counted" in state:
        count = state["counted"]
        sections.append(
            {
                "title": "Changes on disk",
                "same": count["equal"] == count["effects"],
                "note": f"{count['equal']} of {count['effects']} are gold's; they are too many to "
                "be kept one by one.",
                "lines": [],
            }
        )
        return sections
    workdir = state.get("workdir") or "/"
    scratch = [
        posixpath.join(workdir, each) for each in options_again(state.get("options") or {}).scratch
    ]
    paths = sorted({*agent["touched"], *gold["touched"]})
    lines = []
    left_out = 0
    for path in paths:
        if path not in gold["touched"] and _inside(path, scratch):
            left_out += 1
            continue
        mine, theirs = (
            _entry(side["entries"].get(path)) if path in side["touched"] else "untouched"
            for side in (agent, gold)
        )
        equal = agent["entries"].get(path) == gold["entries"].get(path)
        lines.append(["=" if equal else "!", path, mine, theirs])
    section = table("Changes on disk", ["path", "agent", "gold"], lines)
    if left_out:
        section["note"] = f"Left out: {left_out} of the agent's in folders for scratch."
    return [*sections, section]


def _inside(path: str, folders: Sequence[str]) -> bool:
    return any(path == each or path.startswith(f"{each.rstrip('/')}/") for each in folders)


def _entry(entry: Mapping[str, Any] | None) -> str:
    if entry is None:
        return "nothing"
    kind = _KINDS.get(entry["type"], entry["type"])
    said = f"{kind} {entry['mode']:04o} {entry['uid']}:{entry['gid']}"
    content = entry.get("content")
    if not content:
        return said
    return f"{said} -> {content}" if entry["type"] == "l" else f"{said} sha256 {content[:12]}"


_KINDS = {
    "f": "file",
    "d": "folder",
    "l": "link",
    "p": "FIFO",
    "s": "socket",
    "b": "device",
    "c": "device",
}


def _bash_paper(agent: Mapping[str, Any], gold: Mapping[str, Any]) -> list[Section]:
    mine, theirs = ([f"{code} {path}" for path, code in side["status"]] for side in (agent, gold))
    sums = sorted({*agent["sums"], *gold["sums"]})
    pairs = [(path, agent["sums"].get(path, ""), gold["sums"].get(path, "")) for path in sums]
    lines = [["=" if a == b else "!", path, a.strip(), b.strip()] for path, a, b in pairs]
    return [
        sides("git status", mine, theirs),
        table("Contents of what both created", ["path", "agent", "gold"], lines),
    ]


# -- sql


def _sql(state: Mapping[str, Any], row: Mapping[str, Any]) -> list[Section]:
    agent, gold = state["agent"], state["gold"]
    if "added" in agent:
        return _sql_changes(state)
    notes = []
    if "runs" in agent:
        mine, theirs = _rows(agent), _rows(gold)
        if agent.get("problem"):
            notes.append(f"The agent's: {agent['problem']}.")
        elif agent["width"] != gold["width"]:
            notes.append(f"Columns: {agent['width']}; gold has {gold['width']}.")
        if gold.get("ordered"):
            notes.append("The order of rows counts.")
    else:
        mine, theirs = [str(each) for each in agent["rows"] or ()], [*map(str, gold["rows"])]
        if agent["rows"] is None:
            notes.append("The agent's last action gives no rows.")
    if state.get("digested") or state.get("ranked"):
        notes.append("Too long to be kept: equal numbers are equal rows.")
    ordered = "runs" not in gold or gold.get("ordered")
    section = (in_order if ordered else sides)("Result", mine, theirs)
    equal = float(row.get("reward") or 0) >= 1  # nothing else is compared
    if equal and not section["same"]:
        notes.append("Equal by the task's options.")
    return [{**section, "same": equal, **({"note": " ".join(notes)} if notes else {})}]


def _rows(side: Mapping[str, Any]) -> list[str]:
    return [" | ".join(map(_cell, row)) for rows, _ in side["runs"] for row in rows]


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list) and len(value) == 2:
        return str(value[1])
    return str(value)


def _sql_changes(state: Mapping[str, Any]) -> list[Section]:
    agent, gold = state["agent"], state["gold"]
    sections = []
    for title, key in (("What was added", "added"), ("What was removed", "removed")):
        mine, theirs = ([*Counter(side[key]).elements()] for side in (agent, gold))
        if mine or theirs:
            sections.append(sides(title, mine, theirs))
    if not sections:
        sections.append(sides("Changes to the database", [], []))
    if state.get("digested"):
        sections[0]["note"] = "Too long to be kept: equal digests are equal facts."
    if agent.get("uncommitted"):
        sections[0] |= {"note": "The agent left a transaction open; its work is undone."}
    return sections


# -- python and ctf


def _python(state: Mapping[str, Any], _: Mapping[str, Any]) -> list[Section]:
    if "tests" in state:
        lines = [
            ["!" if failure else "=", f"{number}", str(failure or "passed")]
            for number, failure in enumerate(state["tests"], 1)
        ]
        return [table("Hidden tests", ["test", "what it did"], lines)]
    agent, gold = state["agent"], state["gold"]
    tests = [*agent, *(test for test in gold if test not in agent)]
    lines = [
        [
            "=" if test in agent and agent[test] == gold.get(test) else "!",
            test,
            str(agent.get(test, "")),
            str(gold.get(test, "")),
        ]
        for test in tests
    ]
    return [table("Tests", ["test", "agent", "gold"], lines)]


def _ctf(state: Mapping[str, Any], row: Mapping[str, Any]) -> list[Section]:
    submitted = state["agent"]["submitted"]
    solved = float(row.get("reward") or 0) >= 1
    lines = [
        ["=" if solved and at == len(submitted) - 1 else "+", str(flag)]
        for at, flag in enumerate(submitted)
    ]
    digest = str(state["gold"]["exact"])
    if not solved:
        lines.append(["-", f"the flag with SHA-256 {digest}"])
    return [
        {
            "title": "Flags submitted",
            "same": solved,
            "note": "Of gold's flag only a digest is recorded.",
            "lines": lines,
        }
    ]


# -- whatever else


def _any(state: Mapping[str, Any], _: Mapping[str, Any]) -> list[Section]:
    mine, theirs = (
        json.dumps(state.get(side), indent=1, sort_keys=True) for side in ("agent", "gold")
    )
    if "agent" in state and "gold" in state:
        return [texts("End state", mine, theirs)]
    return [plain("End state", json.dumps(state, indent=1, sort_keys=True).split("\n"))]


_SHOWN: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], list[Section]]] = {
    "bash": _bash,
    "sql": _sql,
    "python": _python,
    "ctf": _ctf,
}
