"""The end state of a bash task next to gold's, for the report page."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.environments.sections import (
    Section,
    compare_table,
    compare_texts,
    compare_unordered,
    show_marked_lines,
)
from pytest_intercode.rewards.recording import options_again

__all__ = ["end_state_sections"]

_NORMALISED = "Equal as the task's normalisers write it."


def end_state_sections(state: Mapping[str, Any], record: EpisodeRecord) -> list[Section]:
    """Compare the output and the changes on disk."""
    agent, gold = state["agent"], state["gold"]
    output = compare_texts("Output", agent["output"], gold["output"])
    sections = [output]
    if "status" in agent:
        return [*sections, *_bash_paper(agent, gold)]
    parts = record.parts
    if agent.get("digest") or gold.get("digest"):
        output["note"] = "Too long to be kept whole; its beginnings are shown."
        output["same"] = [agent["digest"], agent["output"]] == [gold["digest"], gold["output"]]
    if "output" not in parts:
        output |= {"same": None, "note": "It does not count: gold's effects are on disk."}
    elif parts["output"] == 1 and not output["same"]:
        rule = state.get("format")
        note = f"Equal in another format, by the rule {rule}." if rule else _NORMALISED
        output |= {"same": True, "note": note}
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
        posixpath.join(workdir, name) for name in options_again(state.get("options") or {}).scratch
    ]
    paths = sorted({*agent["touched"], *gold["touched"]})
    lines = []
    left_out = 0
    for path in paths:
        if path not in gold["touched"] and _inside(path, scratch):
            left_out += 1
            continue
        agent_entry, gold_entry = (
            _entry(side["entries"].get(path)) if path in side["touched"] else "untouched"
            for side in (agent, gold)
        )
        equal = agent["entries"].get(path) == gold["entries"].get(path)
        lines.append(["=" if equal else "!", path, agent_entry, gold_entry])
    section = compare_table("Changes on disk", ["path", "agent", "gold"], lines)
    if left_out:
        section["note"] = f"Left out: {left_out} of the agent's in folders for scratch."
    diffs = state.get("diffs") or {}
    return [*sections, section, *(_file_diff(path, diffs[path]) for path in sorted(diffs))]


def _file_diff(path: str, lines: Sequence[str]) -> Section:
    """Show a recorded diff, from gold's file to the agent's."""
    marked = [[_DIFF_MARKS.get(line[:1], ""), line[line[:1] in _DIFF_MARKS :]] for line in lines]
    return show_marked_lines(path, marked, same=False)


_DIFF_MARKS = {"-": "-", "+": "+", " ": "="}


def _inside(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


def _entry(entry: Mapping[str, Any] | None) -> str:
    if entry is None:
        return "nothing"
    kind = _KINDS.get(entry["type"], entry["type"])
    description = f"{kind} {entry['mode']:04o} {entry['uid']}:{entry['gid']}"
    content = entry.get("content")
    if not content:
        return description
    return (
        f"{description} -> {content}"
        if entry["type"] == "l"
        else f"{description} sha256 {content[:12]}"
    )


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
    agent_status, gold_status = (
        [f"{code} {path}" for path, code in side["status"]] for side in (agent, gold)
    )
    sums = sorted({*agent["sums"], *gold["sums"]})
    pairs = [(path, agent["sums"].get(path, ""), gold["sums"].get(path, "")) for path in sums]
    lines = [["=" if a == b else "!", path, a.strip(), b.strip()] for path, a, b in pairs]
    return [
        compare_unordered("git status", agent_status, gold_status),
        compare_table("Contents of what both created", ["path", "agent", "gold"], lines),
    ]
