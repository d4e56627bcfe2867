"""The progress of a run and the current state of its episodes, shown while the run lasts.

The run's own terminal, its log and ``pytest-intercode top`` show the same numbers in the same
words. Processes exchange it as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

__all__ = ["EpisodeStatus", "RunStatus", "clock", "short_count", "short_duration", "short_rate"]

Status = TypeVar("Status", bound="EpisodeStatus | RunStatus")

_PHASES = {
    "build": "waits for its image",
    "start": "starts its sandbox",
    "carry": "is graded",
    "tests": "is graded",
    "gold": "waits for gold",
}


@dataclass(frozen=True)
class EpisodeStatus:
    """An episode that is under way.

    Attributes:
        item: the node id of its pytest item.
        task: the task's id.
        agent: the agent with its arguments, without keys and passwords.
        treatment: the treatment applied to the project; empty if there is no choice.
        repeat: which try at the task it is, from 1.
        worker: the process of pytest-xdist that it runs in; empty without xdist.
        phase: its phase, one of :data:`~pytest_intercode.core.phases.PHASES`; empty if that is not
            known, as on a cluster.
        turns: how many turns it has taken.
        max_turns: how many turns it may take.
        tokens: tokens that its agent has reported so far.
        cost: cost so far, in the currency of the user's prices; None if no price is known.
        seconds: wall time since it began.
        timeout: seconds that its agent has; None for no limit.
        action: the beginning of the agent's current or last action, without keys.
    """

    item: str
    task: str
    agent: str = ""
    treatment: str = ""
    repeat: int = 1
    worker: str = ""
    phase: str = ""
    turns: int = 0
    max_turns: int = 0
    tokens: int = 0
    cost: float | None = None
    seconds: float = 0.0
    timeout: float | None = None
    action: str = ""

    def describe_turns(self) -> str:
        """Return how many turns it has taken, and how many it may take."""
        return f"{self.turns}/{self.max_turns or '?'}"

    def describe_time(self) -> str:
        """Return how long it has run, and the time limit of its agent."""
        limit = f"/{clock(self.timeout)}" if self.timeout is not None else ""
        return f"{clock(self.seconds)}{limit}"

    def describe_cost(self) -> str:
        """Return its cost so far; empty if no price is known."""
        return "" if self.cost is None else f"{self.cost:.4g}"

    def describe_action(self) -> str:
        """Return its last action, or in parentheses what it is waiting for."""
        if phase := _PHASES.get(self.phase):
            return f"({phase})"
        return self.action or ("(nothing yet)" if self.phase else "(not known)")

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> EpisodeStatus:
        """Return the status from the JSON form of :func:`dataclasses.asdict`.

        Raises:
            ValueError: the values have another form.
        """
        return _read(cls, values)


@dataclass(frozen=True)
class RunStatus:
    """The progress of a run.

    Attributes:
        pid: the id of its process; of the controller under pytest-xdist.
        name: the user's name for the run; empty if there is none.
        folder: the root folder of its tests.
        seconds: wall time since its first item.
        total: how many episodes it has, as far as that is known.
        done: how many episodes are over.
        reused: how many of these were taken from an earlier part of the run.
        solved: how many of the episodes that are over were solved.
        tokens: tokens of the episodes that are over.
        cost: their cost, in the currency of the user's prices; None if no price is known.
        silent: how many of its processes do not answer.
        episodes: the episodes that are under way.
    """

    pid: int
    name: str = ""
    folder: str = ""
    seconds: float = 0.0
    total: int = 0
    done: int = 0
    reused: int = 0
    solved: int = 0
    tokens: int = 0
    cost: float | None = None
    silent: int = 0
    episodes: tuple[EpisodeStatus, ...] = ()

    @property
    def all_tokens(self) -> int:
        """Tokens so far, including those of episodes under way."""
        return self.tokens + sum(episode.tokens for episode in self.episodes)

    @property
    def all_cost(self) -> float | None:
        """Cost so far, including that of episodes under way; None if no price is known."""
        costs = [self.cost, *(episode.cost for episode in self.episodes)]
        prices = [cost for cost in costs if cost is not None]
        return sum(prices) if prices else None

    @property
    def per_minute(self) -> float | None:
        """Episodes that ended per minute, without reused ones; None while none has ended."""
        fresh_count = self.done - self.reused
        return 60 * fresh_count / self.seconds if fresh_count and self.seconds > 0 else None

    @property
    def remaining_seconds(self) -> float | None:
        """Estimated seconds until the end at the current rate; None if that is not known."""
        missing = self.total - self.done
        rate = self.per_minute
        return 60 * missing / rate if rate and missing > 0 else None

    def describe(self) -> str:
        """Return the status in one line."""
        words = [f"{len(self.episodes)} running"] if self.episodes else []
        words += [f"{self.done} of {max(self.total, self.done)} done", f"{self.solved} solved"]
        if self.per_minute is not None and self.remaining_seconds is not None:
            words.append(short_rate(self.per_minute))
            words.append(f"{short_duration(self.remaining_seconds)} remaining")
        if self.all_tokens:
            words.append(f"{short_count(self.all_tokens)} tokens")
        if self.all_cost is not None:
            words.append(f"cost {self.all_cost:.4g}")
        if self.silent:
            words.append(f"{self.silent} without an answer")
        return ", ".join(words)

    def to_json(self) -> dict[str, Any]:
        """Return the status as a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RunStatus:
        """Return the status from the result of :meth:`to_json`.

        Raises:
            ValueError: the values have another form.
        """
        try:
            episodes = tuple(map(EpisodeStatus.from_json, values["episodes"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"episodes: {error!r}") from None
        return _read(cls, {**values, "episodes": episodes})


def _read(cls: type[Status], values: Mapping[str, Any]) -> Status:
    """Return an object of a class, with values for its fields converted to the fields' types."""
    try:
        types = {field.name: str(field.type) for field in fields(cls) if field.name in values}
        return cls(**{name: _CONVERTERS[kind](values[name]) for name, kind in types.items()})
    except (TypeError, AttributeError) as error:
        raise ValueError(str(error)) from None


_CONVERTERS: Mapping[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "float | None": lambda value: None if value is None else float(value),
    "tuple[EpisodeStatus, ...]": tuple,
}


def clock(seconds: float) -> str:
    """Return a duration in the form of a clock: ``1:23``, ``1:02:03``."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def short_rate(per_minute: float) -> str:
    """Return a rate per minute, or per hour if it is low."""
    number, unit = (per_minute, "min") if per_minute >= 1 else (60 * per_minute, "h")
    return f"{number:.3g}/{unit}" if number < 1000 else f"{short_count(round(number))}/{unit}"


def short_count(number: int) -> str:
    """Return a number in a few characters, so that the line fits on a narrow terminal."""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k")):
        if number >= size:
            return f"{number / (1000 if unit == 'k' else size):.3g}{unit}"
    return f"{number:,}"


def short_duration(seconds: float) -> str:
    """Return a duration in a few characters."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
