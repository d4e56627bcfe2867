"""The results file: one JSON object a line, InterCode's own keys first.

``environment, dataset, task_id, query, turn_history, summary`` are InterCode's; whatever reads its
result files reads ours. They are read back by :mod:`pytest_intercode.results.reading`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.usage import Usage
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results.reading import read_results

__all__ = ["ResultsFile", "episode_row", "read_results", "shown"]

_SECRET = re.compile(r"(?i)(key|secret|password|passwd|passphrase|token|credentials?|auth)$")


def episode_row(episode: EpisodeRecord) -> dict[str, Any]:
    """Return an episode as builtins, ready for JSON and for pytest's reports."""
    rewards = [float(turn.reward) for turn in episode.turns]
    best = max(range(len(rewards)), key=lambda at: rewards[at], default=0)
    thoughts = [_plain(turn.thought) for turn in episode.turns]
    logs = [_plain(turn.log) for turn in episode.turns]
    passed = [turn.passed for turn in episode.turns]
    answers = [turn.answer and _plain(turn.answer) for turn in episode.turns]
    return {
        "environment": f"ic_{episode.task.env}",
        "dataset": episode.task.dataset,
        "task_id": episode.task.id,
        "query": episode.task.query,
        "turn_history": {
            "actions": [_plain(turn.action) for turn in episode.turns],
            "observations": [_plain(turn.observation) for turn in episode.turns],
            "rewards": rewards,
            "valid_action": [bool(turn.executed) for turn in episode.turns],
            **({"thoughts": thoughts} if any(thoughts) else {}),
        },
        "summary": {
            "max_reward": max([float(episode.reward), *rewards]),
            "max_reward_idx": best,
            "turns_taken": len(episode.turns),
            "turns_max": episode.max_turns,
        },
        "outcome": episode.outcome,
        "reward": float(episode.reward),
        "reward_parts": _numbers(episode.parts),
        "reason": _plain(episode.reason),
        "detail": _plain(episode.detail),
        "seconds": round(episode.seconds, 3),
        "turn_seconds": [round(turn.seconds, 4) for turn in episode.turns],
        "turn_parts": [_numbers(turn.parts) for turn in episode.turns],
        "turn_agent_seconds": [round(turn.agent_seconds, 4) for turn in episode.turns],
        **({"turn_passed": passed} if any(passed) else {}),
        **({"turn_answers": answers} if any(answers) else {}),
        **({"turn_logs": logs} if any(logs) else {}),
        **({"turn_usage": [_used(turn.usage) for turn in episode.turns]} if episode.usage else {}),
        "usage": _used(episode.usage),
        "log": _plain(episode.log),
        "left_behind": [_plain(line) for line in episode.left_behind],
        "suite": episode.task.suite,
        "hardness": episode.task.hardness,
        "tags": list(episode.task.tags),
        "profile": episode.profile,
        "agent": episode.agent,
        "agent_arguments": shown(episode.agent_arguments),
        "sandbox": episode.sandbox,
        "image": episode.image,
        "task_digest": episode.task.digest,
        "repeat": episode.task.repeat,
        "node_id": episode.node_id,
        "attempts": list(episode.attempts),
        "end_state": dict(episode.state),
    }


def shown(arguments: Mapping[str, str]) -> dict[str, str]:
    """Return an agent's arguments as they may be written down: without keys and passwords."""
    return {
        name: "(hidden)" if _SECRET.search(name) else _plain(str(value))
        for name, value in arguments.items()
    }


def _plain(text: str) -> str:
    """Return a text as a ``str`` that can be written as UTF-8, which agents need not give us."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _numbers(parts: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in parts.items()}


def _used(usage: Usage) -> dict[str, Any]:
    return {
        "requests": usage.requests,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost": usage.cost,
    }


def _mend(path: Path) -> list[str]:
    """Take a torn last line out of a results file, and end the last whole one.

    Returns:
        What there is to say of it.
    """
    torn: list[str] = []
    read_results(path, torn=torn.append)
    with path.open("rb+") as file:
        whole, end, rest = file.read().rpartition(b"\n")
        if torn:
            file.truncate(len(whole) + len(end))
        elif rest:
            file.write(b"\n")
    return torn


class ResultsFile:
    """Appends rows as episodes end, so that what is earned is never lost.

    Args:
        path: the file; what is there is replaced.
        resume: keep what is there, but for a last line that is only begun.

    Attributes:
        path: the file.
        rows: how many rows were written here.
        mended: a line for people, if a last line was torn.

    Raises:
        ConfigurationError: the file cannot be written, or what is to be resumed is no results file.
    """

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self.path = path
        self.rows = 0
        self.mended = _mend(path) if resume and path.exists() else []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[str] = path.open("a" if resume else "w", encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(
                f"--intercode-results={path}: cannot be written: {error.strerror}"
            ) from None

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one row; it is in the file when this returns."""
        self._file.write(json.dumps(row, ensure_ascii=True) + "\n")
        self._file.flush()
        self.rows += 1

    def close(self) -> None:
        """Close the file."""
        self._file.close()
