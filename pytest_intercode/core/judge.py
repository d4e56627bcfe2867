"""A judge: a model that grades, by a rubric, a part of a task's reward; and what it said. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace

from pytest_intercode.core.line import in_line
from pytest_intercode.core.usage import UNSPENT, Usage

__all__ = [
    "PASSING_SCORE",
    "Judge",
    "JudgeRecord",
    "Verdict",
    "find_model_problem",
    "find_votes_problem",
]

PASSING_SCORE = 0.5
"""The score from which work passes, where only passing and failing are told apart."""

_DIGEST_LENGTH = 16  # hexadecimal digits
_MAX_VOTES = 15
# What a vendor lets a name mean changes with its next release.
_ALIAS = re.compile(r"(?i)(?:^|[-_:/@.])(latest|newest|current|default|auto)$")


def find_model_problem(model: str) -> str:
    """Return what is wrong with the name of a judge's model; empty if nothing is."""
    match = _ALIAS.search(model)
    if match is None:
        return ""
    return f"{match[1]} is an alias, which may be another model tomorrow; name the model's version"


def find_votes_problem(votes: int) -> str:
    """Return what is wrong with a number of votes; empty if nothing is."""
    if not 1 <= votes <= _MAX_VOTES:
        return f"a number of votes from 1 to {_MAX_VOTES} is needed"
    return "" if votes % 2 else "an odd number of votes is needed, as the median counts"


@dataclass(frozen=True)
class Judge:
    """What a task has judged by a model.

    Attributes:
        rubric: what the model grades by.
        model: the model, by a name that stays the same model.
        votes: how often it is asked; odd, as the median counts.
        weight: the share of the reward, above 0 and below 1, that is the judge's; the rest is the
            environment's. None where the judge is alone.
        alone: the judge's score is the whole reward.
        product: the reward is the environment's times the judge's score.
    """

    rubric: str = ""
    model: str = ""
    votes: int = 3
    weight: float | None = None
    alone: bool = False
    product: bool = False

    @property
    def share(self) -> float:
        """The share of the reward that is the judge's; 1 for one that is alone, 0 for a product."""
        return 1.0 if self.alone else self.weight or 0.0

    @property
    def digest(self) -> str:
        """Changes with the rubric and the model: votes of another digest say nothing here."""
        text = f"{self.model}\n{self.rubric.strip()}"
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:_DIGEST_LENGTH]

    def find_problem(self) -> str:
        """Return what is wrong with it as a whole; empty if nothing is."""
        if not self.rubric.strip():
            return "rubric: a text is needed that says what is graded, and how"
        if not self.model:
            return "model: name the model that grades, with its version"
        if self.product:
            field_name = "alone" if self.alone else "weight"
            if self.alone or self.weight is not None:
                return f"{field_name}: product makes the reward one of both; leave it out"
            return ""
        if self.alone and self.weight is not None:
            return "weight: a judge that is alone gives the whole reward; leave weight or alone out"
        if not self.alone and not 0 < self.share < 1:
            return (
                "weight: say which share of the reward is the judge's, above 0 and below 1; or "
                "alone: true in its place, if a model's word is to be the whole reward"
            )
        return ""


@dataclass(frozen=True)
class Verdict:
    """One vote.

    Attributes:
        score: from 0 to 1.
        reason: why, in the model's words.
    """

    score: float
    reason: str


@dataclass(frozen=True)
class JudgeRecord:
    """How an episode was judged.

    Attributes:
        model: the model that was asked.
        digest: of the rubric and the model; see :class:`Judge`.
        share: the share of the reward that is the judge's; 1 where it is alone, 0 for a product
            and where a project test has asked.
        reward: the environment's own reward.
        scores: the votes; none where nobody was asked, as the agent ended in an error.
        reasons: why, for each vote.
        unusable: answers that were not a verdict, each in one line.
        omitted: characters of the episode that the model was not shown, as it was too long.
        evidence: a digest of what it was shown, by which labels of people name the episode.
        usage: what the judge used up; no budget of the agent's counts it.
        rubric: what it graded by, where a project test has asked; empty where it is the task's.
        product: the reward is the environment's times the judge's score.
    """

    model: str
    digest: str
    share: float
    reward: float
    scores: tuple[float, ...] = ()
    reasons: tuple[str, ...] = field(default=(), metadata=in_line(printed=True))
    unusable: tuple[str, ...] = field(default=(), metadata=in_line(optional=True, printed=True))
    omitted: int = field(default=0, metadata=in_line(optional=True))
    evidence: str = field(default="", metadata=in_line(optional=True))
    usage: Usage = UNSPENT
    rubric: str = field(default="", metadata=in_line(optional=True, printed=True))
    product: bool = field(default=False, metadata=in_line(optional=True))

    @property
    def score(self) -> float:
        """The median of the votes, of which there is an odd number; 0 without any."""
        return sorted(self.scores)[len(self.scores) // 2] if self.scores else 0.0

    @property
    def reason(self) -> str:
        """The reason of the first vote for the median; empty without any."""
        pairs = zip(self.scores, self.reasons, strict=False)
        return next((reason for score, reason in pairs if score == self.score), "")

    @property
    def disagrees(self) -> bool:
        """Whether its votes on this one episode differ."""
        return len(set(self.scores)) > 1

    def describe(self) -> list[str]:
        """Return what people are shown of it, in lines; models wrote a part of them."""
        share = "the whole reward" if self.share >= 1 else f"{self.share:g} of the reward"
        share = "a factor of the reward" if self.product else share
        lines = [f"{self.model} judges {share}; without it, the reward is {self.reward:.2f}"]
        if self.rubric:
            lines = [f"{self.model} is asked: {self.rubric}"]
        votes = zip(self.scores, self.reasons, strict=False)
        lines += [f"{score:.2f}: {reason}" for score, reason in votes]
        lines += [f"not a verdict: {line}" for line in self.unusable]
        if self.omitted:
            lines.append(f"{self.omitted:,} characters were too many to be shown to it")
        return lines

    def without_texts(self) -> JudgeRecord:
        """Return it without its texts."""
        return replace(self, reasons=(), unusable=(), rubric="")
