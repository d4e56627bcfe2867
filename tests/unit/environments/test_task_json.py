"""Tasks as data: they survive pickle and JSON exactly, whatever they hold."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from pytest_intercode.core.conversation import Conversation
from pytest_intercode.core.task import (
    Archive,
    Artifact,
    Database,
    FileSpec,
    Hook,
    ImageSource,
    Limits,
    Normaliser,
    Repository,
    RewardOptions,
    Step,
    Task,
    TaskFields,
    Verification,
)
from pytest_intercode.environments.bash.fields import BashFields
from pytest_intercode.environments.ctf.fields import CtfFields
from pytest_intercode.environments.fields import CallTest, CodeTest, ProgramTest
from pytest_intercode.environments.python.fields import PythonFields
from pytest_intercode.environments.registry import BUILTIN_ENVIRONMENTS
from pytest_intercode.environments.sql.fields import SqlFields
from pytest_intercode.environments.swe.fields import SweFields
from pytest_intercode.environments.task_json import task_from_json, task_to_json
from pytest_intercode.errors import SuiteError
from pytest_intercode.suites.catalogue import bundled_tasks

_PLAIN = Task(id="a", query="Do it.", gold=("true",), env="bash", suite="s", dataset="s")

_VERIFICATION = Verification(
    "/tests/test.sh",
    parser="reward",
    files={"/tests/a.bin": FileSpec("file", b"\x00\xff", mode=0o755)},
    archives=(Archive(Path("tests"), "/tests"),),
    collect=(Hook("dump", "root", 3.0),),
    artifacts=(Artifact("/out", ("*.o",)),),
    kit=("pytest==8.4.1",),
    image=ImageSource(Path("d/Dockerfile"), text="FROM a"),
    limits=Limits(memory=2**30),
)


@pytest.mark.parametrize("env", BUILTIN_ENVIRONMENTS)
def test_bundled_tasks_survive_json_and_pickle(env: str) -> None:
    for task in bundled_tasks(env, env):
        for copy in (task_from_json(task_to_json(task)), pickle.loads(pickle.dumps(task))):
            assert copy == task
            assert repr(copy) == repr(task)  # 1 is not 1.0, nor a list a tuple


_OWN: dict[str, TaskFields] = {
    "bash": BashFields((("one", "two"), ("three",))),
    "ctf": CtfFields(("cat flag",)),
    "python": PythonFields(
        (
            CodeTest("assert f() == 1"),
            ProgramTest("in\n", "out\n"),
            CallTest((1, 1.0, [2, {"k": None}], True), {"r": [1e300, 10**30]}),
        ),
        "import math",
        "f",
    ),
    "sql": SqlFields(Database("mysql", "shop", (Path("/a.sql"), Path("b.sql")), writes=False)),
    "swe": SweFields(Repository(source=Path("/a.bundle"), commit="abc")),
}


@pytest.mark.parametrize("env", BUILTIN_ENVIRONMENTS)
def test_everything_that_a_task_may_hold_survives_json(env: str) -> None:
    full = replace(
        _PLAIN,
        env=env,
        fields=_OWN[env],
        query="Umlaute: äöü \ud800 \x00",
        files={
            "a.bin": FileSpec("file", b"\x00\xff\xfb~", mode=0o600),
            "b": FileSpec("link", target="a.bin"),
            "c/": FileSpec("directory"),
        },
        archive=Archive(Path("/data/a.tar.gz"), "/x", 1.5, optional=True),
        setup=("one", "two"),
        image=ImageSource(Path("d/Dockerfile"), context=(("name", Path("/there")),)),
        limits=Limits(memory=2**40, cpus=0.5, network=True),
        reward=RewardOptions(
            normalise=(Normaliser("pattern", r"\d+", "N"),),
            scratch=("/tmp",),
            lenient=("spaces", "columns"),
        ),
        timeout=3.0,
        verification=_VERIFICATION,
        user="agent",
        variables=(("A", "1"),),
        steps=(
            Step("a", "Do it.", _VERIFICATION, Archive(Path("w"), "/app"), ("x",), (("a", 0.5),)),
        ),
        overall="final",
        conversation=Conversation((), "A clerk.", "Go home.", "small", ("BYE", "STOP"), 3),
        audit={"files-used": "a reason"},
        metadata={"nested": {"list": [1, 2.0, "3", None]}, "infinite": math.inf},
        repeat=3,
    )
    copy = task_from_json(task_to_json(full))
    assert copy == full
    assert repr(copy) == repr(full)
    assert hash(copy) == hash(full)


@pytest.mark.parametrize(
    "task",
    [
        replace(_PLAIN, metadata={"day": date(2024, 1, 31)}),
        replace(_PLAIN, env="python", fields=PythonFields((CallTest((date(2024, 1, 31),), 1),))),
    ],
)
def test_what_json_cannot_express_is_named(task: Task) -> None:
    with pytest.raises(SuiteError, match=r"task 'a': .*datetime\.date.* is not a JSON value"):
        task_to_json(task)
