"""The format of a results file's line: an :class:`EpisodeRecord` to JSON and back.

Nothing else knows the keys of a line. InterCode's own come first (``environment, dataset, task_id,
query, turn_history, summary``), so that what reads its files reads ours. The JSON Schema in
``docs/episode-record.schema.json`` is what ``python -m pytest_intercode.results.format`` prints.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    Strict,
    StrictBool,
    StrictStr,
    ValidationError,
)

from pytest_intercode.core.record import (
    FORMAT_VERSION,
    OUTCOMES,
    EpisodeRecord,
    FirstScore,
    Outcome,
    ShardRecord,
    TaskRecord,
)
from pytest_intercode.core.turn import Turn
from pytest_intercode.core.usage import Usage
from pytest_intercode.errors import ConfigurationError

__all__ = [
    "from_line",
    "from_row",
    "json_schema",
    "shown_arguments",
    "to_line",
    "to_row",
    "with_item",
]

_SECRET = re.compile(r"(?i)(key|secret|password|passwd|passphrase|token|credentials?|auth)$")

# -- writing


def to_line(record: EpisodeRecord) -> str:
    """Return a record as a line of JSON, in ASCII and without its end."""
    return json.dumps(to_row(record), ensure_ascii=True)


def with_item(
    line: str, item: int | None, shard: ShardRecord | None = None, run_name: str = ""
) -> str:
    """Return a line that :func:`to_line` wrote, with its item's place, its shard and its run."""
    fields: dict[str, Any] = {} if item is None else {"item": item}
    if run_name:
        fields["run_name"] = _plain(run_name)
    if shard is not None:
        fields["shard"] = _shard(shard)
    return f"{line[:-1]}, {json.dumps(fields)[1:]}" if fields else line


def _shard(shard: ShardRecord) -> dict[str, Any]:
    return {name: value for name, value in asdict(shard).items() if value not in (None, "", {})}


def to_row(record: EpisodeRecord) -> dict[str, Any]:
    """Return a record as builtins, ready for JSON. Keys and passwords are hidden."""
    task, turns = record.task, record.turns
    rewards = [float(turn.reward) for turn in turns]
    thoughts = [_plain(turn.thought) for turn in turns]
    logs = [_plain(turn.log) for turn in turns]
    passed = [turn.passed for turn in turns]
    answers = [turn.answer and _plain(turn.answer) for turn in turns]
    extra = dict(record.extra)
    more_columns = extra.pop("turn_history", {})
    row = {
        "environment": f"ic_{task.env}" if task.env else "",
        "dataset": task.dataset,
        "task_id": task.id,
        "query": task.query,
        "turn_history": {
            "actions": [_plain(turn.action) for turn in turns],
            "observations": [_plain(turn.observation) for turn in turns],
            "rewards": rewards,
            "valid_action": [
                None if turn.executed is None else bool(turn.executed) for turn in turns
            ],
            **({"thoughts": thoughts} if any(thoughts) else {}),
            **more_columns,
        },
        "summary": {
            "max_reward": max([float(record.reward), *rewards]),
            "max_reward_idx": max(range(len(rewards)), key=rewards.__getitem__, default=0),
            "turns_taken": len(turns),
            "turns_max": record.max_turns,
        },
        "format_version": record.format_version,
        "outcome": record.outcome,
        "reward": float(record.reward),
        "reward_parts": _numbers(record.parts),
        "reason": _plain(record.reason),
        "detail": _plain(record.detail),
        "seconds": round(record.seconds, 3),
        "turn_seconds": [round(turn.seconds, 4) for turn in turns],
        "turn_parts": [_numbers(turn.parts) for turn in turns],
        "turn_agent_seconds": [round(turn.agent_seconds, 4) for turn in turns],
        **({"turn_passed": passed} if any(passed) else {}),
        **({"turn_answers": answers} if any(answers) else {}),
        **({"turn_logs": logs} if any(logs) else {}),
        **({"turn_usage": [turn.usage.as_row() for turn in turns]} if record.usage else {}),
        "usage": record.usage.as_row(),
        "log": _plain(record.log),
        "left_behind": [_plain(line) for line in record.left_behind],
        "suite": task.suite,
        "hardness": task.hardness,
        "tags": list(task.tags),
        "profile": record.profile,
        "agent": record.agent,
        "agent_arguments": shown_arguments(record.agent_arguments),
        "sandbox": record.sandbox,
        "image": record.image,
        "task_digest": task.digest,
        "repeat": task.repeat,
        "node_id": record.node_id,
        "attempts": list(record.attempts),
        "end_state": dict(record.state),
    }
    if record.test_output:
        row["test_output"] = _plain(record.test_output)
    if record.image_digest:
        row["image_digest"] = _plain(record.image_digest)
    if record.parameters_version:
        row["parameters_version"] = record.parameters_version
    if record.host:
        row["host"] = _plain(record.host)
    if record.phases:
        row["phases"] = {
            name: [round(began, 3), round(seconds, 3)]
            for name, (began, seconds) in record.phases.items()
        }
    if record.test_passed is not None:
        row["test_passed"] = record.test_passed
    if record.item is not None:
        row["item"] = record.item
    if record.run_name:
        row["run_name"] = _plain(record.run_name)
    if record.shard is not None:
        row["shard"] = _shard(record.shard)
    if record.refused_hosts:
        row["refused_hosts"] = [_plain(line) for line in record.refused_hosts]
    if record.superseded:
        row["superseded"] = True
    if record.rescored_from is not None:
        row["rescored_from"] = asdict(record.rescored_from)
    if record.reward_function:
        row["reward_function"] = record.reward_function
    return {**row, **extra}


def shown_arguments(arguments: Mapping[str, str]) -> dict[str, str]:
    """Return an agent's arguments as they may be written down: without keys and passwords."""
    return {
        name: "(hidden)" if _SECRET.search(name) else _plain(str(value))
        for name, value in arguments.items()
    }


def _plain(text: str) -> str:
    """Return a text as a ``str`` that can be written as UTF-8, which agents need not give us."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _numbers(parts: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in parts.items()}


# -- the shape of a line

_LARGEST = 2**53
_Number = Annotated[float, Strict()]
_Whole = Annotated[int, Strict(), Field(ge=-_LARGEST, le=_LARGEST)]
_Version = Annotated[int, Strict(), Field(ge=0, le=FORMAT_VERSION)]


class _Lenient(BaseModel):
    """An object that may have further keys."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)
    __pydantic_extra__: dict[str, JsonValue]


class TurnHistory(_Lenient):
    """The trajectory, a list for each column; a list that is shorter than actions ends early."""

    actions: list[StrictStr]
    """What the agent sent."""
    observations: list[StrictStr | None] = []
    """What it saw."""
    rewards: list[_Number | None] = []
    """The reward after each action; 0 where the state was not graded."""
    valid_action: list[StrictBool | None] = []
    """Whether the action ran and ended with status 0; null where that is not known."""
    thoughts: list[StrictStr | None] = []
    """What the agent thought before each action."""


class EpisodeSummary(_Lenient):
    """InterCode's summary of an episode."""

    max_reward: _Number | None = None
    """The best reward of the episode; the episode's score in InterCode's own files."""
    max_reward_idx: _Whole | None = None
    """The turn of the best reward, from 0."""
    turns_taken: _Whole | None = None
    """How many turns there were."""
    turns_max: _Whole | None = None
    """How many turns the agent had."""


class UsageNumbers(_Lenient):
    """What an agent used up, as far as it reports it."""

    requests: _Whole = 0
    """Requests to a model."""
    input_tokens: _Whole = 0
    """Tokens that went in."""
    output_tokens: _Whole = 0
    """Tokens that came out."""
    cost: _Number | None = None
    """Money, in the currency of the user's prices."""
    cached_tokens: _Whole = 0
    """Tokens of the input that were read from a cache; left out where there are none."""
    cache_write_tokens: _Whole = 0
    """Tokens of the input that were written to a cache; left out where there are none."""
    reasoning_tokens: _Whole = 0
    """Tokens of the output that no one sees; left out where there are none."""


class RescoredFrom(_Lenient):
    """The first score of an episode that was scored again."""

    profile: StrictStr = ""
    """The profile it was played under."""
    reward: _Number = 0.0
    """The reward of the run."""
    outcome: StrictStr = ""
    """The outcome of the run."""
    file: StrictStr = ""
    """The results file it was read from."""


class ShardOfRun(_Lenient):
    """The part of a run that an episode belongs to."""

    part: _Whole
    """The part, from 1."""
    parts: _Whole
    """How many parts there are."""
    items: _Whole | None = None
    """How many items the part has; left out where that is not known."""
    durations: StrictStr = ""
    """A digest of the file by whose times the parts were made; left out where there was none."""
    options: dict[str, StrictStr] = {}
    """Options that are the same in all parts, with their values."""


class EpisodeLine(_Lenient):
    """One line of a results file of pytest-intercode: one episode.

    InterCode's own files have the first six keys, and none of the others.
    """

    environment: StrictStr = ""
    """The environment's name behind ``ic_``."""
    dataset: StrictStr = ""
    """The data set's name or file."""
    task_id: StrictStr | _Whole
    """The task's id; a number in InterCode's files."""
    query: StrictStr = ""
    """The instruction."""
    turn_history: TurnHistory
    summary: EpisodeSummary = EpisodeSummary()
    format_version: _Version | None = None
    """The version of this format; 1 did not write it, 0 is an episode of InterCode's files."""
    outcome: Outcome | None = None
    """How the episode ended."""
    reward: _Number | None = None
    """The graded reward; in [0, 1], but for SQL under the paper profile, which goes down to -1."""
    reward_parts: dict[str, _Number] = {}
    """The reward's parts."""
    reason: StrictStr = ""
    """What was wrong, in a few words; empty when solved."""
    detail: StrictStr = ""
    """A traceback of the agent, or the end of a build's log."""
    test_output: StrictStr = ""
    """The end of what the task's tests printed: 60 lines and 4,000 characters at most; left out
    where the task is solved or no tests ran. It may quote hidden tests, as end_state does."""
    seconds: _Number = 0.0
    """Wall time of the agent's part."""
    turn_seconds: list[_Number] = []
    """Wall time in the sandbox, by turn."""
    turn_parts: list[dict[str, _Number]] = []
    """The reward's parts after each turn; empty where the state was not graded."""
    turn_agent_seconds: list[_Number] = []
    """Wall time that the agent took before each action."""
    turn_passed: list[StrictBool] = []
    """Whether a turn ran nothing, as the agent sent no action; left out where none did."""
    turn_answers: list[StrictStr | None] = []
    """What was submitted, where the action does not say it exactly; left out where all do."""
    turn_logs: list[StrictStr] = []
    """What the agent printed, by turn; left out where it printed nothing."""
    turn_usage: list[UsageNumbers] = []
    """What the agent used up, by turn; left out where it reports nothing."""
    usage: UsageNumbers = UsageNumbers()
    log: StrictStr = ""
    """What the agent printed after its last action."""
    left_behind: list[StrictStr] = []
    """What the agent left in its process."""
    refused_hosts: list[StrictStr] = []
    """What of the network the sandbox was refused; left out where that is nothing."""
    suite: StrictStr = ""
    """The suite's name."""
    hardness: StrictStr = ""
    """The suite's own grading."""
    tags: list[StrictStr] = []
    """The suite's own labels."""
    profile: StrictStr = ""
    """The profile it was graded under: strict or paper."""
    agent: StrictStr = ""
    """The agent as it was named."""
    agent_arguments: dict[str, StrictStr] = {}
    """What the agent was made with; keys and passwords are hidden."""
    parameters_version: _Whole = 0
    """The version of the parameters that a trainer gave the agent; left out where it gave none."""
    sandbox: StrictStr = ""
    """The backend of its sandboxes."""
    image: StrictStr = ""
    """What the sandboxes were made of."""
    image_digest: StrictStr = ""
    """What names that image in its registry for ever, ``NAME@sha256:...``; left out for one that
    comes from no registry."""
    host: StrictStr = ""
    """The node of a cluster, or the Docker host, that they were on; left out for this machine."""
    phases: dict[str, tuple[_Number, _Number]] = {}
    """When each phase began first, in seconds since the epoch by the clock of the machine that it
    ran on, and how many seconds it took in all: build, start, agent, carry, tests, gold. They do
    not overlap. Those that took no time are left out. Earlier releases wrote prepare and run."""
    task_digest: StrictStr = ""
    """Changes with anything that the agent gets or is graded by."""
    repeat: _Whole = 1
    """Which try at the task this is, from 1."""
    node_id: StrictStr = ""
    """The node id of its pytest item."""
    test_passed: StrictBool | None = None
    """Whether that item passed, where it is a test of the user's own; rates and gates count that in
    place of the outcome. Left out elsewhere."""
    item: _Whole | None = None
    """The place of that item among those of its run, from 0; left out where it is not known."""
    run_name: StrictStr = ""
    """What the run is called; left out where nobody named it."""
    shard: ShardOfRun | None = None
    """The part of the run that the episode belongs to; left out where the run has no parts."""
    attempts: list[StrictStr] = []
    """Reasons of earlier attempts that the infrastructure spoiled."""
    end_state: dict[str, JsonValue] = {}
    """Both end states, for grading again."""
    superseded: StrictBool = False
    """The try was run again, and a later line counts."""
    rescored_from: RescoredFrom | None = None
    reward_function: StrictStr = ""
    """The name of the user's function that scored it; empty for a profile."""


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a line."""
    schema = EpisodeLine.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"pytest-intercode episode record, version {FORMAT_VERSION}",
        **{name: value for name, value in schema.items() if name != "title"},
    }


# -- reading


def from_line(line: str) -> EpisodeRecord:
    """Return the record that :func:`to_line` wrote."""
    return from_row(json.loads(line))


def from_row(row: object, where: str = "row") -> EpisodeRecord:
    """Return the record of a parsed line, of any version and of InterCode's.

    Args:
        row: the line's object.
        where: where it stands, for the message.

    Raises:
        ConfigurationError: it is not a recorded episode.
    """
    try:
        line = EpisodeLine.model_validate(row)
    except ValidationError as error:
        problem = _problem(error)
    else:
        problem = _contradiction(line)
        if not problem:
            return _record(line)
    raise ConfigurationError(f"{where}: not a recorded episode: {problem}")


def _record(line: EpisodeLine) -> EpisodeRecord:
    version = line.format_version
    if version is None:
        version = 0 if line.outcome is None else 1
    reward = line.reward if line.outcome is not None else line.summary.max_reward
    reward = reward or 0.0
    rescored_from = line.rescored_from
    extra: dict[str, Any] = dict(line.model_extra or {})
    if line.turn_history.model_extra:
        extra["turn_history"] = line.turn_history.model_extra
    return EpisodeRecord(
        task=TaskRecord(
            id=str(line.task_id),
            query=line.query,
            env=line.environment.removeprefix("ic_"),
            suite=line.suite,
            dataset=line.dataset,
            hardness=line.hardness,
            tags=tuple(line.tags),
            repeat=line.repeat,
            digest=line.task_digest,
        ),
        outcome=line.outcome or ("solved" if reward >= 1 else "failed"),
        reward=reward,
        turns=_turns(line, version),
        max_turns=line.summary.turns_max or 0,
        seconds=line.seconds,
        profile=line.profile,
        agent=line.agent,
        agent_arguments=line.agent_arguments,
        parameters_version=line.parameters_version,
        parts=line.reward_parts,
        reason=line.reason,
        detail=line.detail,
        test_output=line.test_output,
        attempts=tuple(line.attempts),
        state=line.end_state,
        usage=_usage(line.usage),
        log=line.log,
        left_behind=tuple(line.left_behind),
        refused_hosts=tuple(line.refused_hosts),
        sandbox=line.sandbox,
        image=line.image,
        image_digest=line.image_digest,
        host=line.host,
        phases=line.phases,
        node_id=line.node_id,
        test_passed=line.test_passed,
        item=line.item,
        run_name=line.run_name,
        shard=None if line.shard is None else _part(line.shard),
        superseded=line.superseded,
        rescored_from=None if rescored_from is None else _first_score(rescored_from),
        reward_function=line.reward_function,
        extra=extra,
        format_version=version,
    )


def _turns(line: EpisodeLine, version: int) -> tuple[Turn, ...]:
    history = line.turn_history
    actions = history.actions
    if version == 0 and history.thoughts:
        actions = [_unwrapped(action) for action in actions]
    columns: dict[str, Sequence[Any]] = {
        "observation": history.observations,
        "executed": history.valid_action,
        "reward": history.rewards,
        "seconds": line.turn_seconds,
        "parts": line.turn_parts,
        "passed": line.turn_passed,
        "thought": history.thoughts,
        "log": line.turn_logs,
        "usage": [_usage(numbers) for numbers in line.turn_usage],
        "agent_seconds": line.turn_agent_seconds,
        "answer": line.turn_answers,
    }
    turns: list[dict[str, Any]] = [
        {"action": action, "observation": "", "executed": None} for action in actions
    ]
    for name, column in columns.items():
        for turn, cell in zip(turns, column, strict=False):
            if cell is not None:
                turn[name] = cell
    return tuple(Turn(**turn) for turn in turns)


def _unwrapped(action: str) -> str:
    """Take an action out of the ``execute[...]`` of InterCode's ReAct recordings."""
    text = action.strip()
    if text.startswith("execute[") and text.endswith("]"):
        return text[len("execute[") : -1]
    return action


def _part(shard: ShardOfRun) -> ShardRecord:
    return ShardRecord(shard.part, shard.parts, shard.items, shard.durations, shard.options)


def _first_score(rescored_from: RescoredFrom) -> FirstScore:
    return FirstScore(
        rescored_from.profile, rescored_from.reward, rescored_from.outcome, rescored_from.file
    )


def _usage(numbers: UsageNumbers) -> Usage:
    return Usage(
        *(numbers.requests, numbers.input_tokens, numbers.output_tokens, numbers.cost),
        *(numbers.cached_tokens, numbers.cache_write_tokens, numbers.reasoning_tokens),
    )


# -- what is wrong with a row

_NEEDED = {
    "string_type": "a string",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "literal_error": f"one of {', '.join(OUTCOMES)}",
    "greater_than_equal": "a number of a sensible size",
    "less_than_equal": "a number of a sensible size",
}


def _contradiction(line: EpisodeLine) -> str:
    """Say what is missing next to what is there; return nothing if all is well."""
    if line.outcome is not None and line.reward is None:
        return "it has an outcome and no reward"
    if any(line.turn_parts) and not line.turn_history.rewards:
        return "it has turn_parts and no turn_history.rewards"
    return ""


def _problem(error: ValidationError) -> str:
    """Say what is wrong first, and where."""
    first = error.errors(include_url=False, include_input=False)[0]
    kind, location = first["type"], first["loc"]
    if kind == "recursion_depth_exceeded" or kind == "recursion_loop":
        return f"{location[0]} is nested too deeply"
    if location[:1] == ("task_id",):
        return "it has no task_id" if kind == "missing" else "task_id is neither text nor a number"
    if location[:1] == ("format_version",) and kind == "less_than_equal":
        return f"a newer version wrote it; this one reads format_version up to {FORMAT_VERSION}"
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    name = name.removeprefix(".")
    if kind == "missing":
        return f"it has no {'turn_history.actions' if name == 'turn_history' else name}"
    return f"{name or 'it'} is not {_NEEDED.get(kind, 'as it should be: ' + first['msg'])}"


if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=1))
