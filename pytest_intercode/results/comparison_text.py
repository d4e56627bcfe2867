"""A comparison in lines for the terminal. Pure: nothing is read or written."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_intercode.core.text import format_columns, one_line, pluralize
from pytest_intercode.results.comparison import KINDS, Change, Compared, Difference, Run
from pytest_intercode.results.summary import Summary, summarise

__all__ = ["lines"]

_SHOWN = 10  # tasks of each kind of change
_NAMED = 5  # tasks that only one run has
_WIDTH = 88  # of an action
_MEANINGS = {
    "broke": "solved before, in no try now",
    "less often": "solved in fewer tries",
    "mended": "in no try before, solved now",
    "more often": "solved in more tries",
}


def lines(compared: Compared, *, everything: bool = False) -> list[str]:
    """Return what changed, the tables and the verdict.

    Args:
        compared: the comparison.
        everything: name every task that changed.
    """
    found = [f"before: {_run(compared.before)}", f"after:  {_run(compared.after)}"]
    found += _changes(compared.changes, everything)
    ungraded = compared.before.ungraded, compared.after.ungraded
    if any(ungraded):
        found += [
            "",
            "left out, as the task or the infrastructure spoiled them: "
            f"{pluralize(ungraded[0], 'try', 'tries')} before, {ungraded[1]} after",
        ]
    if compared.verdict.tasks:
        found += ["", *_tables(compared)]
    return [*found, "", compared.verdict.sentence]


def _run(run: Run) -> str:
    made = summarise(run.tries)
    said = [pluralize(made.tasks, "task"), pluralize(made.tries, "try", "tries")]
    settings = run.settings()
    said += [f"{name} {settings[name]}" for name in ("agent", "profile") if settings[name]]
    return one_line(f"{run.path}: {', '.join(said)}")


# -- the tasks that changed


def _changes(changes: Sequence[Change], everything: bool) -> list[str]:
    found = []
    for kind in KINDS:
        those = [each for each in changes if each.kind == kind]
        if not those:
            continue
        if kind in _MEANINGS:
            found += ["", f"{kind} ({_MEANINGS[kind]}): {len(those)}"]
            shown = those if everything else those[:_SHOWN]
            for each in shown:
                found += _task(each)
            if len(those) > len(shown):
                found.append(f"  ... and {len(those) - len(shown)} more; --all names them")
        elif kind == "as before":
            found += ["", f"as before: {len(those)}"]
        else:
            shown = those if everything else those[:_NAMED]
            named = ", ".join(one_line(str(each.key)) for each in shown)
            more = f", and {len(those) - len(shown)} more" if len(those) > len(shown) else ""
            found += ["", f"{kind}: {len(those)} ({named}{more})"]
    return found


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
    same = []
    if difference.what == "observation":
        same.append(f"action: {_short(_one_line(difference.action))}")
    if difference.before is None or difference.after is None:
        sides = [text and _one_line(text) for text in (difference.before, difference.after)]
    else:
        sides = [*_from_difference(difference.before, difference.after)]
    before, after = ("(over)" if text is None else _short(text) for text in sides)
    return [*same, f"before: {before}", f"after:  {after}"]


def _from_difference(before: str, after: str) -> tuple[str, str]:
    """Return two texts on one line each, without a beginning that would hide the difference."""
    old, new = _one_line(before), _one_line(after)
    if old == new:  # only blanks differ: show them
        return repr(before), repr(after)
    same = next(
        (at for at, (x, y) in enumerate(zip(old, new, strict=False)) if x != y),
        min(len(old), len(new)),
    )
    if same < _WIDTH - 20 or max(len(old), len(new)) <= _WIDTH:
        return old, new
    cut = same - _WIDTH // 3
    return f"... {old[cut:]}", f"... {new[cut:]}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _short(line: str) -> str:
    line = one_line(line) or "(nothing)"
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 4]} ..."


# -- the tables


def _tables(compared: Compared) -> list[str]:
    rows = [["by", "value", "tasks", "rate before", "after", "points", "reward before", "after"]]
    for group in compared.groups():
        was, now = group.before, group.after
        points = "-"
        if was.rate is not None and now.rate is not None:
            points = f"{100 * (now.rate - was.rate):+.1f}"
        rows.append(
            [
                group.by,
                group.value,
                str(was.tasks),
                _rate(was),
                _rate(now),
                points,
                _reward(was),
                _reward(now),
            ]
        )
    return format_columns(rows, labels=2)


def _rate(summary: Summary) -> str:
    if summary.rate is None or summary.rate_interval is None:
        return "-"
    low, high = summary.rate_interval
    return f"{summary.rate:.1%} ({100 * low:.0f}-{100 * high:.0f})"


def _reward(summary: Summary) -> str:
    return "-" if summary.reward is None else f"{summary.reward:.3f}"
