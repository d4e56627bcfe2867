"""Tasks are written as folders in Harbor's format, and read from there as what they were."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_intercode.cli import main
from pytest_intercode.core.machine import Service, Services
from pytest_intercode.core.task import Artifact, FileSpec, Hook, ImageSource, Task, Verification
from pytest_intercode.errors import SuiteError
from pytest_intercode.rewards.terminal_bench import NoResults, terminal_bench_reward
from pytest_intercode.suites.harbor.datasets import folder_tasks
from pytest_intercode.suites.harbor.writing import write_swe

_ROOT = Path(__file__).parents[4] / "examples"
_HEAD = "=========== short test summary info ============\n"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    assert main(["convert", str(_ROOT / "terminal-bench"), "--to", str(folder)]) == 1
    return folder


def test_terminal_bench_is_read_as_what_it_was(written: Path) -> None:
    before = {task.id: task for task in folder_tasks(_ROOT / "terminal-bench")}
    after = {task.id: task for task in folder_tasks(written)}
    assert set(before) - set(after) == {"same-shell"}
    for name, task in after.items():
        old = before[name]
        assert task.skip is None
        assert task.query.rstrip("\n") == old.query.rstrip("\n")
        assert (task.workdir, task.user, task.limits.memory) == (
            old.workdir,
            old.user,
            old.limits.memory,
        )
        assert set(old.variables) == set(task.variables)
        assert task.setup[:1] == old.setup[:1] or not old.setup
        assert (task.timeout, task.hardness) == (old.timeout, old.hardness)
        assert task.gold
        assert task.verification is not None
        assert old.verification is not None
        assert task.verification.kit == old.verification.kit
        assert task.verification.timeout == old.verification.timeout


def test_what_is_there_already_is_left(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (written / "links" / "task.toml").stat().st_mtime_ns
    assert main(["convert", str(_ROOT / "terminal-bench"), "--to", str(written)]) == 1
    assert "links: already exists, and is left unchanged" in capsys.readouterr().err
    assert (written / "links" / "task.toml").stat().st_mtime_ns == before


def test_a_task_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = tmp_path / "a.yaml"
    suite.write_text("env: bash\ntasks:\n  - {id: a, query: Do it., gold: 'true'}\n")
    assert main(["convert", str(suite), "--to", str(tmp_path / "to")]) == 1
    said = capsys.readouterr()
    assert "a.yaml:3: task 'a': bash is graded by comparing with gold" in said.err
    assert "0 tasks of 1 written" in said.out
    assert not (tmp_path / "to" / "a").exists()


@pytest.mark.parametrize(
    "lines",
    [
        "PASSED t.py::a\nSKIPPED [1] t.py:1: x\nXFAIL t.py::b\n",
        "PASSED t.py::a\nFAILED t.py::b - no\n",
        "PASSED t.py::a\nXPASS t.py::b\n",
        "ERROR t.py::b\n",
        "",
        "UNKNOWN t.py::a\n",
    ],
)
def test_the_script_reads_a_summary_as_terminal_bench_does(
    lines: str, written: Path, tmp_path: Path
) -> None:
    script = (written / "links" / "tests" / "test.sh").read_text()
    (tmp_path / "run-tests.sh").write_text(f"cat <<'END'\nnoise\n{_HEAD}{lines}END\n")
    script = script.replace("/tests/", f"{tmp_path}/").replace("/logs/verifier", str(tmp_path))
    own = {**os.environ, "TMPDIR": str(tmp_path)}  # it leaves its log to its container's end
    subprocess.run(["bash", "-c", script], check=False, capture_output=True, env=own)
    reward = tmp_path / "reward.txt"
    try:
        expected = terminal_bench_reward("terminal-bench", _HEAD + lines).value
    except NoResults:
        assert not reward.exists()
    else:
        assert float(reward.read_text()) == expected


def _swe(**fields: object) -> Task:
    verification = Verification(
        "bash check.sh",
        parser="pytest",
        fail_to_pass=("t.py::a",),
        pass_to_pass=("t.py::b",),
        files={"/work/check.sh": FileSpec("file", b"cat results\n")},
    )
    task = Task(
        id="t",
        query="Do it.",
        gold=("echo done",),
        env="swe",
        suite="s",
        dataset="s",
        image=ImageSource(image="debian:bookworm-slim"),
        workdir="/work",
        files={"given.txt": FileSpec("file", b"1\n")},
        setup=("touch made",),
    )
    return replace(task, verification=replace(verification, **fields))  # type: ignore[arg-type]


def test_a_swe_task_is_written_whole(tmp_path: Path) -> None:
    write_swe(_swe(), ["echo done"], tmp_path / "t")
    (task,) = folder_tasks(tmp_path / "t")
    assert (task.query, task.workdir, task.skip) == ("Do it.\n", "/work", None)
    dockerfile = (tmp_path / "t/environment/Dockerfile").read_text().splitlines()
    assert dockerfile == [
        "FROM debian:bookworm-slim",
        "ADD files.tar /",
        "WORKDIR /work",
        'RUN ["bash", "-c", "touch made"]',
    ]
    assert (tmp_path / "t/tests/files/work/check.sh").read_bytes() == b"cat results\n"
    assert "echo done" in task.gold[0]


@pytest.mark.parametrize(
    ("parser", "names", "results", "reward"),
    [
        ("pytest", ("t.py::a", "t.py::b"), "PASSED t.py::a\nPASSED t.py::b\n", "1"),
        ("pytest", ("t.py::a", "t.py::b"), "PASSED t.py::a\nFAILED t.py::b - x\n", "0"),
        ("pytest", ("t.py::a", "t.py::b"), "PASSED t.py::a\n", "0"),
        ("pytest", ("t.py::a",), "", "0"),
        ("tap", ("- a", "b: c"), "1..2\nok 1 - a\nok 12 b: c\n", "1"),
        ("tap", ("- a", "b: c"), "ok 1 - a\nnot ok 2 b: c\n", "0"),
        ("unittest", ("a (t.T.a)",), "a (t.T.a) ... ok\n\nOK\n", "1"),
        ("unittest", ("a (t.T.a)",), "a (t.T.a) ... FAIL\n", "0"),
        ("status", (), "", "1"),
    ],
)
def test_the_script_of_a_swe_task_wants_every_name(
    parser: str, names: tuple[str, ...], results: str, reward: str, tmp_path: Path
) -> None:
    task = _swe(
        parser=parser,
        fail_to_pass=names[:1],
        pass_to_pass=names[1:],
        command="bash check.sh {sentinels:t}; exit 0",
    )
    write_swe(task, [], tmp_path / "t")
    (tmp_path / "results").write_text(results)
    (tmp_path / "check.sh").write_text("[ $# = 0 ] && cat results\n")
    script = (tmp_path / "t/tests/test.sh").read_text().replace("/work", str(tmp_path))
    script = script.replace("cp -a /tests/files/. /\n", "")
    script = script.replace("</tests", f"<{tmp_path}/t/tests")
    subprocess.run(
        ["bash", "-c", script.replace("/logs/verifier", str(tmp_path))],
        check=False,
        capture_output=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert (tmp_path / "reward.txt").read_text().strip() == reward


def test_what_is_run_where_the_agent_was_is_written(tmp_path: Path) -> None:
    hooks = (Hook("pg_dump >dump", "postgres", 5.0), Hook("sync"))
    write_swe(_swe(collect=hooks), [], tmp_path / "t")
    (task,) = folder_tasks(tmp_path / "t")
    assert task.verification is not None
    assert task.verification.collect == hooks


@pytest.mark.parametrize(
    "task",
    [
        replace(_swe(), services=Services((Service("db", ImageSource(image="postgres")),))),
        _swe(collect=(Hook("pg_dump", service="db"),)),
        _swe(evidence=(Artifact("/dump", service="db"),)),
    ],
)
def test_services_that_cannot_be_written_are_refused(task: Task, tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="task 't': its services and shared folders cannot be wr"):
        write_swe(task, [], tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_a_parser_that_a_script_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="results of the parser 'gotest' cannot be read"):
        write_swe(_swe(parser="gotest"), [], tmp_path / "t")


def test_a_folder_that_cannot_be_written_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("precious")
    assert main(["convert", str(_ROOT / "terminal-bench"), "--to", str(tmp_path / "file")]) == 1
    said = capsys.readouterr()
    (line,) = (line for line in said.err.splitlines() if "--to=" in line)
    assert line.startswith(f"pytest-intercode: --to={tmp_path}/file: cannot be written: ")
    assert said.out == ""
    assert (tmp_path / "file").read_text() == "precious"
