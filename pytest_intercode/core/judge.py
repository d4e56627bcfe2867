"""A judge, a model that decides a part of a task's reward by a rubric; and its votes. Pure data."""

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
"""The lowest passing score, for graders that only distinguish passing from failing."""

_DIGEST_LENGTH = 16  # hexadecimal digits
_MAX_VOTES = 15
# The model that such a name stands for changes with the vendor's next release.
_ALIAS = re.compile(r"(?i)(?:^|[-_:/@.])(latest|newest|current|default|auto)$")


def find_model_problem(model: str) -> str:
    """Return the problem with the name of a judge's model; empty if there is none."""
    match = _ALIAS.search(model)
    if match is None:
        return ""
    return f"{match[1]} is an alias, which may be another model tomorrow; name the model's version"


def find_votes_problem(votes: int) -> str:
    """Return the problem with a number of votes; empty if there is none."""
    if not 1 <= votes <= _MAX_VOTES:
        return f"a number of votes from 1 to {_MAX_VOTES} is needed"
    return "" if votes % 2 else "an odd number of votes is needed, as the median counts"


@dataclass(frozen=True)
class Judge:
    """How a model judges a task.

    Attributes:
        rubric: the criteria by which the model grades.
        model: the model, by a name that always means the same model.
        votes: how often the model is asked; odd, because the median counts.
        weight: the judge's share of the reward, above 0 and below 1; the rest is the
            environment's. None if the judge is alone.
        alone: whether the judge's score is the whole reward.
        product: whether the reward is the environment's reward times the judge's score.
    """

    rubric: str = ""
    model: str = ""
    votes: int = 3
    weight: float | None = None
    alone: bool = False
    product: bool = False

    @property
    def share(self) -> float:
        """The judge's share of the reward; 1 for a judge that is alone, 0 for a product."""
        return 1.0 if self.alone else self.weight or 0.0

    @property
    def digest(self) -> str:
        """A digest of the rubric and the model; votes with another digest do not apply."""
        text = f"{self.model}\n{self.rubric.strip()}"
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:_DIGEST_LENGTH]

    def find_problem(self) -> str:
        """Return the problem with the judge's settings as a whole; empty if there is none."""
        if not self.rubric.strip():
            return "rubric: a text is needed that says what is graded, and how"
        if not self.model:
            return "model: name the model that grades, with its version"
        if self.product:
            field_name = "alone" if self.alone else "weight"
            if self.alone or self.weight is not None:
                return f"{field_name}: product already makes one reward of both; remove it"
            return ""
        if self.alone and self.weight is not None:
            return "weight: a judge that is alone gives the whole reward; remove weight or alone"
        if not self.alone and not 0 < self.share < 1:
            return (
                "weight: say which share of the reward is the judge's, above 0 and below 1; or "
                "alone: true instead, if the model alone is to give the reward"
            )
        return ""


@dataclass(frozen=True)
class Verdict:
    """One vote.

    Attributes:
        score: from 0 to 1.
        reason: the model's reason, in its own words.
    """

    score: float
    reason: str


@dataclass(frozen=True)
class JudgeRecord:
    """How an episode was judged.

    Attributes:
        model: the model that was asked.
        digest: the digest of the rubric and the model; see :class:`Judge`.
        share: the judge's share of the reward; 1 if it is alone, 0 for a product and if a project
            test asked the judge.
        reward: the environment's own reward.
        scores: the scores of the votes; empty if the judge was not asked because the agent ended in
            an error.
        reasons: the reason of each vote.
        unusable: answers that were not a verdict, each in one line.
        omitted: characters of the episode that the model was not shown, because it was too long.
        evidence: a digest of what the model was shown; human labels refer to the episode by it.
        usage: the judge's usage; it does not count against the agent's budgets.
        rubric: the rubric, if a project test asked the judge; empty if it is the task's.
        product: whether the reward is the environment's reward times the judge's score.
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
        """Whether the votes on this episode differ."""
        return len(set(self.scores)) > 1

    def describe(self) -> list[str]:
        """Return a description for people, in lines; parts of it were written by models."""
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
        """Return the record without its texts."""
        return replace(self, reasons=(), unusable=(), rubric="")
