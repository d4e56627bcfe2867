"""Reads a log with inspect_ai itself and prints what it found, as JSON; imports nothing of ours.

python inspect_reader.py LOG AGAIN

It also has the package write the log anew, to AGAIN, and read that.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any


def read(path: str, again: str) -> dict[str, Any]:
    """Return what the package says of a log."""
    package: Any = import_module("inspect_ai.log")
    log = package.read_eval_log(path)
    first = log.samples[0]
    package.write_eval_log(log, again)
    return {
        "status": log.status,
        "model": log.eval.model,
        "metrics": {
            score.name: {name: metric.value for name, metric in score.metrics.items()}
            for score in log.results.scores
        },
        "samples": [_sample(sample) for sample in log.samples],
        "total in the head": package.read_eval_log(path, header_only=True).results.total_samples,
        "summaries": len(package.read_eval_log_sample_summaries(path)),
        "by its id": package.read_eval_log_sample(path, id=first.id, epoch=first.epoch).input,
        "again": [_sample(sample) for sample in package.read_eval_log(again).samples],
        "tables": _tables(log),
    }


def _tables(log: Any) -> dict[str, Any]:
    """Return what the package's dataframes say of a log."""
    analysis: Any = import_module("inspect_ai.analysis")
    timed = [*analysis.EventInfo, *analysis.EventTiming]
    samples = analysis.samples_df(log, quiet=True)
    messages = analysis.messages_df(log, quiet=True)
    events = analysis.events_df(log, columns=timed, quiet=True)
    models, tools = (
        analysis.events_df(
            log, columns=[*timed, *columns], filter=lambda e, kind=kind: e.event == kind, quiet=True
        )
        for kind, columns in (
            ("model", analysis.ModelEventColumns),
            ("tool", analysis.ToolEventColumns),
        )
    )
    for table, name in ((samples, "sample_id"), (messages, "message_id"), (events, "event_id")):
        assert table[name].is_unique, name
    return {
        "samples": len(samples),
        "messages": messages.groupby("sample_id")["role"].agg(list).to_dict(),
        "events": events.groupby("sample_id")["event"].agg(list).to_dict(),
        "calls": tools["tool_event_function"].tolist(),
        "results": tools["tool_event_result"].tolist(),
        "completions": models["model_event_completion"].tolist(),
        "inputs": models["model_event_input"].tolist(),
    }


def _sample(sample: Any) -> dict[str, Any]:
    messages = sample.messages
    return {
        "id": sample.id,
        "epoch": sample.epoch,
        "uuid": sample.uuid,
        "input": sample.input,
        "task": sample.metadata["task"],
        "scores": {name: score.value for name, score in (sample.scores or {}).items()},
        "error": sample.error and sample.error.message,
        "limit": sample.limit and sample.limit.type,
        "turns": sample.turn_count,
        "per turn": [
            ["model", *(["tool"] if message.tool_calls else [])]
            for message in messages
            if message.role == "assistant" and message.id.endswith("a")  # others talk to the user
        ],
        "roles": [message.role for message in messages],
        "calls": [
            [call.id, call.function, call.arguments]
            for message in messages
            for call in getattr(message, "tool_calls", None) or ()
        ],
        "results": [
            [message.tool_call_id, message.text] for message in messages if message.role == "tool"
        ],
        "tokens": {name: usage.total_tokens for name, usage in sample.model_usage.items()},
    }


if __name__ == "__main__":
    print(json.dumps(read(*sys.argv[1:])))
