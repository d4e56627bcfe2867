"""The end state of an episode next to gold's, as sections of lines that the page shows.

Each environment records its own end state; what is not as expected (another version's, an added
environment's) is shown as it is. A section is a dictionary of builtins:

* ``title``, ``note``: what is compared, and what has to be known of it;
* ``same``: whether both sides are equal in it; None where it does not count;
* ``head``: the names of columns, where the lines are rows of a table;
* ``lines``: a mark and the cells. ``=`` is on both sides, ``+`` is the agent's alone, ``-`` is
  gold's alone, ``!`` is different on the two sides;
* ``more``: lines that are left out.
"""

from __future__ import annotations

import difflib
import json
import posixpath
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.rewards.recording import options_again

__all__ = ["Section", "end_state_sections"]

Section: TypeAlias = "dict[str, Any]"

_MAX_LINES = 300  # of a section
_MAX_DIFFED = 400  # lines of a side: a diff takes time with their square
_CONTEXT = 3  # equal lines around each difference
_MAX_CELL = 500  # characters of a cell
_MAX_TIMES = 100  # that one fact is shown


def end_state_sections(record: EpisodeRecord) -> list[Section]:
    """Return the sections of an episode's end state; none where it records none."""
    state = record.state
    if not state:
        return []
    show = _SHOWN.get(record.task.env, _unknown_state)
    try:
        sections = show(state, record)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        sections = _unknown_state(state, record)
    golds = state.get("golds")
    alternative = golds.index(None) if isinstance(golds, list) and None in golds else 0
    if sections and alternative:
        sentence = f"Compared with alternative {alternative} of gold, which is the best match."
        sections[0]["note"] = f"{sentence} {sections[0].get('note', '')}".strip()
    turn = state.get("turn")
    if sections and isinstance(turn, int):
        sections[0].setdefault("note", f"The best try's, after turn {turn}.")
    return sections


# -- bash

_NORMALISED = "Equal as the task's normalisers write it."


def _bash(state: Mapping[str, Any], record: EpisodeRecord) -> list[Section]:
    agent, gold = state["agent"], state["gold"]
    output = texts("Output", agent["output"], gold["output"])
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
    section = table("Changes on disk", ["path", "agent", "gold"], lines)
    if left_out:
        section["note"] = f"Left out: {left_out} of the agent's in folders for scratch."
    diffs = state.get("diffs") or {}
    return [*sections, section, *(_file_diff(path, diffs[path]) for path in sorted(diffs))]


def _file_diff(path: str, lines: Sequence[str]) -> Section:
    """Show a diff that is recorded: what the agent has instead of what gold has."""
    marked = [[_DIFF_MARKS.get(line[:1], ""), line[line[:1] in _DIFF_MARKS :]] for line in lines]
    return {"title": path, "same": False, "lines": _shortened(marked)}


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
        sides("git status", agent_status, gold_status),
        table("Contents of what both created", ["path", "agent", "gold"], lines),
    ]


# -- sql


def _sql(state: Mapping[str, Any], record: EpisodeRecord) -> list[Section]:
    agent, gold = state["agent"], state["gold"]
    if "added" in agent:
        return _sql_changes(state)
    notes = []
    if "runs" in agent:
        agent_rows, gold_rows = _rows(agent), _rows(gold)
        if agent.get("problem"):
            notes.append(f"The agent's: {agent['problem']}.")
        elif agent["width"] != gold["width"]:
            notes.append(f"Columns: {agent['width']}; gold has {gold['width']}.")
        if gold.get("ordered"):
            notes.append("The order of rows counts.")
    else:
        agent_rows, gold_rows = [str(row) for row in agent["rows"] or ()], [*map(str, gold["rows"])]
        if agent["rows"] is None:
            notes.append("The agent's last action gives no rows.")
    if state.get("digested") or state.get("ranked"):
        notes.append("Too long to be kept: equal numbers are equal rows.")
    ordered = "runs" not in gold or gold.get("ordered")
    section = (in_order if ordered else sides)("Result", agent_rows, gold_rows)
    equal = record.reward >= 1  # nothing else is compared
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


def _facts(counted: Mapping[str, Any]) -> list[str]:
    """Write facts as often as there are; a file may say anything of that."""
    lines: list[str] = []
    for fact, count in counted.items():
        is_small = isinstance(count, int) and count <= _MAX_TIMES
        lines += [fact] * count if is_small else [f"{fact} ({count} times)"]
    return lines


def _sql_changes(state: Mapping[str, Any]) -> list[Section]:
    agent, gold = state["agent"], state["gold"]
    sections = []
    for title, key in (("What was added", "added"), ("What was removed", "removed")):
        agent_facts, gold_facts = (_facts(side[key]) for side in (agent, gold))
        if agent_facts or gold_facts:
            sections.append(sides(title, agent_facts, gold_facts))
    if not sections:
        sections.append(sides("Changes to the database", [], []))
    if state.get("digested"):
        sections[0]["note"] = "Too long to be kept: equal digests are equal facts."
    if agent.get("uncommitted"):
        sections[0] |= {"note": "The agent left a transaction open; its work is undone."}
    return sections


# -- python and ctf


def _python(state: Mapping[str, Any], _: EpisodeRecord) -> list[Section]:
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


def _ctf(state: Mapping[str, Any], record: EpisodeRecord) -> list[Section]:
    submitted = state["agent"]["submitted"]
    solved = record.reward >= 1
    lines = [
        ["=" if solved and index == len(submitted) - 1 else "+", str(flag)]
        for index, flag in enumerate(submitted)
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


# -- swe


def _swe(state: Mapping[str, Any], record: EpisodeRecord) -> list[Section]:
    sections = []
    tests = state.get("tests")
    if isinstance(tests, Mapping):
        lines = []
        for name, mark, meaning in (
            ("unfixed", "!", "fails, and has to pass"),
            ("broken", "!", "passed before, and fails"),
            ("fixed", "=", "passes"),
            ("kept", "=", "passes as before"),
        ):
            lines += [[mark, test, meaning] for test in tests[name]]
        sections.append(table("Tests", ["test", "result"], lines))
    rewards = state.get("rewards")
    if isinstance(rewards, Mapping):  # of a machine's tests, which say themselves what they are
        lines = [["=" if v >= 1 else "!", name, f"{v:g}"] for name, v in rewards.items()]
        sections.append(table("Rewards", ["part", "value"], lines))
    if state["patch"] or not isinstance(rewards, Mapping):
        patch = state["patch"].splitlines()
        marked = [[line[0], line[1:]] if line[:1] in ("+", "-") else ["", line] for line in patch]
        patch_lines = _shortened(marked or [["", "nothing was changed"]])
        patched: Section = {"title": "Patch", "same": None, "lines": patch_lines}
        sections.append(_with_remaining(patched, len(marked)))
    if state["left_out"]:
        sections[-1]["note"] = f"Not tested: {', '.join(state['left_out'])}."
    return sections


# -- other environments


def _unknown_state(state: Mapping[str, Any], _: EpisodeRecord) -> list[Section]:
    agent_state, gold_state = (
        json.dumps(state.get(side), indent=1, sort_keys=True) for side in ("agent", "gold")
    )
    if "agent" in state and "gold" in state:
        return [texts("End state", agent_state, gold_state)]
    return [plain("End state", json.dumps(state, indent=1, sort_keys=True).split("\n"))]


_SHOWN: Mapping[str, Callable[[Mapping[str, Any], EpisodeRecord], list[Section]]] = {
    "bash": _bash,
    "sql": _sql,
    "python": _python,
    "ctf": _ctf,
    "swe": _swe,
}


# -- sections


def texts(title: str, agent: str, gold: str) -> Section:
    """Compare two texts line by line."""
    section = in_order(title, agent.splitlines(), gold.splitlines())
    if section["same"] and agent != gold:
        section |= {"same": False, "note": "Only the ends of lines differ."}
    return section


def in_order(title: str, agent: Sequence[str], gold: Sequence[str]) -> Section:
    """Compare lines in their order."""
    equal = list(agent) == list(gold)
    lines: list[list[str]]
    if equal:
        lines = [["=", line] for line in agent] or [["", "nothing on either side"]]
    elif max(len(agent), len(gold)) > _MAX_DIFFED:
        note = "Too long for a diff: the lines of each side, whatever their order."
        return {**sides(title, agent, gold), "same": False, "note": note}
    else:
        lines = _diff(gold, agent)
    return _with_remaining({"title": title, "same": equal, "lines": _shortened(lines)}, len(lines))


def plain(title: str, lines: Sequence[str]) -> Section:
    """Show lines that belong to neither side."""
    shortened = _shortened([["", line] for line in lines])
    return _with_remaining({"title": title, "same": None, "lines": shortened}, len(lines))


def _diff(gold: Sequence[str], agent: Sequence[str]) -> list[list[str]]:
    """Return gold's lines (``-``), the agent's (``+``) and, near them, what both have."""
    diff_lines: list[list[str]] = []
    matcher = difflib.SequenceMatcher(None, gold, agent, autojunk=False)
    for number, group in enumerate(matcher.get_grouped_opcodes(_CONTEXT)):
        if number:
            diff_lines.append(["", "..."])
        for kind, a, b, c, d in group:
            if kind == "equal":
                diff_lines += [["=", line] for line in gold[a:b]]
                continue
            diff_lines += [["-", line] for line in gold[a:b]]
            diff_lines += [["+", line] for line in agent[c:d]]
    return diff_lines


def sides(title: str, agent: Sequence[str], gold: Sequence[str]) -> Section:
    """Compare what each side has, whatever its order: what one lacks comes first."""
    gold_counts, agent_counts = Counter(gold), Counter(agent)
    lines = [["-", line] for line in (gold_counts - agent_counts).elements()]
    lines += [["+", line] for line in (agent_counts - gold_counts).elements()]
    equal = not lines
    lines += [["=", line] for line in (gold_counts & agent_counts).elements()]
    if not lines:
        lines = [["", "nothing on either side"]]
    return _with_remaining({"title": title, "same": equal, "lines": _shortened(lines)}, len(lines))


def table(title: str, head: list[str], lines: list[list[str]]) -> Section:
    """Compare what has a line of its own for both sides; what differs comes first."""
    lines.sort(key=lambda line: line[0] == "=")
    section: Section = {
        "title": title,
        "same": all(line[0] == "=" for line in lines),
        "lines": _shortened(lines),
    }
    if lines:
        section["head"] = head
    else:
        section["lines"] = [["", "nothing on either side"]]
    return _with_remaining(section, len(lines))


def _shortened(lines: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[mark, *map(_short, cells)] for mark, *cells in lines[:_MAX_LINES]]


def _short(text: str) -> str:
    return text if len(text) <= _MAX_CELL else f"{text[:_MAX_CELL]}... ({len(text)} characters)"


def _with_remaining(section: Section, lines: int) -> Section:
    if lines > _MAX_LINES:
        section["more"] = lines - _MAX_LINES
    return section
