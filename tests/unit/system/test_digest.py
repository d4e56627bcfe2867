"""The digest changes with everything that the agent gets or is graded by, and with nothing else."""

from __future__ import annotations

import os
import re
import tarfile
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from pytest_intercode.core.conversation import Conversation
from pytest_intercode.core.judge import Judge
from pytest_intercode.core.machine import Service, Services
from pytest_intercode.core.platforms import Platform
from pytest_intercode.core.task import (
    Archive,
    Database,
    FileSpec,
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
from pytest_intercode.environments.sql.fields import SqlFields
from pytest_intercode.environments.swe.fields import SweFields
from pytest_intercode.environments.task_json import task_from_json, task_to_json
from pytest_intercode.projects.fakes import Fake
from pytest_intercode.suites.loader import load_suite
from pytest_intercode.system import digest as module
from pytest_intercode.system.digest import PARTS, digest, value_digest

_TASK = Task(id="a", query="Do it.", gold=("true",), env="bash", suite="s", dataset="s")
_NO_PART = {
    *("id", "suite", "dataset", "hardness", "tags", "max_turns", "action_timeout", "timeout"),
    *("xfail", "skip", "source", "audit", "decoys", "metadata", "repeat"),
    *("needs_network", "gold_skip", "fields", "platform", "treatment", "tries", "pass_rate"),
}

_CHANGES: dict[str, Any] = {
    "query": "Do that.",
    "gold": ("false",),
    "env": "ctf",
    "files": {"a": FileSpec("file", b"1")},
    "archive": Archive(Path("/nowhere.tar"), optional=True),
    "setup": ("mkdir a",),
    "image": ImageSource(image="debian:12"),
    "workdir": "/work",
    "limits": Limits(memory=2**20),
    "reward": RewardOptions(output="always"),
    "verification": Verification("make test", archives=(Archive(Path("/nowhere")),)),
    "user": "agent",
    "variables": (("A", "1"),),
    "steps": (Step("first", "Do it.", Verification("true")),),
    "overall": "final",
    "judge": Judge("Is it plain?", "m-1", weight=0.5),
    "conversation": Conversation(("Yes.",)),
    "services": Services((Service("db", ImageSource(image="debian:12")),)),
    "mounts": (Archive(Path("/nowhere"), "/data"),),
}
_OWN_CHANGES: list[tuple[str, TaskFields]] = [
    ("bash", BashFields((("true 1",),))),
    ("ctf", CtfFields()),
    ("python", PythonFields((CodeTest("assert f()"),))),
    ("python", PythonFields(test_setup="import math")),
    ("python", PythonFields(entry="f")),
    ("sql", SqlFields(Database("sqlite", "shop"))),
    ("swe", SweFields(Repository(commit="abc"))),
]


def test_every_field_is_a_part_or_is_none_on_purpose() -> None:
    assert set(PARTS) | _NO_PART == {field.name for field in fields(Task)}
    assert not set(PARTS) & _NO_PART
    assert set(_CHANGES) == set(PARTS)


@pytest.mark.parametrize("name", PARTS)
def test_a_part_changes_the_digest(name: str) -> None:
    changed = replace(_TASK, **{name: _CHANGES[name]})
    assert digest(changed) != digest(_TASK)
    assert digest(task_from_json(task_to_json(changed))) == digest(changed)


@pytest.mark.parametrize(("env", "own"), _OWN_CHANGES)
def test_a_field_of_an_environment_changes_it(env: str, own: TaskFields) -> None:
    task = replace(_TASK, env=env)
    changed = replace(task, fields=own)
    assert (digest(changed) == digest(task)) == (own == type(own)())
    assert digest(task_from_json(task_to_json(changed))) == digest(changed)


def test_no_other_field_changes_it() -> None:
    changes: dict[str, Any] = {
        **{"needs_network": True, "gold_skip": "so"},
        **{"id": "b", "suite": "t", "dataset": "t", "hardness": "hard", "tags": ("x",)},
        **{"max_turns": 3, "action_timeout": 1.0, "timeout": 2.0, "xfail": "so", "skip": "so"},
        **{
            "fields": CtfFields(("cat",)),
            "source": "f:1",
            "audit": {"gold-runs": "so"},
            "decoys": ("*",),
        },
        **{"metadata": {"x": 1}, "repeat": 2, "platform": Platform("arm64")},
        **{"treatment": "rules", "tries": 2, "pass_rate": 0.5},
    }
    assert set(changes) == _NO_PART
    other = replace(_TASK, **changes)
    assert len(digest(_TASK)) == 16
    assert digest(other) == digest(_TASK)
    for_platform = replace(_TASK, platform=Platform("arm64"))
    assert task_from_json(task_to_json(for_platform)) == for_platform


@pytest.mark.parametrize(
    ("name", "values"),
    [
        (
            "files",
            [
                {"a": FileSpec("file", b"1")},
                {"a": FileSpec("file", b"2")},
                {"b": FileSpec("file", b"1")},
                {"a": FileSpec("file", b"1", mode=0o755)},
                {"a": FileSpec("link", target="b")},
                {"a": FileSpec("link", target="c")},
                {"a": FileSpec("directory")},
            ],
        ),
        (
            "limits",
            [
                Limits(),
                Limits(memory=1),
                Limits(cpus=0.5),
                Limits(pids=9),
                Limits(file_size=1),
                Limits(network=True),
                Limits(hosts=("a.test",)),
                Limits(hosts=("a.test", "b.test")),
                Limits(output=1),
            ],
        ),
        (
            "reward",
            [
                RewardOptions(),
                RewardOptions(output="never"),
                RewardOptions(rows="any-order"),
                RewardOptions(columns="any-order"),
                RewardOptions(lenient=("spaces",)),
                RewardOptions(lenient=("words",)),
                RewardOptions(scratch=("/tmp",)),
                RewardOptions(normalise=(Normaliser("numbers"),)),
                RewardOptions(normalise=(Normaliser("pattern", "a", "b"),)),
                RewardOptions(normalise=(Normaliser("pattern", "a", "c"),)),
            ],
        ),
        (
            "fields",
            [
                PythonFields((test,))
                for test in (
                    CodeTest("1"),
                    ProgramTest("1", "2"),
                    ProgramTest("1", "3"),
                    CallTest((1,), 1),
                    CallTest((1,), 1.0),
                    CallTest((1,), True),
                    CallTest(([1],), 1),
                    CallTest(({"1": float("nan")},), 1),
                )
            ],
        ),
        (
            "fields",
            [
                SqlFields(Database("sqlite", "a")),
                SqlFields(Database("sqlite", "b")),
                SqlFields(Database("mysql", "a")),
                SqlFields(Database("sqlite", "a", writes=True)),
            ],
        ),
        ("gold", [("a", "b"), ("a b",), ("b", "a"), ("a\nb",), ("\ud800",)]),
        ("image", [None, ImageSource(image="a"), ImageSource(image="b")]),
    ],
)
def test_unlike_values_have_unlike_digests(name: str, values: list[Any]) -> None:
    made = [digest(replace(_TASK, **{name: value})) for value in values]
    assert len(set(made)) == len(values)


def test_the_order_of_files_is_none() -> None:
    pair = {"a": FileSpec("file", b"1"), "b": FileSpec("file", b"2")}
    turned = dict(reversed(pair.items()))
    assert digest(replace(_TASK, files=pair)) == digest(replace(_TASK, files=turned))


# -- the content of files, wherever they are


def _tar(folder: Path, content: str, when: float = 1e9) -> Task:
    folder.mkdir(exist_ok=True)
    (folder / "x").write_text(content)
    os.utime(folder / "x", (when, when))
    with tarfile.open(folder / "a.tar", "w") as archive:
        archive.add(folder / "x", "x")
    return replace(_TASK, archive=Archive(folder / "a.tar"))


def _folder(folder: Path, content: str) -> Task:
    (folder / "tree/in").mkdir(parents=True, exist_ok=True)
    (folder / "tree/in/x").write_text(content)
    return replace(_TASK, archive=Archive(folder / "tree"))


def _sql(database: Database) -> Task:
    return replace(_TASK, env="sql", fields=SqlFields(database))


def _script(folder: Path, content: str) -> Task:
    folder.mkdir(exist_ok=True)
    (folder / "shop.sql").write_text(content)
    return _sql(Database("mysql", "shop", (folder / "shop.sql",)))


def _sqlite(folder: Path, content: str) -> Task:
    folder.mkdir(exist_ok=True)
    (folder / "shop.db").write_text(content)
    return _sql(Database("sqlite", "shop", file=folder / "shop.db"))


def _dockerfile(folder: Path, content: str) -> Task:
    folder.mkdir(exist_ok=True)
    (folder / "a.Dockerfile").write_text(content)
    return replace(_TASK, image=ImageSource(folder / "a.Dockerfile"))


def _context(folder: Path, content: str) -> Task:
    (folder / "a").mkdir(parents=True, exist_ok=True)
    (folder / "a/install.sh").write_text(content)
    return _dockerfile(folder, "FROM x")


def _further(folder: Path, content: str) -> Task:
    folder.mkdir(exist_ok=True)
    (folder / "init.sql").write_text(content)
    return replace(_TASK, image=ImageSource(image="x", context=(("i", folder / "init.sql"),)))


_MAKERS = [_tar, _folder, _script, _sqlite, _dockerfile, _context, _further]


@pytest.mark.parametrize("make", _MAKERS)
def test_the_content_of_a_file_counts_and_its_place_does_not(
    tmp_path: Path, make: Callable[[Path, str], Task]
) -> None:
    one = digest(make(tmp_path / "one", "old"))
    assert digest(make(tmp_path / "two", "old")) == one
    assert digest(make(tmp_path / "three", "new")) != one
    assert one != digest(_TASK)


@pytest.mark.parametrize("make", [_tar, _folder, _script, _sqlite])
def test_a_file_that_changes_is_read_again(
    tmp_path: Path, make: Callable[[Path, str], Task]
) -> None:
    before = digest(make(tmp_path, "old"))
    assert digest(make(tmp_path, "a longer text")) != before


def test_a_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [make(tmp_path / make.__name__, "text") for make in _MAKERS]
    before = [digest(task) for task in tasks]

    def unexpected(*_: object, **__: object) -> None:
        raise AssertionError("a file is read again")

    monkeypatch.setattr(Path, "open", unexpected)
    monkeypatch.setattr(module, "build_archive", unexpected)
    assert [digest(task) for task in tasks] == before


@pytest.mark.parametrize("make", _MAKERS)
def test_what_is_not_there_is_no_error(tmp_path: Path, make: Callable[[Path, str], Task]) -> None:
    there = make(tmp_path / "folder", "text")
    gone = task_from_json(task_to_json(there).replace(b"/folder/", b"/gone/"))
    assert gone != there
    assert digest(gone) != digest(there)
    assert digest(gone) == digest(gone)


def test_times_count_where_the_sandbox_gets_them(tmp_path: Path) -> None:
    old, new = _tar(tmp_path / "old", "x", 1e9), _tar(tmp_path / "new", "x", 1.1e9)
    assert digest(old) != digest(new)

    def before(task: Task, moment: float) -> str:
        assert task.archive is not None
        return digest(replace(task, archive=replace(task.archive, keep_times_before=moment)))

    assert before(old, 1.0) == before(new, 1.0)  # both get the time of unpacking
    assert before(old, 1.05e9) != before(new, 1.05e9)


def test_where_an_archive_goes_counts(tmp_path: Path) -> None:
    task = _tar(tmp_path, "x")
    assert task.archive is not None
    assert digest(replace(task, archive=replace(task.archive, at="/else"))) != digest(task)
    assert digest(replace(task, archive=replace(task.archive, optional=True))) == digest(task)


def test_ten_thousand_tasks_take_seconds_at_most(tmp_path: Path) -> None:
    task = replace(_script(tmp_path, "CREATE TABLE a (b INT);" * 100_000), setup=("true",) * 3)
    start = time.monotonic()
    for number in range(10_000):
        digest(replace(task, query=f"query {number}"))
    assert time.monotonic() - start < 20  # about 0.6 s on an idle machine


def test_digests_of_before() -> None:
    """What tasks did not have then is no part of the digest of those that do not have it now."""
    assert digest(_TASK) == "c1abd847e1dfc02e"


_SAMPLE = {
    "bash": (
        "files: {a.txt: x, b: {base64: AA==, mode: '0600'}}\n    alternatives: [echo 2]\n"
        "    setup: [mkdir a]\n    reward: {lenient: all, scratch: [/tmp]}\n    limits: {pids: 64}"
    ),
    "sql": "database: {name: d, script: d.sql}",
    "python": "tests: [assert f() == 1, {input: a, output: b}, {arguments: [1], result: 2}]\n"
    "    test_setup: import os\n    entry: f",
    "ctf": "solution: cat flag",
    "swe": "repository: {at: /r, source: repository.tar}\n    variables: {A: b}\n"
    "    verification: {command: make test, files: {t.py: x}, fail_to_pass: [t], carried: [/c]}",
}
"""A task of each environment, with the fields that are its own."""

_DIGESTS = {
    "bash": "f5970b475d838fd6",
    "sql": "d333d4c4bfa02289",
    "python": "7a0791446b5d4301",
    "ctf": "224548baa2254895",
    "swe": "efacae491aecac95",
}


@pytest.mark.parametrize(("env", "fields"), _SAMPLE.items())
def test_results_of_earlier_versions_are_recognised(env: str, fields: str, tmp_path: Path) -> None:
    """What a task is written as may change; its digest may not."""
    (tmp_path / "d.sql").write_text("CREATE TABLE t (a);")
    (tmp_path / "repository.tar").write_text("x")
    path = tmp_path / "suite.yaml"
    path.write_text(
        f"env: {env}\ntasks:\n  - id: a\n    query: Do it.\n    gold: 'def f(): return 1'\n"
        f"    {fields}\n"
    )
    (task,) = load_suite(path).tasks
    assert digest(task) == _DIGESTS[env]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"b": [1, None], "a": (2.5, True)}, "8e00ff1c97fc21e8"),
        ({2: "a", 10: "b"}, "3762ef954f7c6cef"),
        (MappingProxyType({"a": Path("b"), "c": b"d"}), "3b349b9c92b6cc0c"),
        (Limits(pids=3), "bc32b3f9cd6a73e4"),
        ([max, Path.exists, Limits.__init__, int], "ef58d912114b8f02"),
    ],
)
def test_values_of_earlier_versions_are_recognised(value: object, expected: str) -> None:
    """Recordings and results of users have these digests."""
    assert value_digest(value) == expected


def test_keys_that_json_does_not_have() -> None:
    pattern, flags = re.compile("which"), re.compile("which", re.IGNORECASE)
    values: list[dict[Any, str]] = [
        {pattern: "y"},
        {flags: "y"},
        {pattern: "n"},
        {re.compile(b"which"): "y"},
    ]
    values += [{pattern: "y", "b": "n"}, {1: "y", "b": "n"}, {("a", 1): "y"}, {Path("a"): "y"}]
    digests = [value_digest(value) for value in values]
    assert len(set(digests)) == len(values)
    assert digests == [value_digest(dict(reversed(value.items()))) for value in values]
    assert digests[0] == value_digest(MappingProxyType({re.compile("which"): "y"}))
    assert value_digest([{"answers": values[0]}]) != value_digest([{"answers": values[1]}])


class _Case:
    """A parameter as tests of users have them: neither a dataclass nor with a __repr__."""

    def __init__(self, *names: str) -> None:
        self.names = names


class _Slotted:
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class _Color(Enum):
    RED = 1
    BLUE = 2


@pytest.mark.parametrize(
    ("make", "make_other"),
    [
        (lambda: _Case("a", "b"), lambda: _Case("b", "a")),
        (lambda: [{"case": _Case("a")}], lambda: [{"case": _Case("b")}]),
        (lambda: _Slotted("a"), lambda: _Slotted("b")),
        (lambda: _Color.RED, lambda: _Color.BLUE),
        (lambda: {*"abcdefgh"}, lambda: {*"abcdefg"}),
        (lambda: frozenset([_Color.RED, "a"]), lambda: frozenset([_Color.BLUE, "a"])),
        (lambda: Decimal("1.5"), lambda: Decimal("1.6")),
        (lambda: datetime(2026, 1, 2), lambda: datetime(2026, 1, 3)),
        (lambda: deque([1, 2]), lambda: deque([2, 1])),
        (lambda: OSError("a"), lambda: OSError("b")),
        (lambda: Fake({"a": "b", "*": "c"}), lambda: Fake({"*": "c", "a": "b"})),
        (lambda: Task, lambda: Limits),
    ],
)
def test_what_an_object_is_counts(
    make: Callable[[], object], make_other: Callable[[], object]
) -> None:
    assert value_digest(make()) == value_digest(make())
    assert value_digest(make()) != value_digest(make_other())


def test_what_cannot_be_known_has_no_digest() -> None:
    case = _Case()
    case.names = (case,)  # type: ignore[assignment]
    for value, error in ((threading.Lock(), TypeError), (case, RecursionError)):
        with pytest.raises(error):
            value_digest([value])
