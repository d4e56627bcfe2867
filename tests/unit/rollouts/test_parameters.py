"""What a trainer gives its agent: values, files and their versions, inline and concurrently."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pytest_intercode
from pytest_intercode import Observation, Task, run_rollouts
from pytest_intercode.environments import registry
from pytest_intercode.errors import AgentLoadError, ConfigurationError
from pytest_intercode.rollouts.parameters import ParameterSource
from tests.unit.rollouts.test_stream import Adding
from tests.unit.rollouts.test_turn_loop import TASK


@pytest.fixture(autouse=True)
def _adding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_added", {})
    monkeypatch.setattr(Adding, "broken_tasks", {}, raising=False)
    pytest_intercode.register_environment(Adding)


def tasks(count: int) -> list[Task]:
    return [replace(TASK, id=str(number), env="adding") for number in range(count)]


class Learner:
    """Logs what it was given."""

    def __init__(self, weights: Path | None = None, bias: float = 0.0) -> None:
        self.said = f"{bias} {weights.read_text() if weights else ''}"

    def act(self, observation: Observation) -> str:
        pytest_intercode.log(self.said)
        return "submit"


@pytest.mark.parametrize("concurrency", [1, 3])
def test_episodes_have_the_parameters_of_when_they_began(concurrency: int, tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_text("first")
    with run_rollouts(
        tasks(6),
        Learner,
        concurrency=concurrency,
        buffer=0,
        ordered=True,
        parameters={"weights": path, "bias": 0.5},
    ) as records:
        before = next(records)
        path.write_text("second")  # the file was copied, so this changes nothing
        while before.item is not None and before.item < 2:
            assert (before.turns[0].log, before.parameters_version) == ("0.5 first", 1)
            before = next(records)
        assert records.set_parameters({"weights": path, "bias": 2}, version=9) == 9
        path.unlink()
        after = list(records)[-1]
    assert (after.turns[0].log, after.parameters_version) == ("2 second", 9)


def test_a_version_alone_says_what_a_callable_of_the_process_played_with() -> None:
    def policy(observation: Observation) -> str:
        return "submit"

    with run_rollouts(tasks(2), policy, parameters_version=3) as records:
        assert next(records).parameters_version == 3
        assert records.set_parameters({}) == 4
        assert next(records).parameters_version == 4


def test_copies_of_files_are_removed_when_nothing_uses_them(tmp_path: Path) -> None:
    class User:
        """What sends files."""

        def __init__(self) -> None:
            self.kept: dict[Path, str] = {}

        def put(self, path: Path, digest: str) -> None:
            self.kept[path] = digest

        def forget(self, path: Path) -> None:
            del self.kept[path]

    def present() -> set[str]:
        return {path.read_text() for path in user.kept}

    source = ParameterSource("a test", frozenset(["w"]))
    source.user = user = User()  # type: ignore[assignment]  # what an executor has of it
    path = tmp_path / "w"
    taken = []
    for text in ("a", "b", "c"):
        path.write_text(text)
        source.set({"w": path})
        taken.append(source.take())
    assert present() == {"a", "b", "c"}
    source.give_back(taken[1])
    assert present() == {"a", "c"}
    source.give_back(taken[2])
    assert present() == {"a", "c"}, "it is the present one"
    copies = [copy.parent.parent for copy in user.kept]
    source.close()
    assert (user.kept, [copy.exists() for copy in copies]) == ({}, [False, False])
    with pytest.raises(ConfigurationError, match="the stream is closed"):
        source.set({"w": path})


@pytest.mark.parametrize(
    ("given", "version", "message"),
    [
        ({"bias": {1, 2}}, None, "not JSON serializable: JSON values and paths of files"),
        ({"bias": "x" * 2**21}, None, "write them into a file"),
        ({"bias": Path("/nonexistent/w")}, None, "/nonexistent/w cannot be copied: No such file"),
        ({"bias": 1}, 0, "parameters_version=0: a whole number from 1 up"),
        ({"bias": 1}, True, "parameters_version=True"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, Any], version: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        run_rollouts(tasks(1), Learner, parameters=given, parameters_version=version)


def test_names_stay_the_same() -> None:
    with run_rollouts(tasks(1), Learner, parameters={"bias": math.pi}) as records:
        with pytest.raises(ConfigurationError, match="weights in place of bias"):
            records.set_parameters({"weights": 1})
        with pytest.raises(ConfigurationError, match="none in place of bias"):
            records.set_parameters({})


def _named() -> Iterator[tuple[Any, dict[str, str], str]]:
    yield lambda: Learner(), {}, "parameters are for an agent that is a class"
    yield "oracle", {}, "parameters are for an agent that is a class"
    yield f"{__name__}:tasks", {}, "parameters are for an agent that is a class"
    yield type("None_", (Learner,), {"__init__": lambda self: None}), {}, "with bias"
    yield f"{__name__}:Learner", {"bias": "1"}, "bias: an argument and a parameter as well"


@pytest.mark.parametrize(("agent", "arguments", "message"), list(_named()))
def test_only_a_class_takes_them(agent: Any, arguments: dict[str, str], message: str) -> None:
    with pytest.raises(AgentLoadError, match=message):
        run_rollouts(tasks(1), agent, parameters={"bias": 1}, agent_arguments=arguments)
