"""An episode under way and its run, as those are told of them who ask what runs."""

from __future__ import annotations

from pytest_intercode.core.status import EpisodeStatus, RunStatus

__all__ = ["EPISODE", "RUN"]

EPISODE = EpisodeStatus(
    item="suite.yaml::test_solves[task-1]",
    task="task-1",
    phase="agent",
    turns=3,
    max_turns=30,
    tokens=12_345,
    cost=0.021,
    seconds=83.9,
    timeout=600.0,
    action="grep -rn main src",
)
RUN = RunStatus(
    pid=4711,
    folder="/home/me/project",
    seconds=240.0,
    total=40,
    done=12,
    solved=10,
    tokens=1_200_000,
    cost=0.84,
    episodes=(EPISODE,),
)
