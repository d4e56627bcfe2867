"""A comparison in lines for the terminal. Pure: nothing is read or written."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_intercode.core.text import format_columns, one_line, pluralize
from pytest_intercode.results.cell_comparison import ComparedCells
from pytest_intercode.results.comparison import KINDS, Change, Compared, Difference, Run
from pytest_intercode.results.summary import Summary, format_number, summarise

__all__ = ["cell_lines", "lines"]

_MAX_SHOWN = 10  # tasks of each kind of change
_MAX_NAMED = 5  # tasks that only one run has
_MAX_WIDTH = 88  # characters of an action or observation
_MEANINGS = {
    "broke": "solved before, in no try now",
    "less often": "solved in fewer tries",
    "fixed": "in no try before, solved now",
    "more often": "solved in more tries",
}


def lines(compared: Compared, *, everything: bool = False) -> list[str]:
    """Return what changed, the tables and the verdict.

    Args:
        compared: the comparison.
        everything: name every task that changed.
    """
    return [
        f"before: {_run(compared.before)}",
        f"after:  {_run(compared.after)}",
        *_body(compared, everything),
    ]


def cell_lines(compared: ComparedCells, *, everything: bool = False) -> list[str]:
    """Return the same for two runs with several cells: for each cell, and then for the whole.

    Args:
        compared: the comparison.
        everything: name every task that changed.
    """
    if compared.single is not None:
        return lines(compared.single, everything=everything)
    output = [f"before: {_run(compared.before)}", f"after:  {_run(compared.after)}"]
    for cell, comparison in compared.cells.items():
        output += ["", one_line(f"== {cell} =="), *_body(comparison, everything)]
    for title, cells in (
        ("only before", compared.only_before),
        ("only after", compared.only_after),
    ):
        if cells:
            output += ["", one_line(f"cells {title}: {', '.join(map(str, cells))}")]
    return [*output, "", one_line(compared.sentence)]


def _body(compared: Compared, everything: bool) -> list[str]:
    """Return what changed, the tables and the verdict, without the names of the runs."""
    output = _changes(compared.changes, everything)
    ungraded = compared.before.ungraded, compared.after.ungraded
    if any(ungraded):
        output += [
            "",
            "left out, as the task or the infrastructure failed: "
            f"{pluralize(ungraded[0], 'try', 'tries')} before, {ungraded[1]} after",
        ]
    if compared.verdict.tasks:
        output += ["", *_tables(compared)]
    return [*output, "", compared.verdict.sentence]


def _run(run: Run) -> str:
    summary = summarise(run.tries)
    facts = [pluralize(summary.tasks, "task"), pluralize(summary.tries, "try", "tries")]
    settings = run.settings()
    facts += [f"{name} {settings[name]}" for name in ("agent", "profile") if settings[name]]
    return one_line(f"{run.path}: {', '.join(facts)}")


# -- the tasks that changed


def _changes(changes: Sequence[Change], everything: bool) -> list[str]:
    output = []
    for kind in KINDS:
        matching = [candidate for candidate in changes if candidate.kind == kind]
        if not matching:
            continue
        if kind in _MEANINGS:
            output += ["", f"{kind} ({_MEANINGS[kind]}): {len(matching)}"]
            shown_changes = matching if everything else matching[:_MAX_SHOWN]
            for change in shown_changes:
                output += _task(change)
            if len(matching) > len(shown_changes):
                output.append(
                    f"  ... and {len(matching) - len(shown_changes)} more; --all names them"
                )
        elif kind == "as before":
            output += ["", f"as before: {len(matching)}"]
        else:
            shown_changes = matching if everything else matching[:_MAX_NAMED]
            names = ", ".join(one_line(str(change.key)) for change in shown_changes)
            hidden = len(matching) - len(shown_changes)
            remainder = f", and {hidden} more" if hidden else ""
            output += ["", f"{kind}: {len(matching)} ({names}{remainder})"]
    return output


def _task(change: Change) -> list[str]:
    name = one_line(f"{change.key.env} {change.key}".strip())
    chance = f" (within chance, p {change.p:.2g})" if change.p and change.by_chance else ""
    line = f"  {name}  {change.before} -> {change.after}{chance}"
    if change.difference is None:
        return [line]
    sides = [f"      {side}" for side in _sides(change.difference)]
    return [f"{line}  {_where(change.difference)}", *sides]


def _where(difference: Difference) -> str:
    if difference.what == "action":
        return f"turn {difference.turn}: another action"
    if difference.what == "observation":
        return f"turn {difference.turn}: the same action, another observation (not deterministic)"
    if difference.what == "end":
        return f"turn {difference.turn}: only one went on"
    return "the same actions and observations, graded otherwise"


def _sides(difference: Difference) -> list[str]:
    if difference.what == "nothing":
        return []
    context = []
    if difference.what == "observation":
        context.append(f"action: {_short(_one_line(difference.action))}")
    if difference.before is None or difference.after is None:
        sides = [text and _one_line(text) for text in (difference.before, difference.after)]
    else:
        sides = [*_from_difference(difference.before, difference.after)]
    old_line, new_line = ("(over)" if text is None else _short(text) for text in sides)
    return [*context, f"before: {old_line}", f"after:  {new_line}"]


def _from_difference(before: str, after: str) -> tuple[str, str]:
    """Return two texts on one line each; cut their beginning if it would hide the difference."""
    old, new = _one_line(before), _one_line(after)
    if old == new:  # only blanks differ: show them
        return repr(before), repr(after)
    common_length = next(
        (index for index, (x, y) in enumerate(zip(old, new, strict=False)) if x != y),
        min(len(old), len(new)),
    )
    if common_length < _MAX_WIDTH - 20 or max(len(old), len(new)) <= _MAX_WIDTH:
        return old, new
    start = common_length - _MAX_WIDTH // 3
    return f"... {old[start:]}", f"... {new[start:]}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _short(line: str) -> str:
    line = one_line(line) or "(nothing)"
    return line if len(line) <= _MAX_WIDTH else f"{line[: _MAX_WIDTH - 4]} ..."


# -- the tables


def _tables(compared: Compared) -> list[str]:
    rows = [["by", "value", "tasks", "rate before", "after", "points", "reward before", "after"]]
    for group in compared.groups():
        older, newer = group.before, group.after
        points = "-"
        if older.rate is not None and newer.rate is not None:
            points = f"{100 * (newer.rate - older.rate):+.1f}"
        rows.append(
            [
                group.by,
                group.value,
                str(older.tasks),
                _rate(older),
                _rate(newer),
                points,
                format_number(older.reward),
                format_number(newer.reward),
            ]
        )
    return format_columns(rows, labels=2)


def _rate(summary: Summary) -> str:
    if summary.rate is None or summary.rate_interval is None:
        return "-"
    low, high = summary.rate_interval
    return f"{summary.rate:.1%} ({100 * low:.0f}-{100 * high:.0f})"
