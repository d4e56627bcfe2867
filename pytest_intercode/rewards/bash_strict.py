"""The strict reward for bash: the output and the effects on the file system are gold's, or not.

Two sandboxes start equal; the agent acts in one and gold in the other. An *effect* is a path whose
entry (type, mode, owner, content or link target) differs at the end from what it was at the start,
in at least one of the two. Times are never compared.

The value is 1.0 only when the outputs are equal, where they count, and every effect is the same on
both sides. Else it is the mean of the parts that count, below 1:

* ``files``: effects that are the same on both sides, as a share of all effects;
* ``output``: lines that both outputs hold, as a share of all lines of either (as multisets).

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
from pytest_intercode.rewards.recording import options_again, options_state
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

_KEPT_PATHS = 2000
_KEPT_NAMES = 1024**2  # characters of paths

_MOST_BELOW_ONE = 0.99
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?(?![\w.])")


@dataclass(frozen=True)
class BashState:
    """An end state of a sandbox.

    Attributes:
        output: what the graded command printed, or the answer that was submitted.
        digest: SHA-256 of the whole output when it was too long to be kept; else empty.
        entries: the entries at the end of every path that either side touched, None where there
            is nothing.
        before: the entries at the start of those paths, where known.
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
    """Return the strict reward with its parts ``output`` and ``files``, those that count."""
    effects = _effects(agent, gold, options, workdir)
    equal = _equal(effects, agent, gold)
    count = _Count(len(effects), len(equal), any(effects.values()))
    graded = _graded(agent, gold, options, count)
    if graded.value == 1.0:
        return graded
    return replace(graded, reason=_reason(agent, list(effects), equal, graded.parts))


def best_of(rewards: Sequence[Reward]) -> Reward:
    """Return the best of the rewards by gold and by its alternatives, each compared as a whole.

    Args:
        rewards: gold's first; those of alternatives that were not tried, as an earlier one gave
            1.0, are left out.

    Returns:
        The first of the best, with the part ``gold_alone``: what gold by itself gives.
    """
    best = max(rewards, key=lambda reward: reward.value)
    return replace(best, parts={**best.parts, "gold_alone": rewards[0].value})


@dataclass(frozen=True)
class _Count:
    """How many effects there are, how many of them are equal, and whether gold has any."""

    effects: int
    equal: int
    by_gold: bool


def _graded(agent: BashState, gold: BashState, options: RewardOptions, count: _Count) -> Reward:
    gold_prints = gold.output != "" or gold.digest != ""
    if gold_prints and count.by_gold and "messages" in options.lenient:
        from pytest_intercode.rewards.formats import only_messages  # for few tasks, and costly

        gold_prints = not only_messages(gold.output)
    compare_output = (
        options.output == "always"
        or (options.output == "when-gold-prints" and gold_prints)
        or not count.by_gold  # nothing else could tell a right run from one that does nothing
    )
    parts: dict[str, float] = {}
    if compare_output:
        parts["output"] = _output_part(agent, gold, options)
    if count.effects:
        parts["files"] = count.equal / count.effects
    if all(part == 1.0 for part in parts.values()):
        return Reward(1.0, parts)
    # An empty output that equals gold's empty output earns nothing: it may only be wrong.
    earned = [part for name, part in parts.items() if name == "files" or gold_prints or part < 1]
    return Reward(min(sum(earned) / len(earned), _MOST_BELOW_ONE), parts)


def _equal(effects: Mapping[str, bool], agent: BashState, gold: BashState) -> set[str]:
    return {path for path in effects if agent.entries.get(path) == gold.entries.get(path)}


def _effects(
    agent: BashState, gold: BashState, options: RewardOptions, workdir: str
) -> dict[str, bool]:
    """Return the paths that count, sorted, and whether gold is among those who changed them."""
    scratch = [_absolute(path, workdir) for path in options.scratch]
    counted = {}
    for path in sorted(agent.touched | gold.touched):
        mine, theirs = agent.entries.get(path), gold.entries.get(path)
        if path not in gold.touched:
            before: Entry | None = theirs
        elif path not in agent.touched:
            before = mine
        elif path in gold.before:
            before = gold.before[path]
        else:
            counted[path] = True  # both wrote it, and what was there is not known
            continue
        by_gold = theirs != before
        if not by_gold and any(path == s or path.startswith(f"{s.rstrip('/')}/") for s in scratch):
            continue
        if by_gold or mine != before:
            counted[path] = by_gold
    return counted


def differing_files(
    agent: BashState, gold: BashState, options: RewardOptions, workdir: str = "/"
) -> list[str]:
    """Return the paths that count where the two sides have other contents of a file, or one none.

    What is no file on either side is left out.
    """
    found = []
    for path in _effects(agent, gold, options, workdir):
        mine, theirs = agent.entries.get(path), gold.entries.get(path)
        contents = {each and each.content for each in (mine, theirs)}
        if len(contents) == 2 and all(each is None or each.type == "f" for each in (mine, theirs)):
            found.append(path)
    return found


def _absolute(path: str, workdir: str) -> str:
    return "/" + posixpath.normpath(posixpath.join("/", workdir, path)).lstrip("/")


def _output_part(agent: BashState, gold: BashState, options: RewardOptions) -> float:
    if gold.output and not agent.output:
        return 0.0  # whatever the normalisers make of the two
    if agent.digest or gold.digest:
        return 1.0 if (agent.digest, agent.output) == (gold.digest, gold.output) else 0.0
    try:
        mine, theirs = _normalised(agent, gold, options)
    except PatternTooSlow:
        return 0.0  # unless the outputs are equal, it is the agent's that it takes too long for
    if mine == theirs or _equal_as(mine, theirs, options):
        return 1.0
    left, right = Counter(mine.split("\n")), Counter(theirs.split("\n"))
    left.pop("", None)  # an empty line is in every output that ends with one
    right.pop("", None)
    union = sum((left | right).values())
    return min(sum((left & right).values()) / union, _MOST_BELOW_ONE) if union else 0.0


def _equal_as(mine: str, theirs: str, options: RewardOptions) -> str:
    """Return the rule by which two outputs are equal; empty if they are not."""
    if not options.lenient:
        return ""
    from pytest_intercode.rewards.formats import equal_as

    return equal_as(mine, theirs, options.lenient) or ""


def _normalised(agent: BashState, gold: BashState, options: RewardOptions) -> tuple[str, str]:
    """Return both outputs as the declared normalisers write them.

    Raises:
        PatternTooSlow: a pattern takes too long for the agent's output.
        TaskError: a pattern takes too long for gold's.
    """
    if agent.output == gold.output:
        return agent.output, gold.output
    try:
        theirs = normalise(gold.output, options.normalise)
    except PatternTooSlow as slow:
        raise TaskError(f"reward.normalise: {slow}, for gold's output") from None
    mine = normalise(agent.output, options.normalise)
    if not theirs.strip() and gold.output:
        # The normalisers leave nothing of gold; an empty output must not pass for it.
        return agent.output, gold.output
    return mine, theirs


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

    def canonical(found: re.Match[str]) -> str:
        try:
            sign, digits, exponent = Decimal(found[0]).as_tuple()
        except InvalidOperation:
            return found[0]  # its exponent has more than 18 digits
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
    """Say what is wrong with the agent's changes and output, and nothing of gold's."""
    wrong = [path for path in effects if path not in equal]
    said = []
    if wrong:
        mine = [path for path in wrong if path in agent.touched]
        what = f"{len(wrong)} of {len(effects)} changes on disk differ from gold's"
        said.append(f"{what}, {mine[0]} among them" if mine else what)
    if parts.get("output", 1.0) < 1.0:
        said.append("the output is not gold's")
    return " and ".join(said)


# -- the record, from which a reward can be given again


def bash_strict_state(
    agent: BashState, gold: BashState, options: RewardOptions, workdir: str = "/"
) -> dict[str, Any]:
    """Return both sides as builtins; where paths are many or long, how many count."""
    paths = agent.touched | gold.touched
    few = len(paths) <= _KEPT_PATHS and sum(map(len, paths)) <= _KEPT_NAMES
    state: dict[str, Any] = {
        side: {
            "output": each.output,
            "digest": each.digest,
            **(_entries(each) if few else {}),
        }
        for side, each in (("agent", agent), ("gold", gold))
    }
    state["options"] = options_state(options)
    state["workdir"] = workdir
    format_name = _format(agent, gold, options)
    if format_name:
        state["format"] = format_name
    if not few:
        effects = _effects(agent, gold, options, workdir)
        equal = _equal(effects, agent, gold)
        state["counted"] = asdict(_Count(len(effects), len(equal), any(effects.values())))
    return state


def _format(agent: BashState, gold: BashState, options: RewardOptions) -> str:
    """Return the rule by which alone the outputs are equal; empty if there is none, or no need."""
    if not options.lenient or not agent.output or agent.digest or gold.digest:
        return ""
    with contextlib.suppress(PatternTooSlow):
        mine, theirs = _normalised(agent, gold, options)
        if mine != theirs:
            return _equal_as(mine, theirs, options)
    return ""


def bash_strict_digest(state: BashState) -> str:
    """Return 32 hexadecimal digits that only equal end states have in common."""
    parts = [state.output, state.digest, _entries(state)]
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


def bash_strict_states(
    pairs: Sequence[tuple[BashState, BashState]], options: RewardOptions, workdir: str = "/"
) -> dict[str, Any]:
    """Return the agent's state beside that of gold, and of each alternative that was tried.

    The record is that of the best pair; ``golds`` holds those of the others, in their order, and
    None in its place.
    """
    states = [bash_strict_state(*pair, options, workdir) for pair in pairs]
    values = [bash_strict_reward(*pair, options, workdir).value for pair in pairs]
    best = values.index(max(values))
    others = [state if at != best else None for at, state in enumerate(states)]
    return {**states[best], "golds": others}


def _entries(state: BashState) -> dict[str, Any]:
    def written(entries: Mapping[str, Entry | None]) -> dict[str, Any]:
        return {path: None if e is None else asdict(e) for path, e in entries.items()}

    return {
        "entries": written(state.entries),
        "before": written(state.before),
        "touched": sorted(state.touched),
    }


def bash_strict_reward_again(
    state: Mapping[str, Any], options: RewardOptions | None = None
) -> Reward:
    """Return the reward from a record of :func:`bash_strict_state` or :func:`bash_strict_states`.

    Args:
        state: the record.
        options: the task's options of today, in place of those of then. A record that only counts
            paths does not allow it: KeyError is raised.
    """
    if "golds" in state:
        best = {name: value for name, value in state.items() if name != "golds"}
        states = (best if each is None else each for each in state["golds"])
        return best_of([bash_strict_reward_again(each, options) for each in states])
    agent, gold = (_from_builtins(state[side]) for side in ("agent", "gold"))
    if options is None and "counted" in state:
        then = options_again(state["options"])
        graded = _graded(agent, gold, then, _Count(**state["counted"]))
        return graded if graded.value == 1.0 else replace(graded, reason=_MANY)
    if "counted" in state:
        raise KeyError("entries")
    options = options or options_again(state["options"])
    return bash_strict_reward(agent, gold, options, state["workdir"])


def ungradable_reward(why: str) -> Reward:
    """Return the reward of an end state that is more than grading reads: none."""
    return Reward(0.0, {"files": 0.0}, f"what was left cannot be graded: {why}")


def ungradable_state(why: str) -> dict[str, Any]:
    """Return the record of such an end state."""
    return {"ungradable": why}


_MANY = "the end state is not gold's; very many paths were touched"


def _from_builtins(state: Mapping[str, Any]) -> BashState:
    def read(entries: Mapping[str, Any]) -> dict[str, Entry | None]:
        return {path: None if e is None else Entry(**e) for path, e in entries.items()}

    return BashState(
        output=state["output"],
        digest=state["digest"],
        entries=read(state.get("entries", {})),
        before=read(state.get("before", {})),
        touched=frozenset(state.get("touched", ())),
    )
