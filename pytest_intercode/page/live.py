"""The page of ``pytest-intercode top``: one document, and the data that it gets each second.

The document contains no text of a run. The status of runs arrives as JSON, with each text escaped
and on one line, and the script turns it into text nodes. The document may run only its own script,
may send requests only to its own server, and may not be in a frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pytest_intercode.core.status import (
    EpisodeStatus,
    RunStatus,
    short_count,
    short_duration,
    short_rate,
)
from pytest_intercode.core.text import one_line, pluralize
from pytest_intercode.page.sources import join_scripts, join_styles, policy_hash, read_source

__all__ = ["LiveDocument", "describe_runs", "live_document"]


class LiveDocument(NamedTuple):
    """The document.

    Attributes:
        html: its HTML.
        policy: its content security policy, for the header of that name.
    """

    html: str
    policy: str


def live_document() -> LiveDocument:
    """Return the document, which is the same for all runs."""
    style, script = join_styles("base.css", "live.css"), join_scripts("text.js", "live.js")
    html = read_source("live.html").replace("{style}", style).replace("{script}", script)
    rules = (
        "default-src 'none'",
        f"style-src '{policy_hash(style)}'",
        f"script-src '{policy_hash(script)}'",
        "connect-src 'self'",
        "img-src data:",  # the icon, which is empty; without one, browsers request it
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
    return LiveDocument(html, "; ".join(rules))


def describe_runs(runs: Sequence[RunStatus], notes: Sequence[str] = ()) -> dict[str, Any]:
    """Return what the document shows, as a JSON object.

    Args:
        runs: the runs.
        notes: lines about runs that could not be asked.
    """
    return {
        "title": _title(runs),
        "notes": list(map(one_line, notes)),
        "runs": list(map(_describe_run, runs)),
    }


def _title(runs: Sequence[RunStatus]) -> str:
    if not runs:
        return "You have no runs on this machine"
    if len(runs) == 1:
        return f"{_progress(runs[0])} done"
    episodes = pluralize(sum(len(run.episodes) for run in runs), "episode")
    return f"{pluralize(len(runs), 'run')}, {episodes} under way"


def _progress(run: RunStatus) -> str:
    return f"{run.done} of {max(run.total, run.done)}"


def _describe_run(run: RunStatus) -> dict[str, Any]:
    total = max(run.total, run.done, 1)
    return {
        "key": str(run.pid),
        "pid": run.pid,
        "title": one_line(f"{run.name} (run {run.pid})" if run.name else f"run {run.pid}"),
        "folder": one_line(run.folder),
        "done": f"{100 * run.done / total:.2f}",
        "solved": f"{100 * min(run.solved, run.done) / total:.2f}",
        "measures": [{"key": name, "value": value} for name, value in _measures(run).items()],
        "episodes": list(map(_describe_episode, run.episodes)),
    }


def _measures(run: RunStatus) -> dict[str, str]:
    """Return the known measures of a run, by name."""
    measures = {
        "Under way": str(len(run.episodes)),
        "Done": _progress(run),
        "Solved": str(run.solved),
    }
    if run.per_minute is not None and run.remaining_seconds is not None:
        measures["Rate"] = short_rate(run.per_minute)
        measures["Remaining"] = short_duration(run.remaining_seconds)
    if run.all_tokens:
        measures["Tokens"] = short_count(run.all_tokens)
    if run.all_cost is not None:
        measures["Cost"] = f"{run.all_cost:.4g}"
    if run.silent:
        measures["Without an answer"] = pluralize(run.silent, "process", "processes")
    return measures


def _describe_episode(episode: EpisodeStatus) -> dict[str, str]:
    agent = [episode.agent, episode.treatment]
    if episode.repeat > 1:
        agent.append(f"try {episode.repeat}")
    texts = {
        "item": episode.item or episode.task,
        "agent": ", ".join(filter(None, agent)),
        "turns": episode.describe_turns(),
        "time": episode.describe_time(),
        "tokens": short_count(episode.tokens) if episode.tokens else "",
        "cost": episode.describe_cost(),
        "worker": episode.worker,
        "action": episode.describe_action(),
    }
    # The name is not shown; the page sends it back unchanged to stop the episode.
    names = {"key": f"{episode.worker} {episode.item}", "name": episode.item}
    return {**{name: one_line(text) for name, text in texts.items()}, **names}
