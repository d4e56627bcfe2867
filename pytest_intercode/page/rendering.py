"""The page's HTML: templates of this folder, filled with runs.

All text of the runs is untrusted. What the template prints is escaped, and control characters and
marks that turn the direction of writing are shown as escapes; what scripts show is packed by
:mod:`pytest_intercode.page.trajectories`. The page may load nothing and may run its own script
alone, which its content security policy knows by its hash.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pytest_intercode.core.text import escape_for_terminal
from pytest_intercode.page import charts
from pytest_intercode.page.run import (
    Change,
    Kind,
    Run,
    changes,
    facts,
    groups_of,
    measures,
    outcomes,
    verdict,
)
from pytest_intercode.page.timeline import WIDTH, timeline
from pytest_intercode.page.trajectories import Blocks, index_of, packed
from pytest_intercode.results.summary import summarise

if TYPE_CHECKING:
    import jinja2

__all__ = ["render"]

_SCRIPTS = ("text.js", "packed.js", "state.js", "tasks.js", "trajectory.js", "start.js")
_MAX_LISTED = 24  # tasks that are solved less often, or more often, by name
_LESS: tuple[Kind, ...] = ("regressed", "failed now", "less often")
_MORE: tuple[Kind, ...] = ("improved", "solved now", "more often")

_BY_TURN = (
    "The share of tries whose reward had reached 1 by this turn. A try without the reward as "
    "feedback is graded at its end, so it counts from the turn in which it ended."
)


def render(runs: Sequence[Run], title: str, notes: Sequence[str] = ()) -> str:
    """Return the page of one run, or of two side by side; imports the extra ``html``.

    Args:
        runs: the runs, the older one first.
        title: what the page is called.
        notes: lines for its head.
    """
    from markupsafe import Markup

    environment = _environment()
    names = [run.name if len(runs) > 1 else "" for run in runs]
    blocks = Blocks()
    all_changes = changes(*runs) if len(runs) == 2 else []
    index = packed(index_of(runs, all_changes, blocks))
    style, script = _source("page.css"), "\n".join(map(_source, _SCRIPTS))
    script = f'"use strict";\n(() => {{\n{script}\n}})();\n'
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
        comparison=_comparison(runs, all_changes) if len(runs) == 2 else None,
        groups=[(grouping, groups_of(runs, grouping)) for grouping in ("env", "hardness")],
        charts=_charts(runs, names),
        size=(charts.WIDTH, charts.HEIGHT),
        lines_wide=WIDTH,
        style=Markup(style),
        script=Markup(script),
        hashes={"style": _hash(style), "script": _hash(script)},
        index=index,
        blocks=blocks.texts,
    )


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


def _comparison(runs: Sequence[Run], all_changes: Sequence[Change]) -> dict[str, Any]:
    """Return the verdict on two runs, and the tasks that are solved less and more often."""
    kinds = [change.kind for change in all_changes]
    paired_verdict = verdict(*runs)
    return {
        "verdict": paired_verdict,
        "sentence": paired_verdict
        and paired_verdict.sentence.removeprefix(f"{paired_verdict.kind}: "),
        "lists": [
            _listed("Solved less often", _LESS, all_changes),
            _listed("Solved more often", _MORE, all_changes),
        ],
        "same": kinds.count("same"),
        "only": [kinds.count("only before"), kinds.count("only after")],
        "not_graded": kinds.count("not graded"),
    }


def _listed(title: str, kinds: Sequence[Kind], all_changes: Sequence[Change]) -> dict[str, Any]:
    matching = [change for change in all_changes if change.kind in kinds]
    matching.sort(key=lambda change: kinds.index(change.kind))
    return {
        "title": title,
        "kinds": ",".join(kinds),
        "count": len(matching),
        "tasks": matching[:_MAX_LISTED],
    }


# -- templates


def _environment() -> jinja2.Environment:
    import jinja2

    def escape(value: Any) -> Any:
        # Markup is our own style and script; every other text may be an agent's, a key's too.
        return value if hasattr(value, "__html__") else escape_for_terminal(str(value))

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        autoescape=True,
        finalize=escape,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["fragment"] = lambda text: quote(text, safe="", errors="replace")
    return environment


def _source(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return a text's hash as content security policies write it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()
