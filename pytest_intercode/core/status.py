"""How far a run is, and what its episodes do at the moment: what is shown while it lasts.

The run's own terminal, its log and ``pytest-intercode top`` show the same numbers in the same
words. Between processes it goes as JSON.
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
        treatment: what was laid over the project; empty where there is no choice.
        repeat: which try at the task it is, from 1.
        worker: the process of pytest-xdist that it runs in; empty without.
        phase: what it is at, one of :data:`~pytest_intercode.core.phases.PHASES`; empty where that
            is not known, as on a cluster.
        turns: how many turns it has taken.
        max_turns: how many it may take.
        tokens: tokens that its agent has reported so far.
        cost: likewise, in the currency of the user's prices; None where no price is known.
        seconds: wall time since it began.
        timeout: seconds that its agent has; None for no limit.
        action: what its agent does, or did last; the beginning, without keys.
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
        """Return the turns that it has taken, of those that it may take."""
        return f"{self.turns}/{self.max_turns or '?'}"

    def describe_time(self) -> str:
        """Return how long it has run, of how long its agent may."""
        limit = f"/{clock(self.timeout)}" if self.timeout is not None else ""
        return f"{clock(self.seconds)}{limit}"

    def describe_cost(self) -> str:
        """Return what it has cost so far; empty where no price is known."""
        return "" if self.cost is None else f"{self.cost:.4g}"

    def describe_action(self) -> str:
        """Return its last action, or in parentheses what it waits for."""
        if phase := _PHASES.get(self.phase):
            return f"({phase})"
        return self.action or ("(nothing yet)" if self.phase else "(not known)")

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> EpisodeStatus:
        """Return what :func:`dataclasses.asdict` has made into JSON.

        Raises:
            ValueError: it is something else.
        """
        return _read(cls, values)


@dataclass(frozen=True)
class RunStatus:
    """How far a run is.

    Attributes:
        pid: the id of its process; of the controller under pytest-xdist.
        name: what the user calls it; empty where they do not.
        folder: the root folder of its tests.
        seconds: wall time since its first item.
        total: how many episodes it has, as far as that is known.
        done: how many of them are over.
        reused: how many of those were taken from an earlier part of the run.
        solved: how many of those were solved.
        tokens: tokens of the episodes that are over.
        cost: likewise, in the currency of the user's prices; None where no price is known.
        silent: processes of it that do not answer.
        episodes: those that are under way.
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
        """Tokens so far, those of episodes under way among them."""
        return self.tokens + sum(episode.tokens for episode in self.episodes)

    @property
    def all_cost(self) -> float | None:
        """Money so far, that of episodes under way among it; None where no price is known."""
        costs = [self.cost, *(episode.cost for episode in self.episodes)]
        prices = [cost for cost in costs if cost is not None]
        return sum(prices) if prices else None

    @property
    def per_minute(self) -> float | None:
        """Episodes that ended in a minute; None while none has."""
        fresh_count = self.done - self.reused
        return 60 * fresh_count / self.seconds if fresh_count and self.seconds > 0 else None

    @property
    def remaining_seconds(self) -> float | None:
        """Seconds until its end if it goes on like this; None where that cannot be told."""
        missing = self.total - self.done
        rate = self.per_minute
        return 60 * missing / rate if rate and missing > 0 else None

    def describe(self) -> str:
        """Return it in one line."""
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
        """Return it as a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RunStatus:
        """Return what :meth:`to_json` has made.

        Raises:
            ValueError: it is something else.
        """
        try:
            episodes = tuple(map(EpisodeStatus.from_json, values["episodes"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"episodes: {error!r}") from None
        return _read(cls, {**values, "episodes": episodes})


def _read(cls: type[Status], values: Mapping[str, Any]) -> Status:
    """Return an object of a class with what values have of its fields, converted to their types."""
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
    """Return a time as a clock shows it: ``1:23``, ``1:02:03``."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def short_rate(per_minute: float) -> str:
    """Return how many episodes end in a minute, or in an hour where they are few."""
    number, unit = (per_minute, "min") if per_minute >= 1 else (60 * per_minute, "h")
    return f"{number:.3g}/{unit}" if number < 1000 else f"{short_count(round(number))}/{unit}"


def short_count(number: int) -> str:
    """Return a number in a few characters: the line has to fit on a narrow terminal."""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k")):
        if number >= size:
            return f"{number / (1000 if unit == 'k' else size):.3g}{unit}"
    return f"{number:,}"


def short_duration(seconds: float) -> str:
    """Return a time in a few characters."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
