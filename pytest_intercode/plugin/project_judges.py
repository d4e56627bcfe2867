"""``run.judge()`` of project tests: asks a model about a run, and keeps its votes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_intercode.core.judge import (
    Judge,
    JudgeRecord,
    find_model_problem,
    find_votes_problem,
)
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.errors import ConfigurationError, JudgeError
from pytest_intercode.judging.question import describe_episode
from pytest_intercode.plugin.errors import one_line_errors
from pytest_intercode.plugin.reports import amend_episode
from pytest_intercode.projects.verdict import RunVerdict

if TYPE_CHECKING:
    from pytest_intercode.judging.judges import Judges
    from pytest_intercode.plugin.project_recordings import RunRecording
    from pytest_intercode.projects.run import ProjectRun

__all__ = ["RunJudge"]

__tracebackhide__ = True  # a report shows the line of the test that asked


class RunJudge:
    """Asks models about one run of a project test.

    No budget counts what these models use up. Their votes are recorded and replayed together with
    what the agent exchanged with its own model.

    Args:
        item: the test.
        task: the run's task.
        record: the run's record, as given to
            :func:`~pytest_intercode.plugin.reports.keep_episode`.
        judges: asks models.
        recording: the run's recording.
        model: the model that is asked where the test names none; empty for none.
    """

    def __init__(
        self,
        item: pytest.Item,
        task: Task,
        record: EpisodeRecord,
        judges: Judges,
        recording: RunRecording,
        model: str,
    ) -> None:
        self._item = item
        self._task = task
        self._original_record = self._record = record
        self._judges = judges
        self._recording = recording
        self._model = model

    def __call__(
        self, run: ProjectRun, rubric: str, *, model: str, votes: int, at_least: float
    ) -> RunVerdict:
        """Return a model's verdict; see :meth:`ProjectRun.judge`."""
        with one_line_errors():
            judge = Judge(rubric, model or self._model, votes, alone=True)
            _check(judge, at_least)
            try:
                judgement = self._ask(judge)
            except JudgeError as error:
                self._keep(error.record)
                run.record = self._record
                raise
            self._keep(self._with(judgement))
            run.record = self._record
            self._recording.save(self._original_record)
        return RunVerdict(judgement, at_least)

    def _ask(self, judge: Judge) -> JudgeRecord:
        """Return the votes of a judge.

        Raises:
            JudgeError: there is no verdict; ``record`` is the run's, with the votes so far.
            ConfigurationError: no model can be asked.
        """
        task = replace(self._task, judge=judge)
        number = len(self._record.judgements) + 1
        purpose = "judge" if number == 1 else f"judge{number}"
        material = describe_episode(self._original_record)
        hearing = self._judges.open(task, purpose, self._recording.exchanges_of_judges)
        votes, failure = hearing.judge(material, 0.0)
        judgement = replace(votes, share=0.0, rubric=judge.rubric)
        if failure is not None:
            failure.record = self._with(judgement)
            raise failure
        return judgement

    def _with(self, judgement: JudgeRecord) -> EpisodeRecord:
        return replace(self._record, judgements=(*self._record.judgements, judgement))

    def _keep(self, amended: EpisodeRecord) -> None:
        amend_episode(self._item, self._record, amended)
        self._record = amended


def _check(judge: Judge, at_least: Any) -> None:
    """Check the arguments of ``run.judge()``.

    Raises:
        ConfigurationError: one of them is wrong.
    """
    if not isinstance(judge.rubric, str) or not judge.rubric.strip():
        raise ConfigurationError(
            f"run.judge({judge.rubric!r:.60}): a rubric has to be a text that says what is "
            "graded, and how"
        )
    if not judge.model:
        raise ConfigurationError(
            "run.judge(): no model is given: give run.judge(..., model=NAME), or judge_model=NAME "
            "to a run or to @pytest.mark.intercode"
        )
    is_count = isinstance(judge.votes, int) and not isinstance(judge.votes, bool)
    is_score = isinstance(at_least, (int, float)) and 0 < at_least <= 1
    problems = {
        "model": find_model_problem(str(judge.model)),
        "votes": find_votes_problem(judge.votes) if is_count else "it is not a number",
        "at_least": "" if is_score else "a score above 0 and at most 1 is needed",
    }
    for name, problem in problems.items():
        if problem:
            raise ConfigurationError(f"run.judge(): {name}: {problem}")
