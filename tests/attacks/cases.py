"""The cases of the attack table: what a file in ``cases/`` may say.

One file for each area. A case says what is done and what has to hold; where it runs, and how that
is looked at, is the same for all of them and is in ``runner.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import yaml
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from pytest_intercode.core.turn import Profile

__all__ = ["FOLDER", "Action", "Area", "Backend", "Case", "Expected", "Place", "User", "areas"]

FOLDER = Path(__file__).with_name("cases")

Backend: TypeAlias = Literal["docker", "bubblewrap", "none"]
User: TypeAlias = Literal["root", "user"]


_CHANCE = 0.1  # what a text that has little to do with gold's is worth at most


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Action(_Model):
    """One action of the agent, with what happens meanwhile.

    Attributes:
        do: the action; ``SOLVE`` stands for all that solves the task.
        fault: the function of ``faults.py`` that is called.
        after: seconds after the action was sent; 0 for before it is sent.
        times: in how many attempts it happens.
    """

    do: str
    fault: str = ""
    after: float = 0.0
    times: int = 1


class Expected(_Model):
    """What has to hold. The neighbour's reward and what is left behind are the same for all.

    Attributes:
        outcome: of the episode; several where any of them is right.
        reward: exactly, but for rounding; by default 1 for ``solved``.
        most: the largest reward; by default 0.1 for ``failed``.
        attempts: how many attempts failed by the infrastructure, and so were made again; None
            where it depends on the backend.
        seconds: for the episode and its grading, the time of the agent's own actions included.
        shows: a pattern that some observation has.
        hides: a pattern that no observation has.
        reason: a pattern in the record's reason.
        exit: the exit code of a pytest run, or of a command.
        output: patterns that its output has.
        lacks: patterns that its output has not.
        results: outcomes in its results file, by task.
        meets: the addresses that may have been connected to, in a world of the case's own.
        refused: what the record says that the network refused, among others.
    """

    outcome: list[str] = []
    reward: float | None = None
    most: float | None = None
    attempts: int | None = 0
    seconds: float = 20.0
    shows: str = ""
    hides: str = ""
    reason: str = ""
    exit: int | None = None
    output: list[str] = []
    lacks: list[str] = []
    results: dict[str, str] | None = None
    meets: list[str] | None = None
    refused: list[str] = []

    @field_validator("outcome", "output", "lacks", mode="before")
    @classmethod
    def _as_list(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    def __str__(self) -> str:
        """Say it in a cell of the table."""
        words = [" or ".join(self.outcome)] if self.outcome else []
        if self.reward is not None:
            words.append(f"reward {self.reward:g}")
        if self.most is not None:
            words.append(f"reward at most {self.most:g}")
        if self.attempts:
            words.append("on a second attempt")
        if self.exit is not None:
            words.append(f"exit code {self.exit}")
        if self.results is not None:
            words.append("every result kept")
        if self.meets is not None:
            words.append("no other host met")
        if self.refused:
            words.append("what was refused is named")
        if self.hides or self.lacks:
            words.append("nothing shown")
        return ", ".join(words) or "harmless"


class Limit(_Model):
    """Why something does not hold, and is known not to.

    Attributes:
        why: the reason, for the table.
        on: the backends, profiles and users that it is so on; all of the words have to fit.
    """

    why: str
    on: list[str] = []


class Run(_Model):
    """A run of pytest in a folder of its own, with the small suite, where it is about pytest.

    Attributes:
        agent: the body of ``agent.py``; ``Agent`` plays. By default one that solves the suite.
        files: further files.
        arguments: of pytest, after agent, backend, suite and results file.
        shell: bash that starts the run, as ``"$@"``; for limits and odd surroundings.
        signal: sent to pytest once ``ready`` is there.
        ready: a file that the agent makes.
        fault: the function of ``faults.py`` that is called at that moment, with the process.
        command: of ``pytest-intercode``, in place of pytest.
        make: files that a function of ``hostile_files.py`` writes, by name.
        mirror: a function of ``tests/support/mirror.py``, by which a server beside us answers all
            requests; the command gets ``--url``.
    """

    agent: str = ""
    files: dict[str, str] = {}
    arguments: list[str] = []
    shell: str = ""
    signal: list[str] = []
    ready: str = "ready"
    fault: str = ""
    command: list[str] = []
    make: dict[str, str] = {}
    mirror: str = ""


class Case(_Model):
    """One attack or fault.

    Attributes:
        id: unique in its area.
        what: what is tried, in a few words.
        actions: what the agent does; it submits after them. Not with ``agent`` and ``run``.
        agent: Python that defines an ``Agent``, or ``act``, of this process.
        run: a run of pytest or of a command in place of an episode.
        task: fields of the task that are not the area's.
        options: of the rollout: ``max_turns``, ``action_timeout``, ``timeout``, ``feedback``.
        expect: what has to hold; a word is an outcome.
        paper: what has to hold under ``paper``, whose grading trusts the agent's sandbox; by
            default that the episode is graded, in time and without another attempt.
        neighbour: whether a good agent plays at the same time.
        pace: seconds that one of the neighbour's actions may take meanwhile.
        quick: it is part of the everyday tests.
        may_stay: a pattern of what may be left after ten seconds; the case says why.
        own_engine: the Docker engine is one of the test's own, whose daemon faults may end.
        known_limit: why it does not hold.
        world: names of a network of its own, with servers, and the addresses that each resolves to,
            one list after the other; it needs root.
    """

    id: str
    what: str
    actions: list[Action] = []
    agent: str = ""
    run: Run | None = None
    task: dict[str, Any] = {}
    options: dict[str, Any] = {}
    expect: Expected
    paper: Expected = Expected(outcome=["solved", "failed", "out-of-budget", "timed-out"])
    backends: list[Backend] = []
    profiles: list[Profile] = []
    users: list[User] = ["root", "user"]
    neighbour: bool = True
    pace: float = 10.0
    quick: bool = False
    may_stay: str = ""
    own_engine: bool = False
    known_limit: Limit | None = None
    world: dict[str, list[list[str]]] | None = None

    @field_validator("actions", mode="before")
    @classmethod
    def _plain_actions(cls, value: Any) -> Any:
        return [{"do": action} if isinstance(action, str) else action for action in value]

    @field_validator("expect", "paper", mode="before")
    @classmethod
    def _plain_outcome(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {"outcome": value}
        if isinstance(value, dict) and value.get("outcome") == "solved":
            return {"reward": 1.0, **value}
        if isinstance(value, dict) and value.get("outcome") == "failed" and "reward" not in value:
            return {"most": _CHANCE, **value}
        return value

    @field_validator("known_limit", mode="before")
    @classmethod
    def _plain_limit(cls, value: Any) -> Any:
        return {"why": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _does_one_thing(self) -> Case:
        if (bool(self.agent) + (self.run is not None)) > 1 or (self.actions and self.run):
            raise ValueError("a case has actions, an agent or a run")
        return self


class Area(_Model):
    """A file of cases.

    Attributes:
        title: the heading of its table.
        env: the environment of its episodes.
        task: what agent and neighbour are asked, as in a suite.
        solve: what solves the task, if not gold itself.
        idle: an action that changes nothing, for the neighbour while it waits.
        options: of every rollout.
        backends: what its cases run on; ``none`` is for what needs no sandbox.
        profiles: what they are graded by.
        cases: the cases.
    """

    title: str
    env: str = "bash"
    task: dict[str, Any] = {}
    solve: list[str] = []
    idle: str = "true"
    options: dict[str, Any] = {}
    backends: list[Backend] = ["docker", "bubblewrap"]
    profiles: list[Profile] = ["strict", "paper"]
    cases: list[Case] = Field(min_length=1)

    @model_validator(mode="after")
    def _unique(self) -> Area:
        names = [case.id for case in self.cases]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"ids that are used twice: {', '.join(sorted(twice))}")
        return self


@dataclass(frozen=True)
class Place:
    """Where a case is played, and by whom the sandboxes are made."""

    backend: Backend
    profile: Profile
    user: User

    def __str__(self) -> str:
        return f"{self.backend}-{self.profile}"

    def limit(self, case: Case) -> str:
        """Return why the case does not hold here; empty if it has to."""
        limits = case.known_limit
        surroundings = {self.backend, self.profile, self.user}
        return limits.why if limits is not None and surroundings.issuperset(limits.on) else ""

    def expected(self, case: Case) -> Expected:
        """Return what has to hold here."""
        return case.expect if self.profile == "strict" else case.paper


def areas() -> Iterator[tuple[str, Area]]:
    """Return the areas by their names, in the order of the table."""
    for path in sorted(FOLDER.glob("*.yaml")):
        yield path.stem, Area.model_validate(yaml.load(path.read_text(), Loader=yaml.CSafeLoader))


def places(area: Area, case: Case, user: User) -> Iterator[Place]:
    """Return where a case is played."""
    for backend in case.backends or area.backends:
        for profile in case.profiles or area.profiles:
            yield Place(backend, profile, user)
