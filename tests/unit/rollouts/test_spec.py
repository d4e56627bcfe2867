"""What a rollout is to do survives pickling and JSON."""

from __future__ import annotations

import pickle
from dataclasses import fields
from pathlib import Path

import pytest

from pytest_intercode.core.task import Archive, FileSpec, Limits, Task
from pytest_intercode.core.usage import Budget
from pytest_intercode.environments.fields import CodeTest
from pytest_intercode.environments.python.fields import PythonFields
from pytest_intercode.rollouts.spec import Parameters, RolloutSpec
from pytest_intercode.suites.loader import load_suite
from pytest_intercode.system.files import bundled_folder

FULL = RolloutSpec(
    Task(
        *("t", "Say ünï.", ("echo \udc80",), "python", "suite", "set"),
        files={"a": FileSpec("file", bytes(range(256)), mode=0o640)},
        archive=Archive(Path("/data/tree.tar"), keep_times_before=1.5),
        limits=Limits(memory=1, network=True),
        fields=PythonFields((CodeTest("assert f(1) == 2"),)),
        metadata={"further": [1, {"deep": None}]},
    ),
    agent="mine.py:Agent",
    agent_arguments={"model": "m"},
    parameters=Parameters(7, {"bias": [0.5, None]}, (("weights", Path("/tmp/7/w.npz")),)),
    agent_folder=Path("/project"),
    profile="paper",
    feedback="reward",
    max_turns=3,
    action_timeout=0.5,
    timeout=60.0,
    budget=Budget(tokens=10, cost=0.25),
    node_id="suite.yaml::test_solves[t]",
)


@pytest.mark.parametrize("spec", [RolloutSpec(Task("t", "q", (), "sql", "s", "d")), FULL])
def test_a_spec_survives_json_and_pickling(spec: RolloutSpec) -> None:
    assert RolloutSpec.from_json(spec.to_json()) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_the_full_spec_leaves_nothing_at_its_default() -> None:
    plain = RolloutSpec(FULL.task)
    same = [f.name for f in fields(FULL) if getattr(FULL, f.name) == getattr(plain, f.name)]
    assert same == ["task"]


@pytest.mark.parametrize("env", ["bash", "sql", "python", "ctf"])
def test_specs_of_bundled_tasks_survive(env: str) -> None:
    for task in load_suite(bundled_folder("tasks") / f"{env}.yaml").tasks:
        spec = RolloutSpec(task)
        assert RolloutSpec.from_json(spec.to_json()) == spec
