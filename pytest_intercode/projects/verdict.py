"""A model's verdict on a run by a rubric, which ``run.judge()`` returns."""

from __future__ import annotations

from pytest_intercode.core.judge import JudgeRecord, Verdict
from pytest_intercode.core.text import one_line
from pytest_intercode.projects.answer import Answer

__all__ = ["RunVerdict"]


class RunVerdict(Answer):
    """The verdict of a judge: true if its score is high enough; a failing assert shows why.

    Args:
        record: the judge's votes.
        at_least: the score from which it is true.

    Attributes:
        record: the judge's votes, what it was not shown, and what it used up.
        score: the median of the votes, from 0 to 1.
        reason: the reason, in the words of the first vote for that score.
        votes: all votes, each with a score and a reason.
    """

    __slots__ = ("record",)

    def __init__(self, record: JudgeRecord, at_least: float) -> None:
        self.record = record
        lines = [
            f"{record.model} gives {record.score:.2f}, and {at_least:.2f} is needed:",
            *(f"  {verdict.score:.2f}  {one_line(verdict.reason)}" for verdict in self.votes),
            *(f"  not a verdict: {line}" for line in record.unusable),
        ]
        if record.omitted:
            lines.append(f"  {record.omitted:,} characters were too many to be shown to it")
        super().__init__(
            record.score >= at_least, f"judge({record.rubric!r:.80})", "\n".join(lines)
        )

    @property
    def score(self) -> float:
        """The median of the votes, from 0 to 1."""
        return self.record.score

    @property
    def reason(self) -> str:
        """The reason, in the words of the first vote for the median."""
        return self.record.reason

    @property
    def votes(self) -> tuple[Verdict, ...]:
        """All votes, in the order in which they were given."""
        pairs = zip(self.record.scores, self.record.reasons, strict=True)
        return tuple(Verdict(score, reason) for score, reason in pairs)
