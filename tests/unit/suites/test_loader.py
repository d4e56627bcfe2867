"""Suites: what the YAML format means, and what is said when something in it is wrong."""

from __future__ import annotations

import csv
import gzip
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol

import pytest

from pytest_intercode.core.conversation import Conversation
from pytest_intercode.core.judge import Judge
from pytest_intercode.core.permissions import NOTHING, Permissions
from pytest_intercode.core.task import (
    FORMAT_NAMES,
    FileSpec,
    Limits,
    Normaliser,
    RewardOptions,
    Task,
    TaskView,
)
from pytest_intercode.environments.bash.fields import BashFields, golds_of
from pytest_intercode.environments.fields import leaves_of
from pytest_intercode.environments.registry import kind_of
from pytest_intercode.environments.task_json import task_from_json, task_to_json
from pytest_intercode.errors import MissingFile, SuiteError
from pytest_intercode.suites.loader import (
    Suite,
    load_rows,
    load_suite,
)
from pytest_intercode.system.files import bundled_folder
from pytest_intercode.system.rows import is_row_file, read_rows


class Load(Protocol):
    def __call__(self, text: str, permissions: Permissions = NOTHING) -> Suite: ...


_TASK = """\
env: bash
tasks:
  - id: a
    query: Do it.
    gold: echo done
"""


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write a suite to ``suite.yaml`` and load it."""

    def write_and_load(text: str, permissions: Permissions = NOTHING) -> Suite:
        path = tmp_path / "suite.yaml"
        path.write_text(text, encoding="utf-8")
        return load_suite(path, permissions=permissions)

    return write_and_load


# -- the format


def test_smallest_suite(load: Load, tmp_path: Path) -> None:
    suite = load(_TASK)
    assert suite == Suite("suite", "bash", suite.tasks, tmp_path / "suite.yaml")
    assert suite.tasks == (
        Task(
            id="a",
            query="Do it.",
            gold=("echo done",),
            env="bash",
            suite="suite",
            dataset="suite",
            fields=BashFields(),
            source=f"{tmp_path / 'suite.yaml'}:3",
        ),
    )


def test_every_field(load: Load, tmp_path: Path) -> None:
    (tmp_path / "tree.tar").touch()
    (tmp_path / "Own.Dockerfile").touch()
    (task,) = load(
        """\
suite: named
env: bash
description: Nobody reads this.
tasks:
  - id: A.b_c-1
    query: q
    gold: [one, two]
    hardness: hard
    tags: [text, 3d, y-1]
    files: {a.txt: hello}
    archive: {path: tree.tar, at: /srv, keep_times_before: 2024-01-02}
    setup: [make, make install]
    dockerfile: Own.Dockerfile
    workdir: /work
    limits:
      memory: 1g
      cpus: 0.5
      pids: 64
      file_size: 512m
      network: true
      output: 4096
    reward:
      output: never
      normalise: [numbers, {pattern: 'a+', replace: b}, {pattern: c}]
      scratch: [/tmp, cache]
    max_turns: 3
    action_timeout: 2.5
    timeout: 60
    xfail: it is broken
""",
        Permissions(network=True),
    ).tasks
    assert task == Task(
        id="A.b_c-1",
        query="q",
        gold=("one", "two"),
        env="bash",
        suite="named",
        dataset="named",
        hardness="hard",
        tags=("text", "3d", "y-1"),
        fields=BashFields(),
        files={"a.txt": FileSpec("file", b"hello")},
        archive=task.archive,
        setup=("make", "make install"),
        image=task.image,
        workdir="/work",
        limits=Limits(1024**3, 0.5, 64, 512 * 1024**2, True, 4096),
        reward=RewardOptions(
            "never",
            (Normaliser("numbers"), Normaliser("pattern", "a+", "b"), Normaliser("pattern", "c")),
            ("/tmp", "cache"),
        ),
        max_turns=3,
        action_timeout=2.5,
        timeout=60.0,
        xfail="it is broken",
        source=task.source,
    )
    assert task.archive is not None
    assert (task.archive.path, task.archive.at) == (tmp_path / "tree.tar", "/srv")
    assert task.archive.keep_times_before == 1704153600.0  # midnight UTC
    assert task.image is not None
    assert task.image.dockerfile == tmp_path / "Own.Dockerfile"


def test_defaults_are_laid_under_tasks(load: Load) -> None:
    first, second = load(
        """\
env: bash
defaults:
  workdir: /work
  tags: [all]
  hardness: easy
  limits: {memory: 1g, pids: 32}
  reward: {output: always, scratch: [/tmp]}
  files: {common.txt: one, mine.txt: one}
tasks:
  - {id: a, query: q, gold: g}
  - id: b
    query: q
    gold: g
    tags: [own]
    limits: {pids: 64}
    reward: {output: never}
    files: {mine.txt: two}
"""
    ).tasks
    assert (first.workdir, first.tags, first.hardness) == ("/work", ("all",), "easy")
    assert first.limits == Limits(memory=1024**3, pids=32)
    assert (second.workdir, second.tags, second.hardness) == ("/work", ("own",), "easy")
    assert second.limits == Limits(memory=1024**3, pids=64)
    assert second.reward == RewardOptions("never", (), ("/tmp",))
    assert {path: spec.content for path, spec in second.files.items()} == {
        "common.txt": b"one",
        "mine.txt": b"two",
    }


def test_a_suite_and_a_task_may_name_a_platform(load: Load) -> None:
    suite = """\
env: bash
defaults: {platform: amd64}
tasks:
  - {id: a, query: q, gold: g}
  - {id: b, query: q, gold: g, platform: linux/arm64/v8, image: debian}
"""
    tasks = load(suite).tasks
    assert [str(task.platform) for task in tasks] == ["linux/amd64", "linux/arm64"]
    assert tasks[1].image is not None
    assert str(tasks[1].for_platform(tasks[1].image).platform) == "linux/arm64"
    [task] = load(_TASK).tasks
    assert task.platform is None


def test_overrides_are_laid_over_tasks(load: Load, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"query": "q", "gold": "g", "hardness": "easy"}\n' * 2)
    tasks = load(
        """\
env: bash
rows: {path: rows.jsonl}
tasks:
  - {id: a, query: q, gold: g, max_turns: 3}
overrides:
  a: {max_turns: 4, xfail: known}
  rows-00001: {hardness: hard}
"""
    ).tasks
    assert [(t.id, t.max_turns, t.xfail, t.hardness) for t in tasks] == [
        ("a", 4, "known", ""),
        ("rows-00000", 10, None, "easy"),
        ("rows-00001", 10, None, "hard"),
    ]


def test_forms_of_files(load: Load) -> None:
    (task,) = load(
        _TASK
        + """\
    files:
      plain.txt: "ünï\\n"
      empty.txt: ""
      also-empty.txt: {}
      script.sh: {text: "#!/bin/sh\\n", mode: "0755"}
      setgid: {text: "", mode: "2644"}
      raw.bin: {base64: AP8K, mode: "600"}
      link: {link: ../there}
      folder/: {}
      closed/: {mode: "0700"}
      /etc/absolute: x
"""
    ).tasks
    assert task.files == {
        "plain.txt": FileSpec("file", "ünï\n".encode()),
        "empty.txt": FileSpec("file"),
        "also-empty.txt": FileSpec("file"),
        "script.sh": FileSpec("file", b"#!/bin/sh\n", mode=0o755),
        "setgid": FileSpec("file", mode=0o2644),
        "raw.bin": FileSpec("file", b"\0\xff\n", mode=0o600),
        "link": FileSpec("link", target="../there"),
        "folder/": FileSpec("directory"),
        "closed/": FileSpec("directory", mode=0o700),
        "/etc/absolute": FileSpec("file", b"x"),
    }


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("4096", 4096),
        ("512k", 512 * 1024),
        ("512m", 512 * 1024**2),
        ("1g", 1024**3),
        ("1G", 1024**3),
        ("1.5g", 1536 * 1024**2),
        ("256MiB", 256 * 1024**2),
        ("'10 kb'", 10240),
        ("'100'", 100),
    ],
)
def test_sizes(load: Load, written: str, size: int) -> None:
    (task,) = load(f"{_TASK}    limits: {{file_size: {written}}}\n").tasks
    assert task.limits.file_size == size


def test_an_image_has_a_name(load: Load) -> None:
    with pytest.raises(SuiteError, match="image: string should have at least 1 character"):
        load(f"{_TASK}    image: ''\n")


@pytest.mark.parametrize("limits", ["{}", "{memory: null}"])
def test_limits_that_say_nothing_are_the_usual_ones(load: Load, limits: str) -> None:
    (task,) = load(f"{_TASK}    limits: {limits}\n").tasks
    assert task.limits == Limits()


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("2024-01-02", 1704153600.0), ("2024-01-02T00:00:01Z", 1704153601.0), ("12.5", 12.5)],
)
def test_moments(load: Load, tmp_path: Path, written: str, seconds: float) -> None:
    (tmp_path / "x.tar").touch()
    (task,) = load(f"{_TASK}    archive: {{path: x.tar, keep_times_before: {written}}}\n").tasks
    assert task.archive is not None
    assert task.archive.keep_times_before == seconds


def test_images(load: Load) -> None:
    (named,) = load(_TASK + "    image: debian:12\n").tasks
    assert named.image is not None
    assert (named.image.image, named.image.dockerfile) == ("debian:12", None)
    (ours,) = load(_TASK + "    dockerfile: nl2bash\n").tasks
    assert ours.image is not None
    assert ours.image.dockerfile == bundled_folder("dockerfiles") / "nl2bash.Dockerfile"


def test_data_folder_is_where_files_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "rows.json").write_text('[{"query": "q", "gold": "g"}]')
    path = tmp_path / "suite.yaml"
    path.write_text("env: bash\nrows: {path: rows.json}\n")
    assert len(load_suite(path, data).tasks) == 1
    with pytest.raises(SuiteError, match="no such file"):
        load_suite(path)


def test_a_view_has_no_gold() -> None:
    task = Task("a", "q", ("s3cret",), "bash", "s", "s", metadata={"tests": "s3cret"})
    assert "s3cret" not in repr(task.view())
    assert not {"gold", "setup", "files", "reward"} & {f.name for f in fields(TaskView)}
    assert (task.view().max_turns, task.view(3).max_turns) == (10, 3)


# -- rows

_ROWS = [
    {"query": "one", "gold": "g1", "extra": "x"},
    {"query": "two, with\ttab", "gold": "g2", "extra": "y"},
]


def _separated(delimiter: str) -> str:
    lines = ["query", "gold", "extra"], *(list(row.values()) for row in _ROWS)
    return "".join(delimiter.join(f'"{cell}"' for cell in line) + "\n" for line in lines)


_FORMATS = {
    "rows.json": json.dumps(_ROWS),
    "keyed.json": json.dumps({str(n): row for n, row in enumerate(_ROWS)}),
    "rows.jsonl": "\n".join(map(json.dumps, _ROWS)) + "\n\n",
    "rows.csv": _separated(","),
    "rows.tsv": _separated("\t"),
    "ROWS.CSV": "\ufeff" + _separated(",").replace("\n", "\r\n"),
}


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("name", _FORMATS)
def test_formats_of_rows(tmp_path: Path, name: str, compressed: bool) -> None:
    data = _FORMATS[name].encode()
    path = tmp_path / (f"{name}.gz" if compressed else name)
    path.write_bytes(gzip.compress(data) if compressed else data)
    assert is_row_file(path)
    assert [row for _, row in read_rows(path)] == _ROWS
    suite = load_rows(path, "bash")
    stem = name.split(".")[0]
    assert (suite.name, suite.env) == (stem, "bash")
    assert [(t.id, t.query, t.gold, t.metadata) for t in suite.tasks] == [
        (f"{stem}-00000", "one", ("g1",), {"extra": "x"}),
        (f"{stem}-00001", "two, with\ttab", ("g2",), {"extra": "y"}),
    ]


def test_a_file_of_many_tasks_is_held_once(load: Load, tmp_path: Path) -> None:
    (tmp_path / "big.csv").write_text("1,2\n")
    first, second = load(
        "env: bash\ndefaults: {files: {big.csv: {path: big.csv}}}\n"
        "tasks:\n  - {id: t, query: q, gold: g}\n  - {id: u, query: p, gold: h}\n"
    ).tasks
    assert first.files["big.csv"].content is second.files["big.csv"].content
    data = kind_of("bash").data_of(first)
    assert data == kind_of("bash").data_of(second)
    contents = [leaf for leaf in leaves_of(data) if isinstance(leaf, bytes)]
    assert contents[0] is first.files["big.csv"].content


def test_a_long_field_of_a_table(tmp_path: Path) -> None:
    usual = csv.field_size_limit()
    path = tmp_path / "rows.csv"
    path.write_text(f'query,gold\nq,"{"g" * (usual + 1)}"\n')
    (task,) = load_rows(path, "bash").tasks
    assert task.gold == ("g" * (usual + 1),)
    assert csv.field_size_limit() == usual


def test_places_of_rows(tmp_path: Path) -> None:
    for name, places in {
        "rows.json": [", row 0", ", row 1"],
        "rows.jsonl": [":1", ":2"],
        "rows.csv": [":2", ":3"],
    }.items():
        path = tmp_path / name
        path.write_text(_FORMATS[name])
        assert [place for place, _ in read_rows(path)] == [f"{path}{place}" for place in places]


def test_rows_with_id_pattern_and_fields(load: Load, tmp_path: Path) -> None:
    rows = [
        {"text": "q1", "cmd": ["a", "b"], "level": "easy", "labels": "x, y", "db": "pets", "n": 7},
        {"text": "q2", "cmd": "c", "level": "hard", "labels": "", "db": "cars", "n": 8},
    ]
    (tmp_path / "dev.set.json").write_text(json.dumps(rows))
    tasks = load(
        """\
env: bash
suite: mine
defaults: {max_turns: 2, workdir: /a}
rows:
  - path: dev.set.json
    id: '{dataset}-{db}-{n:03d}-{index}'
    fields: {query: text, gold: cmd, hardness: level, tags: labels}
    defaults: {workdir: /b}
"""
    ).tasks
    assert [t.id for t in tasks] == ["dev-pets-007-0", "dev-cars-008-1"]
    assert [t.gold for t in tasks] == [("a", "b"), ("c",)]
    assert [t.tags for t in tasks] == [("x", "y"), ()]
    assert {(t.suite, t.dataset, t.max_turns, t.workdir) for t in tasks} == {
        ("mine", "dev", 2, "/b")
    }
    assert tasks[0].metadata["db"] == "pets"
    assert tasks[0].source == f"{tmp_path / 'dev.set.json'}, row 0"


def test_rows_with_ids_of_their_own(load: Load, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("task_id,query,gold\n11,q,g\nx-2,q,g\n")
    source = "env: bash\nrows: {path: rows.csv, dataset: d, fields: {id: task_id}}\n"
    suite = load(source)
    assert [(t.id, t.dataset) for t in suite.tasks] == [("11", "d"), ("x-2", "d")]


def test_alternatives_variables_and_rules(load: Load) -> None:
    first, second = load(
        """\
env: bash
defaults: {reward: {lenient: all}, variables: {A: b, C: "1"}}
tasks:
  - {id: a, query: q, gold: g, alternatives: [h, [i, j], g, h]}
  - {id: b, query: q, gold: g, alternatives: h, reward: {lenient: [columns, spaces]}}
"""
    ).tasks
    assert BashFields.of(first).alternatives == (("h",), ("i", "j"), ("g",), ("h",))
    assert golds_of(first) == (("g",), ("h",), ("i", "j"))
    assert first.variables == (("A", "b"), ("C", "1"))
    assert first.reward.lenient == FORMAT_NAMES
    assert golds_of(second) == (("g",), ("h",))
    assert second.reward.lenient == ("columns", "spaces")


def test_a_user_is_a_conversation(load: Load) -> None:
    suite = load("""\
env: bash
defaults: {user: {persona: A clerk., max_turns: 3}}
tasks:
  - {id: a, query: q, gold: g}
  - {id: b, query: q, gold: g, user: {goal: Go home., model: m, stop: [BYE, " STOP "]}}
  - {id: c, query: q, gold: g, user: {replies: One.}}
""")
    assert [task.conversation for task in suite.tasks] == [
        Conversation(persona="A clerk.", max_turns=3),
        Conversation(goal="Go home.", model="m", stop=("BYE", "STOP")),
        Conversation(("One.",)),
    ]
    assert {task.user for task in suite.tasks} == {""}  # the account in the sandbox


def test_alternatives_are_for_bash(load: Load) -> None:
    with pytest.raises(SuiteError, match=r"task 'a': alternatives: are for the env bash, where"):
        load("env: ctf\ntasks: [{id: a, query: q, gold: 'f{a}', alternatives: 'f{b}'}]\n")


# -- what is wrong

_COMMON = (
    "hardness, tags, files, archive, setup, image, dockerfile, platform, workdir, limits, network, "
    "reward, judge, max_turns, repeat, pass_rate, action_timeout, timeout, xfail, skip, gold_skip, "
    "variables, "
    "user, audit, decoys"
)

# what is laid below the one task (or a whole file), the line, the message
_BAD: list[tuple[str, int | None, str]] = [
    # the whole file
    ("", None, "a suite must be a mapping with env and tasks (or rows), but this file is empty"),
    ("- a\n", None, "a suite must be a mapping with env and tasks (or rows), not ['a']"),
    ("env: [bash\n", 2, "not YAML: did not find expected ',' or ']'"),
    (
        "env: bash\n\ttasks: []\n",
        2,
        "not YAML: found a tab character that violates indentation; indent with spaces",
    ),
    (
        "env: bash\ntasks: [{id: a, gold: g}]\nquery: Write: it.\n",
        3,
        "not YAML: mapping values are not allowed in this context; put a value that has ': ' in it "
        "into quotes",
    ),
    (
        "env: @bash\n",
        1,
        "not YAML: found character that cannot start any token; indent with spaces, not tabs, and "
        "put a value that begins with a special character into quotes",
    ),
    ("env: bash\n", 1, "a suite needs tasks, rows or both"),
    ("tasks: [{id: a, query: q, gold: g}]\n", 1, "env: this field is missing"),
    (
        "env: bsh\ntasks: [{id: a, query: q, gold: g}]\n",
        1,
        "env: 'bsh' is not one of bash, sql, python, ctf, swe. Did you mean 'bash'?",
    ),
    (
        "env: awk\ntasks: [{id: a, query: q, gold: g}]\n",
        1,
        "env: 'awk' is not one of bash, sql, python, ctf, swe. Register your own with "
        "register_environment() in a conftest.py, which only pytest reads; commands know those of "
        "installed packages.",
    ),
    (
        "env: bash\ntask: []\n",
        2,
        "task: there is no such field. Did you mean 'tasks'? Allowed: suite, env, description, "
        "defaults, tasks, rows, overrides",
    ),
    ("env: bash\ntasks: foo\n", 2, "tasks: a list is needed, found 'foo' (str)"),
    ("env: bash\ntasks:\n  - foo\n", 3, "tasks.0: a mapping is needed, found 'foo' (str)"),
    (
        "env: bash\nsuite: 2024-01-01\ntasks: []\n",
        2,
        "suite: a string is needed, found datetime.date(2024, 1, 1) (date)",
    ),
    (
        "env: bash\ndefaults:\n  max_turn: 3\ntasks: [{id: a, query: q, gold: g}]\n",
        3,
        "defaults.max_turn: there is no such field. Did you mean 'max_turns'? Allowed: "
        f"{_COMMON}, alternatives, services",
    ),
    (
        "env: bash\ntasks: [{id: abc, query: q, gold: g}]\noverrides:\n  abd: {xfail: x}\n",
        4,
        "overrides: no task has the id 'abd'. Did you mean 'abc'?",
    ),
    (
        "env: bash\ntasks: [{id: a, query: q, gold: g}]\noverrides:\n  a:\n    xfal: x\n",
        5,
        "overrides.a.xfal: there is no such field. Did you mean 'xfail'? Allowed: "
        f"{_COMMON}, alternatives, services",
    ),
    # rows
    ("env: bash\nrows: x.json\n", 2, "rows: a mapping or a list is needed, found 'x.json' (str)"),
    (
        "env: bash\nrows:\n  - pth: x.json\n",
        3,
        "rows.0.pth: there is no such field. Did you mean 'path'? Allowed: path, format, dataset, "
        "id, query, fields, ignore, defaults, each, optional, swebench",
    ),
    (
        "env: bash\nrows:\n  path: x.json\n  defaults:\n    limits: {memry: 1}\n",
        5,
        "rows.defaults.limits.memry: there is no such field. Did you mean 'memory'? Allowed: "
        "memory, cpus, pids, file_size, network, output",
    ),
    (
        "env: bash\ntasks:\n  - {query: q, gold: g, limits: {cpus: 0.005}}\n",
        3,
        "task '#1': limits.cpus: input should be greater than or equal to 0.01 (found 0.005)",
    ),
    # a task's identity
    (
        "env: bash\ntasks:\n  - {id: a, query: q, gold: g}\n  - {id: ab, query: 'id: a', gold: g}\n"
        "  - {id: 'a', query: q, gold: g}\n",
        5,
        "the id 'a' is used twice; ids must be unique in a suite, and {path}:3 has it already",
    ),
    (
        "env: bash\ntasks:\n  - {id: 'a b', query: q, gold: g}\n",
        3,
        "task 'a b': id: an id has letters, digits, '.', '_' and '-', and starts with a letter "
        "or a digit (found 'a b')",
    ),
    (
        "env: bash\ntasks:\n  - {id: 5, query: q, gold: g}\n",
        3,
        "task '5': id: a string is needed, found 5 (int)",
    ),
    ("env: bash\ntasks:\n  - {query: q, gold: g}\n", 3, "task '#1': id: this field is missing"),
    ("env: bash\ntasks:\n  - {id: a, query: q}\n", 3, "task 'a': gold: this field is missing"),
    (
        "env: bash\ntasks:\n  - {id: a, query: '', gold: g}\n",
        3,
        "task 'a': query: string should have at least 1 character (found '')",
    ),
    (
        "env: bash\ntasks:\n  - {id: a, query: q, gold: [1]}\n",
        3,
        "task 'a': gold.0: a string is needed, found 1 (int)",
    ),
    (
        "env: bash\ntasks:\n  - {id: a, query: q, gold: 1}\n",
        3,
        "task 'a': gold: a string or a list or a mapping is needed, found 1 (int)",
    ),
    (
        "env: bash\ntasks:\n  - {id: a, query: q, golds: g}\n",
        3,
        "task 'a': golds: there is no such field. Did you mean 'gold'? Allowed: "
        f"{_COMMON}, id, query, gold, alternatives, services",
    ),
    (  # nothing is near enough to be what was meant
        "env: bash\ntasks:\n  - {id: a, prompt: q, gold: g}\n",
        3,
        f"task 'a': prompt: there is no such field. Allowed: {_COMMON}, id, query, gold, "
        "alternatives, services",
    ),
    # further fields of a task, on line 6 and after
    ("max_turns: 0", 6, "max_turns: input should be greater than or equal to 1 (found 0)"),
    ("max_turns: many", 6, "max_turns: a whole number is needed, found 'many' (str)"),
    ("max_turns: 1.5", 6, "max_turns: a whole number is needed, found 1.5 (float)"),
    ("timeout: 0", 6, "timeout: input should be greater than 0 (found 0)"),
    ("action_timeout: soon", 6, "action_timeout: a number is needed, found 'soon' (str)"),
    ("xfail: true", 6, "xfail: a string is needed, found True (bool)"),
    (
        "workdir: work",
        6,
        "workdir: an absolute path is needed, one that starts with / (found 'work')",
    ),
    ("tags: files", 6, "tags: a list is needed, found 'files' (str)"),
    (
        "tags: [two words]",
        6,
        "tags.0: string should match pattern '^[A-Za-z0-9][A-Za-z0-9_-]*$' (found 'two words')",
    ),
    ("setup: make", 6, "setup: a list is needed, found 'make' (str)"),
    ("image: x\n    dockerfile: y", 3, "either image or dockerfile, not both"),
    ("limits: big", 6, "limits: a mapping is needed, found 'big' (str)"),
    (
        "limits: {memory: 5x}",
        6,
        "limits.memory: a size is needed: a number of bytes, or one like 512k, 256m, 2g (found "
        "'5x')",
    ),
    ("limits:\n      memory: 0", 7, "limits.memory: input should be greater than 0 (found 0)"),
    (
        "limits: {network: 'yes'}",
        6,
        "limits.network: true or false or a list is needed, found 'yes' (str)",
    ),
    ("limits: {pids: 2}", 6, "limits.pids: input should be greater than or equal to 8 (found 2)"),
    (
        "reward: {output: allways}",
        6,
        "reward.output: 'allways' is not one of when-gold-prints, always, never. Did you mean "
        "'always'?",
    ),
    (
        "judge: {model: gpt-latest}",
        6,
        "judge.model: latest is an alias, which may be another model tomorrow; name the model's "
        "version (found 'gpt-latest')",
    ),
    (
        "judge: {votes: 2}",
        6,
        "judge.votes: an odd number of votes is needed, as the median counts (found 2)",
    ),
    (
        "judge: {rubric: Is it plain?, model: m-1, weight: 1}",
        3,
        "judge: weight: say which share of the reward is the judge's, above 0 and below 1; or "
        "alone: true instead, if the model alone is to give the reward",
    ),
    (
        "judge: {rubric: Is it plain?, model: m-1, weight: 0.5, alone: true}",
        3,
        "judge: weight: a judge that is alone gives the whole reward; remove weight or alone",
    ),
    (
        "judge: {model: m-1}",
        3,
        "judge: rubric: a text is needed that says what is graded, and how",
    ),
    (
        "reward: {normalise: [trailing-spaces]}",
        6,
        "reward.normalise.0: 'trailing-spaces' is not one of trailing-space, line-order, numbers. "
        "Did you mean 'trailing-space'?",
    ),
    (
        "reward: {normalise: [{pattern: '('}]}",
        6,
        "reward.normalise.0.pattern: not a regular expression: missing ), unterminated subpattern "
        "at position 0 (found '(')",
    ),
    (
        "reward: {normalise: [{pattern: a, replace: '\\2'}]}",
        6,
        "reward.normalise.0: replace '\\\\2' does not fit the pattern 'a': invalid group reference "
        "2 at position 1",
    ),
    ("reward: {scratch: /tmp}", 6, "reward.scratch: a list is needed, found '/tmp' (str)"),
    (
        "reward: {outptu: always}",
        6,
        "reward.outptu: there is no such field. Did you mean 'output'? Allowed: output, normalise, "
        "lenient, scratch, rows, columns",
    ),
    (
        "reward: {lenient: [spaces, colums]}",
        6,
        "reward.lenient.1: 'colums' is not one of messages, spaces, words, sizes, dates, digests, "
        "counters, paths, line-order, matches, columns, names. Did you mean 'columns'?",
    ),
    (
        "alternatives: [[]]",
        6,
        "alternatives.0: list should have at least 1 item after validation, not 0 (found [])",
    ),
    (
        "alternatives: {a: b}",
        6,
        "alternatives: a string or a list is needed, found {'a': 'b'} (dict)",
    ),
    (
        "user: {}",
        6,
        "user: give replies, or persona and goal for a model that plays the user",
    ),
    (
        "user: {replies: [Yes.], model: m, stop: BYE}",
        6,
        "user: model, stop: only for a model that plays the user, not for replies, which are given "
        "as they are",
    ),
    ("user: {replies: [Yes., ' ']}", 6, "user: replies: a reply must not be empty"),
    (
        "user: {goal: Go home., stop: ''}",
        6,
        "user: stop: a word that ends the conversation must not be empty",
    ),
    (
        "variables: {1A: b}",
        6,
        "variables.1A: string should match pattern '^[A-Za-z_][A-Za-z0-9_]*$' (found '1A')",
    ),
    (
        "variables: {A: 1}",
        6,
        "variables.A: a string is needed, found 1 (int)",
    ),
    (
        "reward: {lenient: most}",
        6,
        "reward.lenient: 'all' or a list of rules is needed (found 'most')",
    ),
    (
        "reward: {normalise: [{patern: x}]}",
        6,
        "reward.normalise.0.patern: there is no such field. Did you mean 'pattern'? Allowed: "
        "pattern, replace",
    ),
    # fields of an environment
    (
        "env: sql\ntasks:\n  - {id: a, query: q, gold: g, database: {engin: sqlite}}\n",
        3,
        "task 'a': database.engin: there is no such field. Did you mean 'engine'? Allowed: engine, "
        "name, script, file, writes, optional",
    ),
    (
        "env: python\ntasks:\n  - {id: a, query: q, gold: g, tests: [{input: a, outptu: b}]}\n",
        3,
        "task 'a': tests.0.outptu: there is no such field. Did you mean 'output'? Allowed: input, "
        "output",
    ),
    (
        "env: sql\ndefaults:\n  databse: {}\ntasks: [{id: a, query: q, gold: g}]\n",
        3,
        "defaults.databse: there is no such field. Did you mean 'database'? Allowed: "
        f"{_COMMON}, database, answers",
    ),
    (
        "database: {engin: sqlite}",
        6,
        "database: is for the env sql, not bash; give files, an archive or setup instead",
    ),
    ("tests: [a]", 6, "tests: they are for the env python, not bash"),
    ("entry: f", 6, "entry: is for the env python, not bash"),
    ("solution: cat flag", 6, "solution: is for the env ctf, not bash"),
    ("repository: {at: /r}", 6, "repository: is for the env swe, not bash"),
    ("verification: {command: 'true'}", 6, "verification: is for the env swe, not bash"),
    (
        "env: bash\ndefaults: {test_setup: x}\ntasks: [{id: a, query: q, gold: g}]\n",
        2,
        "defaults.test_setup: is for the env python, not bash",
    ),
    (
        "archive: {path: x.tar, tests: x}",
        6,
        "archive.tests: there is no such field. Allowed: path, at, keep_times_before, optional",
    ),
    ("files: {x: 5}", 6, "files.x: a string or a mapping is needed, found 5 (int)"),
    ("files:\n      'x[1]': 5", 7, "files.x[1]: a string or a mapping is needed, found 5 (int)"),
    (
        "files: {x: {txt: a}}",
        6,
        "files.x.txt: there is no such field. Did you mean 'text'? Allowed: text, base64, link, "
        "path, mode",
    ),
    (
        "files: {x: {text: a, link: b}}",
        6,
        "files.x: give only one of text, base64, link, path, not text and link",
    ),
    (
        "files: {x: {base64: abc}}",
        6,
        "files.x.base64: not base64: Incorrect padding (found 'abc')",
    ),
    (
        "files: {x: {text: a, mode: 0755}}",
        6,
        "files.x.mode: write a mode in quotes, like '0755'; otherwise YAML reads it as decimal "
        "(found 493)",
    ),
    (
        "files: {x: {text: a, mode: '789'}}",
        6,
        "files.x.mode: a mode must be octal digits in quotes, like '0755' (found '789')",
    ),
    (
        "archive: {path: x.tar, at: here}",
        6,
        "archive.at: an absolute path is needed, one that starts with / (found 'here')",
    ),
    (
        "archive: {path: x.tar, keep_times_before: soon}",
        6,
        "archive.keep_times_before: a date like 2024-01-31 is needed, or seconds since the epoch "
        "(found 'soon')",
    ),
    ("archive: {at: /x}", 6, "archive.path: this field is missing"),
    (
        "platform: windows/amd64",
        6,
        "platform: linux/ARCHITECTURE is needed, as linux/amd64 or linux/arm64; sandboxes run "
        "Linux (found 'windows/amd64')",
    ),
    ("archive: x.tar", 3, "archive: {folder}/x.tar is not a file."),
    (
        "dockerfile: nl2bsh",
        3,
        "dockerfile: {folder}/nl2bsh is not a file, and no bundled one has this name "
        "(agentbench-os, agentbench-os-packages, alfa, alfa-alpine, bash, ctf, "
        "mysql, nl2bash, nl2bash-paper, polyglot-cpp, polyglot-go, "
        "polyglot-java, polyglot-javascript, polyglot-python, polyglot-rust, python, swe). "
        "Did you mean 'nl2bash'?",
    ),
]


@pytest.mark.parametrize(("text", "line", "message"), _BAD)
def test_mistakes(load: Load, tmp_path: Path, text: str, line: int | None, message: str) -> None:
    whole = text == "" or text.startswith(("env:", "tasks:", "- "))
    path = tmp_path / "suite.yaml"
    with pytest.raises(SuiteError) as caught:
        load(text if whole else f"{_TASK}    {text}\n")
    expected = message.replace("{path}", str(path)).replace("{folder}", str(tmp_path))
    place = f"{path}: " if line is None else f"{path}:{line}: "
    assert str(caught.value) == place + ("" if whole else "task 'a': ") + expected


def test_mistake_in_the_first_of_many_tasks_has_its_line(load: Load) -> None:
    tasks = "".join(f"  - id: t{n}\n    query: q\n    gold: g\n" for n in range(50))
    with pytest.raises(SuiteError, match=r"suite\.yaml:153: task 't50': limit: there is no such"):
        load(f"env: bash\ntasks:\n{tasks}  - {{id: t50, query: q, gold: g, limit: 5}}\n")


def test_gold_is_not_quoted_by_a_message(load: Load) -> None:
    with pytest.raises(SuiteError) as caught:
        load("env: bash\ntasks: [{id: a, query: q, gold: s3cret, image: x, dockerfile: y}]\n")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: .*No such file"),
        (
            "env: bash\n".encode("utf-16"),
            "not UTF-8 text at byte 0; save it with the encoding UTF-8",
        ),
    ],
)
def test_suite_that_cannot_be_read(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "suite.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SuiteError, match=f"^{re.escape(str(path))}: {message}"):
        load_suite(path)


_BAD_ROWS: list[tuple[str, bytes | None, str]] = [
    ("rows.json", None, ": there is no such file"),
    ("rows.json", b"[{]", ":1: not JSON: Expecting property name enclosed in double quotes"),
    ("rows.json", b"5", ": a JSON file of rows must be a list of objects, not a number"),
    ("rows.json", b'{"a": 1}', ": a JSON file of rows must be a list of objects, not an object"),
    ("rows.json", b"[1]", ", row 0: a row must be an object with fields, not a number"),
    ("rows.json", b"[]", ": contains no rows"),
    ("rows.json", b'[{"gold": "g"}]', ", row 0: query: this field is missing"),
    ("rows.json", b'[{"query": "q", "gold": null}]', ", row 0: gold: this field is missing"),
    (
        "rows.json",
        b'[{"query": "q", "gold": 5}]',
        ", row 0: gold: a string or a list or a mapping is needed, found 5 (int)",
    ),
    ("rows.jsonl", b'{"query": "q", "gold": "g"}\n{\n', ":2: not JSON: Expecting property name"),
    ("rows.jsonl", b"[]\n", ":1: a row must be an object with fields, not a list"),
    ("rows.csv", b"query,gold\nq\n", ":2: does not have as many fields as the header line"),
    ("rows.csv", b"query,gold\nq,g,h\n", ":2: does not have as many fields as the header line"),
    ("rows.csv", b"query,gold\nq,\n", ":2: gold: this field is missing"),
    ("rows.csv", b'query,gold\n"q,g\n', ":2: unexpected end of data"),
    ("rows.csv", b"query,gold,query\nq,g,r\n", ":1: the column 'query' occurs twice"),
    ("rows.tsv", b"query\tgold\ttags\nq\tg\ta+b\n", ":2: tags.0: string should match pattern"),
    ("rows.csv", b"\xff\xfe", ": not UTF-8 text at byte 0"),
    ("rows.json.gz", b"not gzip", ": cannot be read: Not a gzipped file"),
    (
        "rows.json.gz",
        gzip.compress(b"[]" * 99, mtime=0)[:-4],
        ": cannot be read: Compressed file ended",
    ),
    (
        "rows.json.gz",
        gzip.compress(b"[]", mtime=0)[:10] + b"\xff" * 20,
        ": cannot be read: Error -3",
    ),
    (
        "rows.txt",
        b"",
        ": rows are read from .json, .jsonl, .csv, .tsv (or those with .gz), not '.txt'",
    ),
    (
        "rows.parquet.gz",
        b"",
        ": parquet files are not read; save the rows as JSON Lines: pandas.read_parquet",
    ),
    ("rows.pkl", b"", ": pickle files are refused, because loading one runs whatever code"),
    ("rows.PICKLE", b"", ": pickle files are refused, because loading one runs whatever code"),
    ("rows.pkl.gz", b"", ": pickle files are refused, because loading one runs whatever code"),
]


@pytest.mark.parametrize(("name", "content", "message"), _BAD_ROWS)
def test_mistakes_in_rows(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SuiteError) as caught:
        load_rows(path, "bash")
    assert str(caught.value).startswith(f"{path}{message}")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("id: '{'", ":1: the id pattern '{' does not fit: Single '{'"),
        ("id: '{}'", ":1: the id pattern '{}' does not fit: "),
        ("id: '{index:zz}'", ":1: the id pattern '{index:zz}' does not fit: "),
        ("id: '{index:99999999999}'", ":1: the id pattern '{index:99999999999}' does not fit: a"),
        ("id: '{index:{index}}'", ":1: the id pattern '{index:{index}}' does not fit: a width"),
        ("id: '{index[0]}'", ":1: the id pattern '{index[0]}' does not fit: "),
        ("id: '{query.x}'", ":1: the id pattern '{query.x}' does not fit: "),
        (
            "id: '{qury}'",
            ":1: the id pattern '{qury}' names a field that does not exist: 'qury'. Did you mean "
            "'query'? Allowed: dataset, index, query, gold",
        ),
        ("id: '{query}'", ":1: id: an id has letters, digits, '.', '_' and '-', and starts with"),
        ("fields: {id: nope}", ":1: id: the field 'nope' is missing"),
        ("fields: {gold: answer}", ":1: gold: this field is missing"),
        ("fields: {hardnes: query}", ":1: hardnes: there is no such field. Did you mean 'hard"),
        ("id: same", ":2: the id 'same' is used twice; ids must be unique in a suite, and "),
    ],
)
def test_mistakes_in_what_is_said_of_rows(
    load: Load, tmp_path: Path, source: str, message: str
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"query": "a b", "gold": "g"}\n' * 2)
    with pytest.raises(SuiteError) as caught:
        load(f"env: bash\nrows: {{path: rows.jsonl, {source}}}\n")
    assert str(caught.value).startswith(f"{rows}{message}")


def test_rows_that_unpack_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_intercode.system.rows._MAX_BYTES", 1000)
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(b" " * 1001))
    with pytest.raises(SuiteError, match=r"holds more than .* GiB, which is more than is read"):
        list(read_rows(path))


def test_pickle_is_not_even_opened(tmp_path: Path) -> None:
    path = tmp_path / "rows.pkl"
    path.write_bytes(b"cos\nsystem\n(S'touch owned'\ntR.")
    with pytest.raises(SuiteError, match=r"Save the rows as JSON Lines instead: dataframe\.to_js"):
        list(read_rows(path))


# -- what comes with the package


@pytest.fixture(scope="module")
def bundled() -> Suite:
    return load_suite(bundled_folder("tasks") / "bash.yaml")


def test_bundled_suite_loads(bundled: Suite) -> None:
    assert (bundled.name, bundled.env) == ("bash", "bash")
    assert len(bundled.tasks) >= 40
    ids = [task.id for task in bundled.tasks]
    assert len(set(ids)) == len(ids)
    assert {task.hardness for task in bundled.tasks} == {"easy", "medium", "hard"}


def test_bundled_queries_do_not_hold_their_gold(bundled: Suite) -> None:
    for task in bundled.tasks:
        query = " ".join(task.query.split())
        for command in task.gold:
            assert " ".join(command.split()) not in query, task.id


def test_bundled_tags_are_the_ones_that_the_file_announces(bundled: Suite) -> None:
    text = bundled.path.read_text(encoding="utf-8")
    announced = re.search(r"^# Tags: (.+)$", text, re.MULTILINE)
    assert announced is not None
    used = {tag for task in bundled.tasks for tag in task.tags}
    assert all(task.tags for task in bundled.tasks)
    assert used <= set(announced[1].split())
    assert all(tag.isidentifier() for tag in used)


def test_bundled_tasks_need_no_network_and_expect_no_failure(bundled: Suite) -> None:
    assert not any(task.limits.network or task.xfail for task in bundled.tasks)


def test_bundled_dataset_names_its_parts(tmp_path: Path) -> None:
    sizes: dict[int, int] = {1: 60, 2: 53, 3: 60, 4: 27}
    row: dict[str, Any] = {"query": "q", "gold": "g"}
    for part, size in sizes.items():
        for name, content in (
            (f"nl2bash/nl2bash_fs_{part}.json", json.dumps([row] * size)),
            (f"nl2bash/filesystems/nl2bash_fs_{part}.tar.gz", ""),
        ):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(content)
    suite = load_suite(bundled_folder("tasks") / "datasets" / "nl2bash.yaml", tmp_path)
    assert len(suite.tasks) == 200
    assert {task.dataset for task in suite.tasks} == {f"nl2bash-fs{n}" for n in sizes}
    assert suite.tasks[0].id == "nl2bash-fs1-00000"
    assert [task.archive is None for task in suite.tasks].count(True) == 27


def test_a_key_that_is_there_twice(load: Load, tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=r"suite\.yaml:6: not YAML: the key 'query' is used twice"):
        load("env: bash\ntasks:\n  - id: a\n    query: q\n    gold: g\n    query: r\n")


def test_no_gold_at_all(load: Load) -> None:
    with pytest.raises(SuiteError, match="task 'a': gold"):
        load("env: bash\ntasks:\n  - {id: a, query: q, gold: []}\n")


def test_a_directory_holds_no_text(load: Load) -> None:
    with pytest.raises(SuiteError, match="'b/' ends with /"):
        load(_TASK + '    files: {"b/": text}\n')


# -- what would crash a parser, or keep it busy for ever

_HUGE = "9" * 5000


def _bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]")
    return "\n".join(lines)


def _task(field: str) -> str:
    return f"env: bash\ntasks:\n  - {{id: t, query: q, gold: g, {field}}}\n"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (_task(f"max_turns: {_HUGE}"), 3, "an integer of more than 1,000 digits"),
        (_task(f"max_turns: 0x{_HUGE}"), 3, "an integer of more than 1,000 digits"),
        (_task(f"max_turns: 1{':59' * 3000}"), 3, "an integer of more than 1,000 digits"),
        (_task(f"metadata: {{a: -{_HUGE}}}"), 3, "an integer of more than 1,000 digits"),
        (f"env: bash\n? {_HUGE}\n: 1\n", 2, "an integer of more than 1,000 digits"),
        (_task("max_turns: 2024-13-45"), 3, "'2024-13-45' is not a valid timestamp"),
        (_task("max_turns: !!int x"), 3, "'x' is not a valid int"),
        ("env: !!bool x\n", 1, "'x' is not a valid bool"),
        ("[" * 100_000, 1, "nested more than 100 levels deep"),
        ("{a: " * 5000 + "1" + "}" * 5000, 1, "nested more than 100 levels deep"),
        ("\n".join(" " * deep + "a:" for deep in range(2001)), 101, "nested more than 100 levels"),
        ("- " * 1001 + "a", 1, "nested more than 100 levels deep"),
        (_task("metadata: " + "[" * 1900 + "]" * 1900), 3, "nested more than 100 levels deep"),
        ("&a [*a]\n", 1, "the alias *a contains itself"),
        ("env: bash\ntasks: &t\n  - {id: t, metadata: *t}\n", 3, "the alias *t contains itself"),
        ("a: &a {<<: *a}\n", 1, "the alias *a contains itself"),
        (_bomb(9), 7, "more than 1,000,000 values, aliases included"),
        (_bomb(9).replace("*", "*-").replace("&", "&-"), 7, "more than 1,000,000 values, aliases"),
        ('{"a":&a {}, "b":&b {"a":*b}}', 1, "the alias *b contains itself"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_would_crash_a_parser(tmp_path: Path, text: str, line: int, message: str) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(text)
    with pytest.raises(SuiteError) as raised:
        load_suite(path)
    assert str(raised.value).startswith(f"{path}:{line}: not YAML: {message}")
    assert len(str(raised.value).splitlines()) == 1
    assert len(str(raised.value)) < len(str(path)) + 120


def test_aliases_may_be_used(load: Load) -> None:
    suite = load(
        "env: bash\ndefaults: &d {tags: [a]}\n"
        "tasks:\n  - {id: t, query: q, gold: g, <<: *d}\n  - {id: u, query: q, gold: g, <<: *d}\n"
    )
    assert [task.tags for task in suite.tasks] == [("a",), ("a",)]


def test_a_suite_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "suite.yaml"
    with path.open("wb") as file:
        file.truncate(100 * 1024**2)
    with pytest.raises(SuiteError, match="larger than 64 MiB; put the tasks into a file of rows"):
        load_suite(path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", f'[{{"query": "q", "gold": {_HUGE}}}]', ": not JSON: a number is too long"),
        ("a.json", "[" * 100_000, ": not JSON: nested too deeply"),
        ("a.jsonl", f'{{"n": {_HUGE}}}', ":1: not JSON: a number is too long"),
        ("a.jsonl", "\n" + "[" * 100_000, ":2: not JSON: nested too deeply"),
    ],
)
def test_rows_that_python_refuses(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SuiteError) as raised:
        load_rows(tmp_path / name, "bash")
    assert str(raised.value) == f"{tmp_path / name}{message}"


@pytest.mark.parametrize("code", ["assert f(1) == " + "-" * 3000 + "1", "assert f(1" + "+1" * 9000])
def test_a_test_that_is_nested_too_deeply(tmp_path: Path, code: str) -> None:
    path = tmp_path / "suite.yaml"
    gold = "def f(n): return n"
    path.write_text(
        f"env: python\ntasks:\n  - {{id: t, query: q, gold: '{gold}', tests: ['{code})']}}\n"
    )
    with pytest.raises(SuiteError, match="tests: test 1: it "):
        load_suite(path)


def test_a_judge_of_a_task_is_added_to_that_of_defaults(load: Load, tmp_path: Path) -> None:
    (tmp_path / "rubric.md").write_text("Is it short?\n")
    [plain, short] = load(
        "env: bash\n"
        "defaults: {judge: {model: m-1, votes: 5, weight: 0.25}}\n"
        "tasks:\n"
        "  - {id: a, query: q, gold: g, judge: {rubric: Is it plain?}}\n"
        "  - {id: b, query: q, gold: g, judge: {rubric: {path: rubric.md}, votes: 1}}\n"
    ).tasks
    assert plain.judge == Judge("Is it plain?", "m-1", 5, 0.25)
    assert short.judge == Judge("Is it short?\n", "m-1", 1, 0.25)
    assert task_from_json(task_to_json(plain)) == plain


def test_who_names_a_file_that_is_not_there(load: Load) -> None:
    text = "env: bash\ntasks:\n  - {id: a, query: q, gold: x, files: {/a: {path: gone.txt}}}\n"
    with pytest.raises(MissingFile, match=r"suite.yaml:3: .*/gone.txt: cannot be read: No such"):
        load(text)


@pytest.mark.parametrize(
    ("env", "form", "path"),
    [
        ("checks", "agentbench-os", "there/data"),
        ("ctf", "cybench", "there"),
        ("tau2", "tau2", "there/tasks.json"),
    ],
)
def test_a_folder_of_tasks_that_is_not_there(load: Load, env: str, form: str, path: str) -> None:
    name = path.removesuffix("/data")
    place = re.escape(path.removesuffix("/tasks.json"))
    with pytest.raises(MissingFile, match=f"/{place}: cannot be read: No such file"):
        load(f"env: {env}\nrows: {{path: {name}, format: {form}}}\n")
