"""InterCode's reward for bash, bit for bit (paper, section 3.2; code of release 1.0.2).

``0.01 + P1 + P2 + P3``: how many paths changed on one side only, whether what changed on both is
equal, and how similar the outputs are. Its defects are part of the ``paper`` profile; INTERCODE's
published numbers cannot be had without them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_intercode.rewards.protocol import Reward
from pytest_intercode.rewards.text import tfidf_similarity

__all__ = ["PaperState", "bash_paper_reward"]

_WEIGHT = 0.33
_CREATED = ("??", "A", "C")


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
    mine, theirs = set(agent.status), set(gold.status)
    missing, extra = theirs - mine, mine - theirs
    changed = round(_WEIGHT * (1 - math.erf(len(missing) + len(extra))), 2)
    created = [pair for pair in mine & theirs if pair[1] in _CREATED]
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
    return tuple((words[at + 1], words[at]) for at in range(0, len(words) - 1, 2))


def _reason(
    missing: set[tuple[str, str]], extra: set[tuple[str, str]], parts: Mapping[str, float]
) -> str:
    if extra:
        return f"{len(missing)} paths not changed, {len(extra)} changed that gold leaves alone"
    if missing:
        return f"{len(missing)} paths not changed that gold changes"
    worst = min(parts, key=lambda name: parts[name])
    return f"{worst} {parts[worst]:.2f} of {_WEIGHT}"
