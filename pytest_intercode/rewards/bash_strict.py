"""The strict reward for bash: the output and the effects on the file system are gold's, or not.

Two sandboxes start equal; the agent acts in one and gold in the other. An *effect* is a path whose
entry (type, mode, owner, content or link target) differs at the end from what it was at the start,
in at least one of the two. Times are never compared.

The value is 1.0 only when the outputs are equal, where they count, and every effect is the same on
both sides. Else it is the mean of the parts that count, below 1:

* ``files``: effects that are the same on both sides, as a share of all effects;
* ``output``: lines that both outputs hold, as a share of all lines of either (as multisets).

Whoever does nothing shares no effect and no line with gold, and so gets 0 wherever gold prints or
changes something.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from pytest_intercode.rewards.protocol import Reward
from pytest_intercode.sandboxes.protocol import Entry
from pytest_intercode.suites.task import Normaliser, RewardOptions

__all__ = ["BashState", "bash_strict_reward", "normalise"]

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
    equal = {path for path in effects if agent.entries.get(path) == gold.entries.get(path)}
    gold_prints = gold.output != "" or gold.digest != ""
    gold_changes = any(effects.values())
    compare_output = (
        options.output == "always"
        or (options.output == "when-gold-prints" and gold_prints)
        or not gold_changes  # nothing else could tell a right run from one that does nothing
    )
    parts: dict[str, float] = {}
    if compare_output:
        parts["output"] = _output_part(agent, gold, options.normalise)
    if effects:
        parts["files"] = len(equal) / len(effects)
    if all(part == 1.0 for part in parts.values()):
        return Reward(1.0, parts)
    # An empty output that equals gold's empty output earns nothing: it may only be wrong.
    earned = [part for name, part in parts.items() if name == "files" or gold_prints or part < 1]
    value = min(sum(earned) / len(earned), _MOST_BELOW_ONE)
    return Reward(value, parts, _reason(agent, list(effects), equal, parts))


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


def _absolute(path: str, workdir: str) -> str:
    return "/" + posixpath.normpath(posixpath.join("/", workdir, path)).lstrip("/")


def _output_part(agent: BashState, gold: BashState, normalisers: Sequence[Normaliser]) -> float:
    if gold.output and not agent.output:
        return 0.0  # whatever the normalisers make of the two
    if agent.digest or gold.digest:
        return 1.0 if (agent.digest, agent.output) == (gold.digest, gold.output) else 0.0
    mine, theirs = normalise(agent.output, normalisers), normalise(gold.output, normalisers)
    if not theirs.strip() and gold.output:
        # The normalisers leave nothing of gold; an empty output must not pass for it.
        mine, theirs = agent.output, gold.output
    if mine == theirs:
        return 1.0
    left, right = Counter(mine.split("\n")), Counter(theirs.split("\n"))
    left.pop("", None)  # an empty line is in every output that ends with one
    right.pop("", None)
    union = sum((left | right).values())
    return min(sum((left & right).values()) / union, _MOST_BELOW_ONE) if union else 0.0


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
            text = re.sub(normaliser.pattern, normaliser.replace, text, flags=re.MULTILINE)
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
    """Say what is wrong by the agent's own deeds; gold's are not told."""
    wrong = [path for path in effects if path not in equal]
    said = []
    if wrong:
        mine = [path for path in wrong if path in agent.touched]
        what = f"{len(wrong)} of {len(effects)} changes on disk differ from gold's"
        said.append(f"{what}, {mine[0]} among them" if mine else what)
    if parts.get("output", 1.0) < 1.0:
        said.append("the output is not gold's")
    return " and ".join(said)
