"""The page's HTML: templates of this folder, filled with runs.

All text of the runs is untrusted. The template's output is escaped, and control characters and
marks that change the direction of writing are shown as escapes; the data for scripts is packed by
:mod:`pytest_intercode.page.trajectories`. The content security policy allows the page to load
nothing, and to run only its own script, which it identifies by a hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from pytest_intercode.page import charts
from pytest_intercode.page.run import (
    Change,
    Kind,
    Run,
    cell_verdicts,
    changes,
    conclusion_of,
    facts,
    failures,
    groups_of,
    measures,
    outcomes,
    pair_runs,
    verdict,
)
from pytest_intercode.page.sources import (
    join_scripts,
    join_styles,
    policy_hash,
    template_environment,
)
from pytest_intercode.page.timeline import WIDTH, timeline
from pytest_intercode.page.trajectories import Blocks, index_of, packed
from pytest_intercode.results.cell_comparison import describe_verdicts
from pytest_intercode.results.cell_tables import cell_labels
from pytest_intercode.results.cells import by_cell
from pytest_intercode.results.differences import differences, heading_of
from pytest_intercode.results.gate import Conclusion
from pytest_intercode.results.summary import Summary, summarise

__all__ = ["render"]

_SCRIPTS = ("text.js", "packed.js", "state.js", "tasks.js", "trajectory.js", "start.js")
_MAX_COLOURS = 6  # cells that charts show separately; the style sheet has a colour for each
_MAX_LISTED = 24  # named tasks that are solved less often, or more often
_LESS: tuple[Kind, ...] = ("regressed", "failed now", "less often")
_MORE: tuple[Kind, ...] = ("improved", "solved now", "more often")

_BY_TURN = (
    "The share of tries whose reward had reached 1 by this turn. A try without the reward as "
    "feedback is graded at its end, so it counts from the turn in which it ended."
)


def render(
    runs: Sequence[Run],
    title: str,
    notes: Sequence[str] = (),
    conclusion: Conclusion | None = None,
) -> str:
    """Return the page of one run, or of two side by side; imports the extra ``html``.

    Args:
        runs: the runs, the older one first.
        title: the title of the page.
        notes: lines for its head.
        conclusion: whether a single run passed; by default, from its records.
    """
    from markupsafe import Markup

    environment = template_environment()
    cells = _cells(runs[0]) if len(runs) == 1 else None
    blocks = Blocks()
    all_changes = changes(*runs) if len(runs) == 2 else []
    index = packed(index_of(runs, all_changes, blocks))
    style, script = join_styles("base.css", "page.css"), join_scripts(*_SCRIPTS)
    page = environment.get_template("page.html")
    return page.render(
        title=title,
        notes=notes,
        runs=[
            {
                "name": run.name,
                "facts": facts(run),
                "measures": measures(summarise(run.tries)),
                "outcomes": outcomes(run),
                "failing": charts.failing_actions(run.tries),
                "timeline": timeline(run.tries),
            }
            for run in runs
        ],
        two=len(runs) == 2,
        comparison=_comparison(runs[0], runs[1], all_changes) if len(runs) == 2 else None,
        conclusion=(conclusion or conclusion_of(runs[0])) if len(runs) == 1 else None,
        failures=_failures(runs[0]) if len(runs) == 1 else None,
        cells=cells,
        groups=[(grouping, groups_of(runs, grouping)) for grouping in ("env", "hardness")],
        charts=_charts(*_charted(runs)),
        lines_wide=WIDTH,
        style=Markup(style),
        script=Markup(script),
        hashes={"style": policy_hash(style), "script": policy_hash(script)},
        index=index,
        blocks=blocks.texts,
    )


def _charted(runs: Sequence[Run]) -> tuple[Sequence[Run], list[str]]:
    """Return the runs that have their own colour in charts, and their names there."""
    if len(runs) == 2:
        return runs, [run.name for run in runs]
    tries_by_cell = by_cell(runs[0].tries)
    if not 1 < len(tries_by_cell) <= _MAX_COLOURS:
        return runs, [""]
    cell_runs = [replace(runs[0], tries=tries) for tries in tries_by_cell.values()]
    return cell_runs, list(map(str, tries_by_cell))


def _cells(run: Run) -> dict[str, Any] | None:
    """Return the cells of a run, their groups and their differences; None if it has one cell."""
    tries_by_cell = by_cell(run.tries)
    if len(tries_by_cell) < 2:
        return None
    headings, labels = cell_labels(list(tries_by_cell))
    cell_differences = differences(tries_by_cell)
    summaries = {cell: summarise(tries) for cell, tries in tries_by_cell.items()}
    return {
        "headings": headings,
        "coloured": len(tries_by_cell) <= _MAX_COLOURS,
        "names": list(map(str, tries_by_cell)),
        "rows": [
            {"cell": cell, "labels": labels[cell], "summary": summary}
            for cell, summary in summaries.items()
        ],
        "reports_tokens": any(summary.tokens for summary in summaries.values()),
        "reports_cost": any(summary.cost for summary in summaries.values()),
        "note": heading_of(cell_differences).removesuffix(":").removeprefix("cells "),
        "differences": cell_differences,
        "groups": [(grouping, _rates(run, grouping)) for grouping in ("env", "hardness")],
    }


def _failures(run: Run) -> dict[str, Any]:
    """Return the number of a run's unsolved tasks, the first of them, and their outcomes."""
    unsolved = failures(run)
    outcomes = dict.fromkeys(outcome for failure in unsolved for outcome in failure.outcomes)
    return {
        "count": len(unsolved),
        "tasks": unsolved[:_MAX_LISTED],
        "outcomes": ",".join(outcomes),
    }


def _rates(
    run: Run, grouping: Literal["env", "hardness"]
) -> list[tuple[str, list[Summary | None]]]:
    """Return the statistics of each group of a run in each cell; None if the cell has none."""
    cell_runs = [replace(run, tries=tries) for tries in by_cell(run.tries).values()]
    summaries: dict[str, list[Summary | None]] = {}
    for group in groups_of(cell_runs, grouping):
        summaries.setdefault(group.name, [None] * len(cell_runs))[group.run] = group.summary
    return list(summaries.items())


def _charts(runs: Sequence[Run], names: Sequence[str]) -> list[charts.Chart]:
    by_turn = [charts.solved_by_turn(run.tries) for run in runs]
    rewards = [charts.rewards(run.tries) for run in runs]
    turns = [charts.turns(run.tries) for run in runs]
    return [
        charts.steps("Solved by turn", _BY_TURN, names, by_turn),
        charts.bars(
            "Rewards", "0 and 1 stand alone; 0.3 is from 0.3 up.", "reward", names, rewards
        ),
        charts.bars("Turns taken", "", "turns", names, turns),
    ]


def _comparison(before: Run, after: Run, all_changes: Sequence[Change]) -> dict[str, Any]:
    """Return the verdict on two runs, and the tasks that are solved less and more often."""
    kinds = [change.kind for change in all_changes]
    return {
        **_verdict(before, after),
        "lists": [
            _listed("Solved less often", _LESS, all_changes),
            _listed("Solved more often", _MORE, all_changes),
        ],
        "same": kinds.count("same"),
        "only": [kinds.count("only before"), kinds.count("only after")],
        "not_graded": kinds.count("not graded"),
    }


def _verdict(before: Run, after: Run) -> dict[str, Any]:
    """Return the verdict's kind and sentence, and for several cells, the verdict on each."""
    pairs = pair_runs(before, after)
    if len(pairs) < 2:
        result = verdict(before, after)
        kind, _, sentence = result.sentence.partition(": ") if result else ("", "", "")
        return {"kind": kind, "sentence": sentence, "cells": []}
    verdicts = cell_verdicts(before, after)
    kind, _, sentence = describe_verdicts(verdicts).partition(": ")
    cells = [
        {
            "cell": cell,
            "summaries": [summarise(run.tries) for run in pair],
            "verdict": cell and verdicts.get(cell),
        }
        for cell, pair in pairs
    ]
    return {"kind": kind if verdicts else "", "sentence": sentence, "cells": cells}


def _listed(title: str, kinds: Sequence[Kind], all_changes: Sequence[Change]) -> dict[str, Any]:
    matching = [change for change in all_changes if change.kind in kinds]
    matching.sort(key=lambda change: kinds.index(change.kind))
    return {
        "title": title,
        "kinds": ",".join(kinds),
        "count": len(matching),
        "tasks": matching[:_MAX_LISTED],
    }
