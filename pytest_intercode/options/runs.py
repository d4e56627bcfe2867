"""Options for how a run proceeds, and for its results.

Each class is a group of options, as ``--intercode-help`` shows them.
"""

from __future__ import annotations

from pathlib import Path

from pytest_intercode.core.values import amount, cluster
from pytest_intercode.options.option import (
    Option,
    Values,
    choices,
    flag,
    listed,
    option,
    optional,
    switch,
)
from pytest_intercode.options.parsers import (
    parse_count,
    parse_fail_under,
    parse_rate,
    parse_seconds,
    parse_spans_target,
)

__all__ = ["ClusterOptions", "EpisodeOptions", "GateOptions", "ResultOptions"]


class EpisodeOptions(Values):
    """The number of episodes, and how many run at a time."""

    title = "episodes"

    requested_concurrency = optional(
        "concurrency=N",
        "number of episodes that run at a time, in all xdist workers together or on all nodes",
        parse_count,
        fallback="1; on a cluster, as many as its nodes have CPUs",
        everyday=True,
    )
    requested_repeat = option(
        "repeat=K",
        "number of tries at each task, each with a new agent and sandbox: items `[task-1]` to "
        "`[task-K]`",
        parse_count,
        default="1",
        same_in_parts=True,
    )
    stop_early = switch(
        "stop-early=true|false",
        "skip the tries of a task that can no longer change whether it reaches its pass rate",
        default="true",
    )
    plan = flag(
        "plan",
        "show what would be run, how often, and about how many tokens and how much money it "
        "would take, without running it",
        starts=True,
        everyday=True,
    )
    plan_from = optional(
        "plan-from=FILE.jsonl",
        "the earlier results from which the plan estimates tokens and cost",
        Path,
        fallback="`--intercode-baseline`, else `--intercode-results`",
        needs=("plan", "which uses it"),
    )
    progress_interval = option(
        "progress=SECONDS",
        "interval between two progress lines where there is no terminal; 0 for none",
        amount("a number of seconds from 0 up", zero=True),
        default="30",
    )


class ClusterOptions(Values):
    """Running episodes on a cluster."""

    title = "episodes on a Ray cluster"

    cluster = optional(
        "cluster=auto|HOST:PORT|local:N",
        "run episodes on the nodes of a Ray cluster: the one of `RAY_ADDRESS` or of this "
        "machine, the one at this address, or one of N nodes that is started here "
        "(docs/cluster.md); needs the extra `ray`",
        cluster,
        starts=True,
    )
    cluster_env = listed(
        "cluster-env=NAME",
        "an environment variable of this process that is set on the nodes; they get no others",
        str,
        needs=("cluster", "whose nodes get it"),
    )
    cluster_wait = option(
        "cluster-wait=SECONDS",
        "how long a run waits while no node accepts work",
        parse_seconds,
        default="300",
    )
    cluster_insecure = flag(
        "cluster-insecure",
        "use a cluster that does not ask for a token",
        needs=("cluster", "to which it applies"),
    )


class ResultOptions(Values):
    """The results that are written, and where."""

    title = "results"

    results = optional(
        "results=FILE.jsonl",
        "write one line of JSON for each episode as it ends",
        Path,
        everyday=True,
    )
    resume = flag(
        "resume",
        "continue the run in `--intercode-results`: episodes that it holds are not run again",
        starts=True,
        needs=("results", "the run to continue"),
    )
    html = optional(
        "html=FILE.html",
        "write a page with every trajectory and, with a baseline, what changed; needs the extra "
        "`html`",
        Path,
        starts=True,
        everyday=True,
    )
    run_name = optional(
        "run-name=NAME",
        "name of the run on the page and in a job's summary",
        str,
        fallback="the agent and its suites",
    )
    predictions = optional(
        "predictions=FILE.jsonl",
        "write the patch of each swe episode as it ends, in the format of SWE-bench's tools "
        "(`instance_id`, `model_patch`)",
        Path,
    )
    otel = optional(
        "otel=URL|FILE|env",
        "send spans of each episode, its turns, its model requests and its grading to an "
        "OpenTelemetry collector over HTTP, or write them to a file; `env` uses the address in "
        "`OTEL_EXPORTER_OTLP_ENDPOINT` (docs/opentelemetry.md); needs the extra `otel`",
        parse_spans_target,
    )
    otel_content = flag(
        "otel-content",
        "include the texts of tasks, actions and observations in the spans of `--intercode-otel`",
    )


class GateOptions(Values):
    """The conditions under which a run fails."""

    title = "whether the run passes"

    baseline = optional(
        "baseline=FILE.jsonl",
        "results to compare with: tasks that were not always solved there may fail (xfail), and "
        "the summary reports whether the agent got worse",
        Path,
        starts=True,
        everyday=True,
    )
    requested_gate: Option[str | None] = choices(
        "gate=tasks|verdict",
        "which part of that comparison fails the run: single tasks, or the verdict of the paired "
        "test",
        fallback="`verdict` with several tries at each task and no pass rate, else `tasks`",
    )
    requested_pass_rate = optional(
        "pass-rate=RATE",
        "the share of the tries at a task that must be solved, such as `0.8`; the other tries "
        "may fail, and are then reported as expected failures (docs/results.md)",
        parse_rate,
        same_in_parts=True,
    )
    fail_under = optional(
        "fail-under=RATE",
        "the share of all tries that must be solved, such as `0.8`, or `lower:0.8` for the lower "
        "bound of its 95-percent interval; single tasks then do not fail the run",
        parse_fail_under,
        starts=True,
    )
