"""Episodes as a log of inspect_ai: an ``.eval`` archive, or one object of JSON.

The output's name decides which of the two, as in inspect_ai itself. All tries of a results file are
one log: a task is a sample, a try is an epoch. There are two scores, ``reward`` and ``solved``; an
episode that failed because of the task or the infrastructure is an error without a score.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

from pytest_intercode.core.conversation import Exchange, group_by_turn
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.text import first_names
from pytest_intercode.core.turn import Turn
from pytest_intercode.core.usage import UNSPENT, Usage
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.export.actions import answer_of, call_of, clean, facts_of, filled
from pytest_intercode.export.source import Brief, Source
from pytest_intercode.system.files import is_packed, writing

__all__ = ["write"]

_VERSION = 2  # of the log's format
_NO_MODEL = "none/none"  # inspect_ai's name for no model
_MAX_SUMMARY_TEXT = 1000  # characters of a text in a summary
_EARLIEST = (1980, 1, 1, 0, 0, 0)  # in an archive; fixed, so that equal episodes give equal bytes


def write(source: Source, output: Path) -> None:
    """Write every try of a results file into one log.

    Raises:
        ConfigurationError: the output cannot be written, or is to be packed with gzip.
    """
    if is_packed(output):
        raise ConfigurationError(
            f"--output={output}: inspect_ai reads no log with gzip; name it .eval, which is "
            "packed, or .json"
        )
    write_as = _write_json if output.suffix.lower() == ".json" else _write_archive
    with writing(output, option="--output") as file:
        write_as(source, file)


def _write_archive(source: Source, file: BinaryIO) -> None:
    head = _head(source)
    start = {name: head[name] for name in ("version", "eval", "plan")}
    summaries = []
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "_journal/start.json", _json(start))
        for brief, record in source:
            sample = _sample(brief, record, source)
            summaries.append(_json(_summary(sample)))
            _add(archive, f"samples/{brief.name}_epoch_{brief.repeat}.json", _json(sample))
        _add(archive, "summaries.json", f"[{','.join(summaries)}]")
        _add(archive, "header.json", _json(head))


def _add(archive: zipfile.ZipFile, name: str, text: str) -> None:
    member = zipfile.ZipInfo(name, _EARLIEST)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = 0o644 << 16
    archive.writestr(member, text)


def _write_json(source: Source, file: BinaryIO) -> None:
    head = _json(_head(source))
    file.write(f'{head[:-1]},"samples":['.encode())
    for number, (brief, record) in enumerate(source):
        file.write(f"{',' if number else ''}\n{_json(_sample(brief, record, source))}".encode())
    file.write(b"\n]}\n")


def _json(value: Any) -> str:
    return json.dumps(clean(value), ensure_ascii=True, allow_nan=False)


# -- the log


def _head(source: Source) -> dict[str, Any]:
    """Return the log without its samples."""
    briefs = source.briefs
    names = list(dict.fromkeys(brief.name for brief in briefs))
    suites = list(dict.fromkeys(brief.suite for brief in briefs))
    agent = _named(brief.agent for brief in briefs)
    model = _named(brief.model for brief in briefs) or _NO_MODEL
    created = source.modified.isoformat(timespec="seconds")
    identity = source.digest
    graded = [brief for brief in briefs if brief.reward is not None]
    usage: dict[str, Any] = {}
    for name in dict.fromkeys(brief.model or _NO_MODEL for brief in briefs):
        model_usage = sum((b.usage for b in briefs if (b.model or _NO_MODEL) == name), UNSPENT)
        usage |= {name: _usage(model_usage)} if model_usage else {}
    return {
        "version": _VERSION,
        "status": "success",
        "eval": {
            "eval_id": identity[:22],
            "run_id": identity[:22],
            "created": created,
            "task": first_names(suites),
            "task_id": identity[22:],
            "task_version": 0,
            "solver": agent,
            "dataset": {
                "name": ", ".join(suites),
                "location": source.path.name,
                "samples": len(names),
                "sample_ids": names,
                "shuffled": False,
            },
            "model": model,
            "config": {"epochs": max(brief.repeat for brief in briefs)},
            "packages": {"pytest-intercode": version("pytest-intercode")},
        },
        "plan": {"name": "plan", "steps": [{"solver": agent or "unknown"}]},
        "results": {
            "total_samples": len(briefs),
            "completed_samples": len(graded),
            "scores": [
                _score("reward", "mean", [brief.reward or 0.0 for brief in graded], len(briefs)),
                _score(
                    "solved", "accuracy", [float(brief.solved) for brief in graded], len(briefs)
                ),
            ],
        },
        "stats": {"model_usage": usage},
    }


def _named(values: Iterable[str]) -> str:
    """Return the different non-empty values, as a log has one field for all samples."""
    return first_names(dict.fromkeys(filter(None, values)))


def _score(name: str, metric: str, values: Sequence[float], tries: int) -> dict[str, Any]:
    mean = sum(values) / len(values) if values else None
    return {
        "name": name,
        "scorer": name,
        "scored_samples": len(values),
        "unscored_samples": tries - len(values),
        "metrics": {} if mean is None else {metric: {"name": metric, "value": mean}},
    }


def _usage(usage: Usage) -> dict[str, Any]:
    of_caches = usage.cached_tokens + usage.cache_write_tokens
    fields = {
        "input_tokens": max(0, usage.input_tokens - of_caches),  # inspect_ai counts these apart
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.tokens,
        "total_cost": usage.cost,
    }
    parts = {
        "input_tokens_cache_read": usage.cached_tokens,
        "input_tokens_cache_write": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }
    return {**fields, **{name: number for name, number in parts.items() if number}}


# -- a sample


def _sample(brief: Brief, record: EpisodeRecord, source: Source) -> dict[str, Any]:
    model = brief.model or _NO_MODEL
    # Readers of several logs identify samples and messages only by their ids.
    identity = _identity(source.digest, brief.name, brief.repeat)
    messages = _messages(record, brief.model, identity)
    facts = facts_of(record)
    # A log has one solver, but a run may have several agents.
    agent = filled({"agent": record.agent, "agent_arguments": dict(record.agent_arguments)})
    answer = answer_of(record)
    sample: dict[str, Any] = {
        "id": brief.name,
        "epoch": brief.repeat,
        "input": record.task.query,
        "target": "",  # gold is not in records
        "messages": messages,
        "output": {
            "model": model,
            "choices": [
                {
                    "message": {"role": "assistant", "content": answer, "source": "generate"},
                    "stop_reason": "stop",
                }
            ],
            "completion": answer,
        },
        "metadata": agent | facts,
        "model_usage": {model: _usage(record.usage)} if record.usage else {},
        "turn_count": len(record.turns),
        "total_time": record.seconds,
        "uuid": identity,
    }
    if brief.reward is not None:
        explanation = {
            "answer": answer,
            "explanation": record.reason or record.headline,
            "metadata": {"outcome": record.outcome, "parts": dict(record.parts)},
        }
        sample["scores"] = {
            "reward": {"value": brief.reward, **explanation},
            "solved": {"value": "C" if brief.solved else "I", **explanation},
        }
    if record.outcome.endswith("-error"):
        message = f"{record.outcome}: {record.reason}"
        trace = record.detail or message
        sample["error"] = {"message": message, "traceback": trace, "traceback_ansi": trace}
    if record.outcome in ("out-of-budget", "timed-out", "stopped"):
        sample["limit"] = _limit(record)
    sample["events"] = _events(sample, record, _began(record, source))
    sample["events_data"] = {"messages": messages, "calls": []}
    return dict(clean({name: value for name, value in sample.items() if value is not None}))


def _limit(record: EpisodeRecord) -> dict[str, Any]:
    if record.outcome == "timed-out":
        kind, limit = "time", record.seconds
    elif record.outcome == "stopped":
        kind, limit = "operator", 1.0
    elif record.max_turns and len(record.turns) >= record.max_turns:
        kind, limit = "turn", float(record.max_turns)
    else:
        kind, limit = "custom", float(record.usage.tokens)
    return {"type": kind, "limit": limit, "reason": record.reason or None}


def _identity(*parts: object) -> str:
    return hashlib.sha1(repr(parts).encode("utf-8", "replace")).hexdigest()[:22]


def _messages(record: EpisodeRecord, model: str, sample: str) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [
        {"id": f"{sample}-0", "role": "user", "content": record.task.query, "source": "input"}
    ]
    dialogue = group_by_turn(record.dialogue, len(record.turns))
    messages += _exchange_messages(dialogue.get(0, ()), f"{sample}-0")
    for number, turn in enumerate(record.turns, 1):
        call = call_of(record.task.env, turn)
        message: dict[str, Any] = {
            "id": f"{sample}-{number}a",
            "role": "assistant",
            "content": _content(turn, "" if call is not None else turn.action),
            "source": "generate",
        }
        if model:
            message["model"] = model
        messages.append(message)
        if call is None:
            messages.append(
                {"id": f"{sample}-{number}b", "role": "user", "content": turn.observation}
            )
            messages += _exchange_messages(dialogue.get(number, ()), f"{sample}-{number}")
            continue
        name = f"call_{number}"
        message["tool_calls"] = [
            {"id": name, "function": call.name, "arguments": call.arguments, "type": "function"}
        ]
        if turn.observation or call.name != "submit":
            messages.append(
                {
                    "id": f"{sample}-{number}b",
                    "role": "tool",
                    "content": turn.observation,
                    "tool_call_id": name,
                    "function": call.name,
                }
            )
        messages += _exchange_messages(dialogue.get(number, ()), f"{sample}-{number}")
    return messages


def _exchange_messages(exchanges: Sequence[Exchange], prefix: str) -> Iterator[dict[str, Any]]:
    """Yield the messages of what agent and user said.

    Args:
        exchanges: what was said.
        prefix: the prefix of their ids.
    """
    for number, exchange in enumerate(exchanges, 1):
        yield {
            "id": f"{prefix}s{number}",
            "role": "assistant",
            "content": exchange.message,
            "source": "generate",
        }
        if exchange.reply is not None:
            yield {"id": f"{prefix}u{number}", "role": "user", "content": exchange.reply}


def _content(turn: Turn, text: str) -> str | list[dict[str, str]]:
    if not turn.thought:
        return text
    return [{"type": "reasoning", "reasoning": turn.thought}, {"type": "text", "text": text}]


# -- events


def _began(record: EpisodeRecord, source: Source) -> datetime:
    """Return when the agent began; if that is not known, when the file was written."""
    began, _ = record.phases.get("agent") or record.phases.get("run") or (0.0, 0.0)
    with contextlib.suppress(ValueError, OverflowError, OSError):  # a number that is not a time
        if began > 0:
            return datetime.fromtimestamp(began, timezone.utc)
    return source.modified


def _events(sample: dict[str, Any], record: EpisodeRecord, began: datetime) -> list[dict[str, Any]]:
    """Return the events, in order, for dataframes and the viewer's transcript.

    Each turn is one request to a model, as records do not have the requests themselves. Its input
    is a reference to the first of the sample's messages, so that the log grows with the number of
    turns and not with its square.
    """
    events: list[dict[str, Any]] = []
    seconds = 0.0

    def add(event: str, **fields: Any) -> None:
        events.append(
            {
                "event": event,
                "uuid": f"{sample['uuid']}-{len(events)}",
                "timestamp": _time(began, seconds),
                "working_start": seconds,
                **fields,
            }
        )

    add("sample_init", sample={name: sample[name] for name in ("id", "input", "target")})
    places = {message["id"]: place for place, message in enumerate(sample["messages"])}
    for number, turn in enumerate(record.turns, 1):
        place = places[f"{sample['uuid']}-{number}a"]
        message = sample["messages"][place]
        following = sample["messages"][place + 1 : place + 2]
        answer = [reply for reply in following if reply["role"] == "tool"]
        calls = message.get("tool_calls", ())
        model = sample["output"]["model"]
        output = {
            "model": model,
            "choices": [{"message": message, "stop_reason": "tool_calls" if calls else "stop"}],
            "completion": turn.action if not calls else "",
            "time": turn.agent_seconds,
            **({"usage": _usage(turn.usage)} if turn.usage else {}),
        }
        add(
            "model",
            model=model,
            input=[],
            input_refs=[[0, place]],
            tools=[],
            tool_choice="auto",
            config={},
            output=output,
            completed=_time(began, seconds + turn.agent_seconds),
            working_time=turn.agent_seconds,
        )
        seconds += turn.agent_seconds
        for call in calls:
            add(
                "tool",
                **call,
                result=turn.observation,
                completed=_time(began, seconds + turn.seconds),
                working_time=turn.seconds,
                **({"message_id": answer[0]["id"]} if answer else {}),
            )
        seconds += turn.seconds
    if "limit" in sample:
        limit = sample["limit"]
        message = limit["reason"] or record.headline
        add("sample_limit", type=limit["type"], limit=limit["limit"], message=message)
    if "error" in sample:
        add("error", error=sample["error"])
    for name, score in sample.get("scores", {}).items():
        add("score", score=score, target=sample["target"], scorer=name)
    return events


def _time(began: datetime, seconds: float) -> str:
    with contextlib.suppress(ValueError, OverflowError):  # another program may have written it
        began += timedelta(seconds=seconds)
    return began.isoformat(timespec="milliseconds")


def _summary(sample: dict[str, Any]) -> dict[str, Any]:
    """Return what inspect_ai's list of samples shows, with long texts cut as it does."""
    shown_keys = ("id", "epoch", "target", "model_usage", "total_time", "uuid", "turn_count")
    fields = {name: sample[name] for name in shown_keys if name in sample}
    scores = {
        name: {
            **score,
            **{key: score[key][:_MAX_SUMMARY_TEXT] for key in ("answer", "explanation")},
        }
        for name, score in sample.get("scores", {}).items()
    }
    metadata = {
        name: value[:_MAX_SUMMARY_TEXT] if isinstance(value, str) else value
        for name, value in sample["metadata"].items()
    }
    return {
        **fields,
        "input": sample["input"][:_MAX_SUMMARY_TEXT],
        "metadata": metadata,
        "message_count": len(sample["messages"]),
        "completed": True,
        **({"scores": scores} if scores else {}),
        **({"error": sample["error"]["message"][:_MAX_SUMMARY_TEXT]} if "error" in sample else {}),
        **({"limit": sample["limit"]["type"]} if "limit" in sample else {}),
    }
