"""InterCode's reward for bash, bit for bit (paper, section 3.2; code of release 1.0.2).

``0.01 + P1 + P2 + P3``: P1 falls with each path that changed on one side only, P2 compares the
paths that both sides created, and P3 is the similarity of the outputs. Its defects are part of the
``paper`` profile: published numbers cannot be reproduced without them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_intercode.core.reward import Reward
from pytest_intercode.rewards.recording import sha256

__all__ = [
    "PaperState",
    "bash_paper_reward",
    "bash_paper_reward_again",
    "bash_paper_state",
    "parse_status",
    "tfidf_similarity",
]

_MAX_RECORDED_PATHS = 5000  # of both sides; above it, only those that the reward needs
_MAX_UNSHARED_PATHS = 10  # of one side; with that many, file_diff is 0.00
_MAX_SUM_LENGTH = 200  # characters; longer sums are recorded as digests

_WEIGHT = 0.33
_CREATED = ("??", "A", "C")
_WORD = re.compile(r"(?u)\b\w\w+\b")


@dataclass(frozen=True)
class PaperState:
    """An end state as InterCode sees it.

    Attributes:
        output: the last observation.
        status: ``git status --short`` as pairs (path, code).
        sums: what ``md5sum`` or ``md5deep -r`` printed for the paths that both sides created.
    """

    output: str
    status: tuple[tuple[str, str], ...]
    sums: Mapping[str, str] = field(default_factory=dict)


def bash_paper_reward(agent: PaperState, gold: PaperState) -> Reward:
    """Return InterCode's reward with its three parts, each in [0, 0.33]."""
    agent_pairs, gold_pairs = set(agent.status), set(gold.status)
    missing, extra = gold_pairs - agent_pairs, agent_pairs - gold_pairs
    changed = round(_WEIGHT * (1 - math.erf(len(missing) + len(extra))), 2)
    created = [pair for pair in agent_pairs & gold_pairs if pair[1] in _CREATED]
    if created:
        equal = sum(agent.sums.get(path) == gold.sums.get(path) for path, _ in created)
        content = round(_WEIGHT * (equal / len(created)), 2)
    else:
        content = _WEIGHT
    similarity = tfidf_similarity(agent.output, gold.output)
    if similarity is None:
        similarity = 1.0 if agent.output == gold.output else 0.0
    answer = round(_WEIGHT * similarity, 2)
    value = 0.01 + changed + content + answer
    parts = {"file_diff": changed, "file_changes": content, "answer_similarity": answer}
    return Reward(value, parts, "" if value >= 1 else _reason(missing, extra, parts))


def parse_status(text: str) -> tuple[tuple[str, str], ...]:
    """Split ``git status --short`` on white space into pairs (path, code), as InterCode does."""
    words: Sequence[str] = text.split()
    return tuple((words[index + 1], words[index]) for index in range(0, len(words) - 1, 2))


def _reason(
    missing: set[tuple[str, str]], extra: set[tuple[str, str]], parts: Mapping[str, float]
) -> str:
    if extra:
        return f"{len(missing)} paths not changed, {len(extra)} changed that gold leaves alone"
    if missing:
        return f"{len(missing)} paths not changed that gold changes"
    worst = min(parts, key=lambda name: parts[name])
    return f"{worst} {parts[worst]:.2f} of {_WEIGHT}"


def tfidf_similarity(first: str, second: str) -> float | None:
    """Return the cosine of two texts' TF-IDF vectors, as scikit-learn computes them.

    The vectoriser is scikit-learn's ``TfidfVectorizer`` with its defaults, fitted on just the two
    texts: lower case, words of at least two characters, raw counts, smooth inverse document
    frequency ``ln((1 + n) / (1 + df)) + 1``, vectors scaled to unit length. A property test
    compares the two; this one needs no numpy, and takes a thousandth of the time to import.

    Returns:
        A number in [0, 1]; None if neither text has a word, so that there are no vectors.
    """
    counts = [Counter(_WORD.findall(text.lower())) for text in (first, second)]
    words = set(counts[0]) | set(counts[1])
    if not words:
        return None
    weight = {word: math.log(3 / (1 + sum(word in c for c in counts))) + 1 for word in words}
    norms = [math.sqrt(sum((n * weight[w]) ** 2 for w, n in c.items())) for c in counts]
    if not all(norms):
        return 0.0
    shared = set(counts[0]) & set(counts[1])
    cosine = sum(
        (counts[0][w] * weight[w] / norms[0]) * (counts[1][w] * weight[w] / norms[1])
        for w in shared
    )
    return min(cosine, 1.0)


# -- the record, from which a reward can be given again


def bash_paper_state(agent: PaperState, gold: PaperState) -> dict[str, Any]:
    """Return both sides as builtins; of very many paths, only those that the reward needs.

    ``cut`` is true if even those are incomplete, so that the reward cannot be computed again.
    """
    agent_pairs, gold_pairs = set(agent.status), set(gold.status)
    many = len(agent_pairs | gold_pairs) > _MAX_RECORDED_PATHS
    shared = sorted(pair for pair in agent_pairs & gold_pairs if pair[1] in _CREATED)[
        :_MAX_RECORDED_PATHS
    ]
    sides: dict[str, Any] = {}
    for side, state, unshared in (
        ("agent", agent, agent_pairs - gold_pairs),
        ("gold", gold, gold_pairs - agent_pairs),
    ):
        status = [*shared, *sorted(unshared)[:_MAX_UNSHARED_PATHS]] if many else state.status
        sums = {path: _short(state.sums[path]) for path, _ in status if path in state.sums}
        sides[side] = {"output": state.output, "status": [list(p) for p in status], "sums": sums}
    return {**sides, "cut": many and len(shared) == _MAX_RECORDED_PATHS}


def _short(text: str) -> str:
    return text if len(text) <= _MAX_SUM_LENGTH else sha256(text)


def bash_paper_reward_again(state: Mapping[str, Any]) -> Reward:
    """Return the reward from a record that :func:`bash_paper_state` made."""
    agent, gold = (
        PaperState(
            state[side]["output"],
            tuple((path, code) for path, code in state[side]["status"]),
            state[side]["sums"],
        )
        for side in ("agent", "gold")
    )
    return bash_paper_reward(agent, gold)
