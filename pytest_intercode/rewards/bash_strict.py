"""The strict reward for bash: whether the output and the effects on the file system are gold's.

Two sandboxes start equal; the agent acts in one and gold in the other. An *effect* is a path whose
entry (type, mode, owner, content or link target) differs between start and end in at least one of
them. Times are never compared.

The value is 1.0 only when the outputs are equal, where they count, and every effect is the same on
both sides. Otherwise it is the mean of the parts that count, below 1:

* ``files``: the share of effects that are the same on both sides;
* ``output``: the share of lines that both outputs have, of the lines of either (as multisets).

An agent that does nothing shares no effect and no line with gold, and so gets 0
wherever gold prints or changes something.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import posixpath
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import Any

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Normaliser, RewardOptions
from pytest_intercode.errors import PatternTooSlow, TaskError
from pytest_intercode.rewards.recording import MAX_PARTIAL_REWARD, options_again, options_state
from pytest_intercode.sandboxes.protocol import Entry

__all__ = [
    "BashState",
    "bash_strict_digest",
    "bash_strict_reward",
    "bash_strict_reward_again",
    "bash_strict_state",
    "bash_strict_states",
    "best_of",
    "differing_files",
    "normalise",
    "ungradable_reward",
    "ungradable_state",
]

_MAX_RECORDED_PATHS = 2000  # above it, only the numbers of effects are recorded
_MAX_RECORDED_NAMES = 1024**2  # characters of all paths together

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?(?![\w.])")


@dataclass(frozen=True)
class BashState:
    """An end state of a sandbox.

    Attributes:
        output: the output of the graded command, or the submitted answer.
        digest: SHA-256 of the whole output if it was too long to be kept; otherwise empty.
        entries: the entries at the end, of every path that either side touched; None if the path
            does not exist.
        before: the entries at the start of those paths, where they are known.
        touched: the paths that this side touched.
    """

    output: str
    digest: str = ""
    entries: Mapping[str, Entry | None] = field(default_factory=dict)
    before: Mapping[str, Entry | None] = field(default_factory=dict)
    touched: frozenset[str] = frozenset()


def bash_strict_reward(
    agent: BashState, gold: BashState, options: RewardOptions, workdir: str = "/"
) -> Reward:
    """Return the strict reward with its parts ``output`` and ``files``, if they count."""
    effects = _effects(agent, gold, options, workdir)
    equal = _equal_paths(effects, agent, gold)
    count = _Count(len(effects), len(equal), any(effects.values()))
    graded = _grade(agent, gold, options, count)
    if graded.value == 1.0:
        return graded
    return replace(graded, reason=_reason(agent, list(effects), equal, graded.parts))


def best_of(rewards: Sequence[Reward]) -> Reward:
    """Return the best reward for an agent compared, as a whole, with gold and each alternative.

    Args:
        rewards: gold's first; alternatives that were not tried, because an earlier one gave 1.0,
            are left out.

    Returns:
        The first of the best, with the part ``gold_alone``: the reward by gold itself.
    """
    best = max(rewards, key=lambda reward: reward.value)
    return replace(best, parts={**best.parts, "gold_alone": rewards[0].value})


@dataclass(frozen=True)
class _Count:
    """How many effects there are, how many of them are equal, and whether gold has any."""

    effects: int
    equal: int
    by_gold: bool


def _grade(agent: BashState, gold: BashState, options: RewardOptions, count: _Count) -> Reward:
    gold_prints = gold.output != "" or gold.digest != ""
    if gold_prints and count.by_gold and "messages" in options.lenient:
        from pytest_intercode.rewards.formats import only_messages  # rarely used, and slow

        gold_prints = not only_messages(gold.output)
    compare_output = (
        options.output == "always"
        or (options.output == "when-gold-prints" and gold_prints)
        or not count.by_gold  # nothing else distinguishes a right run from one that does nothing
    )
    parts: dict[str, float] = {}
    if compare_output:
        parts["output"] = _output_part(agent, gold, options)
    if count.effects:
        parts["files"] = count.equal / count.effects
    if all(part == 1.0 for part in parts.values()):
        return Reward(1.0, parts)
    # An empty output that equals gold's empty output earns nothing, but a wrong one counts.
    earned = [part for name, part in parts.items() if name == "files" or gold_prints or part < 1]
    return Reward(min(sum(earned) / len(earned), MAX_PARTIAL_REWARD), parts)


def _equal_paths(effects: Mapping[str, bool], agent: BashState, gold: BashState) -> set[str]:
    return {path for path in effects if agent.entries.get(path) == gold.entries.get(path)}


def _effects(
    agent: BashState, gold: BashState, options: RewardOptions, workdir: str
) -> dict[str, bool]:
    """Return the paths that count, sorted, and for each whether gold changed it."""
    scratch = [_absolute(path, workdir) for path in options.scratch]
    effects = {}
    for path in sorted(agent.touched | gold.touched):
        agent_entry, gold_entry = agent.entries.get(path), gold.entries.get(path)
        if path not in gold.touched:
            start_entry: Entry | None = gold_entry
        elif path not in agent.touched:
            start_entry = agent_entry
        elif path in gold.before:
            start_entry = gold.before[path]
        else:
            effects[path] = True  # both touched it, and its start entry is not known
            continue
        by_gold = gold_entry != start_entry
        if not by_gold and any(path == s or path.startswith(f"{s.rstrip('/')}/") for s in scratch):
            continue
        if by_gold or agent_entry != start_entry:
            effects[path] = by_gold
    return effects


def differing_files(
    agent: BashState, gold: BashState, options: RewardOptions, workdir: str = "/"
) -> list[str]:
    """Return the paths that count where the sides' files differ, or only one side has a file.

    A path that is anything but a file on either side is left out.
    """
    differing = []
    for path in _effects(agent, gold, options, workdir):
        agent_entry, gold_entry = agent.entries.get(path), gold.entries.get(path)
        contents = {entry and entry.content for entry in (agent_entry, gold_entry)}
        if len(contents) == 2 and all(
            entry is None or entry.type == "f" for entry in (agent_entry, gold_entry)
        ):
            differing.append(path)
    return differing


def _absolute(path: str, workdir: str) -> str:
    return "/" + posixpath.normpath(posixpath.join("/", workdir, path)).lstrip("/")


def _output_part(agent: BashState, gold: BashState, options: RewardOptions) -> float:
    if gold.output and not agent.output:
        return 0.0  # even if the normalisers would make the two equal
    if agent.digest or gold.digest:
        return 1.0 if (agent.digest, agent.output) == (gold.digest, gold.output) else 0.0
    try:
        agent_output, gold_output = _normalise_both(agent, gold, options)
    except PatternTooSlow:
        return 0.0  # for the agent's output; for gold's, TaskError is raised
    if agent_output == gold_output or _equal_as(agent_output, gold_output, options):
        return 1.0
    agent_lines, gold_lines = Counter(agent_output.split("\n")), Counter(gold_output.split("\n"))
    agent_lines.pop("", None)  # every output that ends with a newline has one
    gold_lines.pop("", None)
    union = (agent_lines | gold_lines).total()
    shared = (agent_lines & gold_lines).total()
    return min(shared / union, MAX_PARTIAL_REWARD) if union else 0.0


def _equal_as(agent_output: str, gold_output: str, options: RewardOptions) -> str:
    """Return the rule by which two outputs are equal; empty if they are not."""
    if not options.lenient:
        return ""
    from pytest_intercode.rewards.formats import equal_as

    return equal_as(agent_output, gold_output, options.lenient) or ""


def _normalise_both(agent: BashState, gold: BashState, options: RewardOptions) -> tuple[str, str]:
    """Return both outputs after the declared normalisers.

    Raises:
        PatternTooSlow: a pattern takes too long for the agent's output.
        TaskError: a pattern takes too long for gold's output.
    """
    if agent.output == gold.output:
        return agent.output, gold.output
    try:
        gold_output = normalise(gold.output, options.normalise)
    except PatternTooSlow as slow:
        raise TaskError(f"reward.normalise: {slow}, for gold's output") from None
    agent_output = normalise(agent.output, options.normalise)
    if not gold_output.strip() and gold.output:
        # The normalisers leave nothing of gold; an empty output must not pass for it.
        return agent.output, gold.output
    return agent_output, gold_output


def normalise(text: str, normalisers: Sequence[Normaliser]) -> str:
    """Apply a task's declared normalisers to an output, in their order."""
    for normaliser in normalisers:
        if normaliser.name == "trailing-space":
            text = "\n".join(line.rstrip(" \t\r") for line in text.split("\n")).rstrip("\n")
        elif normaliser.name == "line-order":
            text = "".join(sorted(line + "\n" for line in text.removesuffix("\n").split("\n")))
        elif normaliser.name == "numbers":
            text = _numbers(text)
        else:
            from pytest_intercode.rewards.patterns import substitute

            text = substitute(normaliser.pattern, normaliser.replace, text)
    return text


def _numbers(text: str) -> str:
    """Write every number in one way: ``3``, ``3.0`` and ``3e0`` become the same."""

    def canonical(match: re.Match[str]) -> str:
        try:
            sign, digits, exponent = Decimal(match[0]).as_tuple()
        except InvalidOperation:
            return match[0]  # its exponent has more than 18 digits
        assert isinstance(exponent, int)
        short = "".join(map(str, digits)).rstrip("0")
        if not short:
            return "0"
        exponent += len(digits) - len(short)
        value = Decimal(f"{'-' * sign}{short}e{exponent}")  # exact, where normalize() rounds
        return f"{value:f}" if abs(value.adjusted()) < 40 else str(value)

    return _NUMBER.sub(canonical, text)


def _reason(
    agent: BashState, effects: Sequence[str], equal: set[str], parts: Mapping[str, float]
) -> str:
    """Describe what is wrong with the agent's changes and output, without revealing gold's."""
    wrong = [path for path in effects if path not in equal]
    reasons = []
    if wrong:
        agent_paths = [path for path in wrong if path in agent.touched]
        summary = f"{len(wrong)} of {len(effects)} changes on disk differ from gold's"
        reasons.append(f"{summary}, {agent_paths[0]} among them" if agent_paths else summary)
    if parts.get("output", 1.0) < 1.0:
        reasons.append("the output is not gold's")
    return " and ".join(reasons)


# -- the record, from which a reward can be given again


def bash_strict_state(
    agent: BashState, gold: BashState, options: RewardOptions, workdir: str = "/"
) -> dict[str, Any]:
    """Return both sides as builtins; if paths are many or long, only how many effects there are."""
    paths = agent.touched | gold.touched
    keeps_paths = len(paths) <= _MAX_RECORDED_PATHS and sum(map(len, paths)) <= _MAX_RECORDED_NAMES
    state: dict[str, Any] = {
        side: {
            "output": end_state.output,
            "digest": end_state.digest,
            **(_entries(end_state) if keeps_paths else {}),
        }
        for side, end_state in (("agent", agent), ("gold", gold))
    }
    state["options"] = options_state(options)
    state["workdir"] = workdir
    format_name = _lenient_rule(agent, gold, options)
    if format_name:
        state["format"] = format_name
    if not keeps_paths:
        effects = _effects(agent, gold, options, workdir)
        equal = _equal_paths(effects, agent, gold)
        state["counted"] = asdict(_Count(len(effects), len(equal), any(effects.values())))
    return state


def _lenient_rule(agent: BashState, gold: BashState, options: RewardOptions) -> str:
    """Return the rule without which the outputs differ; empty if none helps, or none is needed."""
    if not options.lenient or not agent.output or agent.digest or gold.digest:
        return ""
    with contextlib.suppress(PatternTooSlow):
        agent_output, gold_output = _normalise_both(agent, gold, options)
        if agent_output != gold_output:
            return _equal_as(agent_output, gold_output, options)
    return ""


def bash_strict_digest(state: BashState) -> str:
    """Return 32 hexadecimal digits that only equal end states share."""
    parts = [state.output, state.digest, _entries(state)]
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


def bash_strict_states(
    pairs: Sequence[tuple[BashState, BashState]], options: RewardOptions, workdir: str = "/"
) -> dict[str, Any]:
    """Return the record of the agent's state with gold's and with each tried alternative's.

    It is the record of the best pair; ``golds`` holds the records of all pairs in their order,
    with None in place of the best.
    """
    states = [bash_strict_state(*pair, options, workdir) for pair in pairs]
    values = [bash_strict_reward(*pair, options, workdir).value for pair in pairs]
    best = values.index(max(values))
    golds = [state if index != best else None for index, state in enumerate(states)]
    return {**states[best], "golds": golds}


def _entries(state: BashState) -> dict[str, Any]:
    def encode(entries: Mapping[str, Entry | None]) -> dict[str, Any]:
        return {path: None if e is None else asdict(e) for path, e in entries.items()}

    return {
        "entries": encode(state.entries),
        "before": encode(state.before),
        "touched": sorted(state.touched),
    }


def bash_strict_reward_again(
    state: Mapping[str, Any], options: RewardOptions | None = None
) -> Reward:
    """Return the reward from a record of :func:`bash_strict_state` or :func:`bash_strict_states`.

    Args:
        state: the record.
        options: the task's current options, to use instead of the recorded ones. For a record that
            only counts paths, KeyError is raised.
    """
    if "golds" in state:
        best = {name: value for name, value in state.items() if name != "golds"}
        states = (best if gold_record is None else gold_record for gold_record in state["golds"])
        return best_of([bash_strict_reward_again(pair_state, options) for pair_state in states])
    agent, gold = (_from_builtins(state[side]) for side in ("agent", "gold"))
    if options is None and "counted" in state:
        recorded_options = options_again(state["options"])
        graded = _grade(agent, gold, recorded_options, _Count(**state["counted"]))
        return graded if graded.value == 1.0 else replace(graded, reason=_REASON_OF_MANY)
    if "counted" in state:
        raise KeyError("entries")
    options = options or options_again(state["options"])
    return bash_strict_reward(agent, gold, options, state["workdir"])


def ungradable_reward(problem: str) -> Reward:
    """Return the reward of an end state that cannot be graded: 0.0."""
    return Reward(0.0, {"files": 0.0}, f"what was left cannot be graded: {problem}")


def ungradable_state(problem: str) -> dict[str, Any]:
    """Return the record of an end state that cannot be graded."""
    return {"ungradable": problem}


_REASON_OF_MANY = "the end state is not gold's; very many paths were touched"


def _from_builtins(state: Mapping[str, Any]) -> BashState:
    def decode(entries: Mapping[str, Any]) -> dict[str, Entry | None]:
        return {path: None if e is None else Entry(**e) for path, e in entries.items()}

    return BashState(
        output=state["output"],
        digest=state["digest"],
        entries=decode(state.get("entries", {})),
        before=decode(state.get("before", {})),
        touched=frozenset(state.get("touched", ())),
    )
