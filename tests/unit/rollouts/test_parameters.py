"""What a trainer gives its agent: values, files and their versions, inline and concurrently."""

from __future__ import annotations

import math
import threading
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


class _Nodes:
    """What has files sent, as an executor has it."""

    def __init__(self) -> None:
        self.kept: dict[Path, str] = {}

    def put(self, path: Path, digest: str) -> None:
        self.kept[path] = digest

    def forget(self, path: Path) -> None:
        self.kept.pop(path, None)


def _source(nodes: _Nodes, *names: str) -> ParameterSource:
    source = ParameterSource("a test", frozenset(names))
    source.user = nodes  # type: ignore[assignment]  # what a source needs of an executor
    return source


def test_copies_of_files_are_removed_when_nothing_uses_them(tmp_path: Path) -> None:
    def present() -> set[str]:
        return {path.read_text() for path in nodes.kept}

    nodes = _Nodes()
    source = _source(nodes, "w")
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
    copies = [copy.parent.parent for copy in nodes.kept]
    source.close()
    assert (nodes.kept, [copy.exists() for copy in copies]) == ({}, [False, False])
    with pytest.raises(ConfigurationError, match="the stream is closed"):
        source.set({"w": path})


def test_a_file_that_cannot_be_read_leaves_no_copy_of_the_others(tmp_path: Path) -> None:
    nodes = _Nodes()
    source = _source(nodes, "adapter", "head")
    adapter, head = tmp_path / "adapter", tmp_path / "head"
    adapter.write_text("a")
    head.write_text("h")
    assert source.set({"adapter": adapter, "head": head}) == 1
    copies = sorted(nodes.kept)
    folder = copies[0].parent.parent
    folders = sorted(folder.iterdir())
    with pytest.raises(ConfigurationError, match=r"head: .*missing cannot be copied"):
        source.set({"adapter": adapter, "head": tmp_path / "missing"})
    assert sorted(nodes.kept) == copies
    assert sorted(folder.iterdir()) == folders
    assert source.set({"adapter": adapter, "head": head}) == 2, "the one that failed has no number"
    source.close()


def test_two_threads_that_set_them_give_the_earlier_ones_back_once(tmp_path: Path) -> None:
    class SetsNext(_Nodes):
        """While the file of one version is put, another thread sets the next one."""

        def put(self, path: Path, digest: str) -> None:
            super().put(path, digest)
            if path.read_text() == "second":
                third = tmp_path / "third"
                third.write_text("third")
                thread = threading.Thread(target=lambda: versions.append(source.set({"w": third})))
                thread.start()
                thread.join()

    versions: list[int] = []
    nodes = SetsNext()
    source = _source(nodes, "w")
    for text in ("first", "second"):
        (tmp_path / text).write_text(text)
        versions.append(source.set({"w": tmp_path / text}))
        if text == "first":
            parameters = source.take()
    assert versions == [1, 2, 3]
    assert {path.read_text() for path in nodes.kept} == {"first", "second"}
    source.give_back(parameters)
    assert {path.read_text() for path in nodes.kept} == {"second"}
    source.close()


@pytest.mark.parametrize(
    ("given", "version", "message"),
    [
        ({"bias": {1, 2}}, None, "not JSON serializable: JSON values and paths of files"),
        ({"bias": "x" * 2**21}, None, "write them to a file"),
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
        with pytest.raises(ConfigurationError, match="weights instead of bias"):
            records.set_parameters({"weights": 1})
        with pytest.raises(ConfigurationError, match="none instead of bias"):
            records.set_parameters({})


@pytest.mark.parametrize("version", [0, True, "2"])
def test_a_wrong_version_names_the_argument_it_came_in(version: Any) -> None:
    records = run_rollouts(tasks(1), Learner, parameters={"bias": 1})
    with records, pytest.raises(ConfigurationError) as error_info:
        records.set_parameters({"bias": 2}, version)
    assert str(error_info.value) == (
        f"run_rollouts(): set_parameters: version={version!r}: a whole number from 1 up is needed"
    )


def _named() -> Iterator[tuple[Any, dict[str, str], str]]:
    yield lambda: Learner(), {}, "only an agent that is a class takes parameters"
    yield "oracle", {}, "only an agent that is a class takes parameters"
    yield f"{__name__}:tasks", {}, "only an agent that is a class takes parameters"
    yield type("None_", (Learner,), {"__init__": lambda self: None}), {}, "with bias"
    yield f"{__name__}:Learner", {"bias": "1"}, "bias: given as an argument and as a parameter"


@pytest.mark.parametrize(("agent", "arguments", "message"), list(_named()))
def test_only_a_class_takes_them(agent: Any, arguments: dict[str, str], message: str) -> None:
    with pytest.raises(AgentLoadError, match=message):
        run_rollouts(tasks(1), agent, parameters={"bias": 1}, agent_arguments=arguments)
