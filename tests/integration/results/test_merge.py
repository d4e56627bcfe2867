"""``pytest-intercode merge`` on the results files of shards."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.cli import main
from pytest_intercode.results.files import read_records
from pytest_intercode.results.format import from_row
from tests.conftest import results


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _row(task: str, outcome: str = "solved", **more: Any) -> dict[str, Any]:
    return {
        "environment": "ic_bash",
        "task_id": task,
        "suite": "bash",
        "turn_history": {"actions": [f"echo {task}"]},
        "outcome": outcome,
        "reward": float(outcome == "solved"),
        "profile": "strict",
        **more,
    }


def _file(name: str, *rows: dict[str, Any], rest: str = "") -> str:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows) + rest)
    return name


def test_shards_that_runs_wrote(bubblewrap: object, pytester: pytest.Pytester) -> None:
    tasks = "".join(f"  - {{id: t{n}, query: Print {n}., gold: echo {n}}}\n" for n in range(4))
    Path("suite.yaml").write_text(f"env: bash\ntasks:\n{tasks}")
    for name, chosen in {"one": "t0 or t1", "two": "t2 or t3", "all": "t"}.items():
        pytester.runpytest_inprocess(
            "suite.yaml",
            "--intercode-agent=oracle",
            "--intercode-sandbox=bubblewrap",
            f"--intercode-results={name}.jsonl",
            f"-k={chosen}",
        ).assert_outcomes(passed=4 if name == "all" else 2, deselected=0 if name == "all" else 2)
    assert main(["merge", "out.jsonl", "one.jsonl", "two.jsonl"]) == 0
    merged = Path("out.jsonl").read_text()
    assert merged == Path("one.jsonl").read_text() + Path("two.jsonl").read_text()
    assert main(["compare", "all.jsonl", "out.jsonl", "--fail-on-regression"]) == 0
    assert Path("out.jsonl").stat().st_mode & 0o777 == Path("one.jsonl").stat().st_mode & 0o777


def test_what_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    shared = _row("b")
    one = _file("one.jsonl", _row("a", "infrastructure-error"), shared)
    two = _file("two.jsonl", _row("a"), shared, _row("c", profile="paper"), rest='{"environment": ')
    assert main(["merge", "new/out.jsonl", one, two]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines() == [
        "new/out.jsonl: 4 rows, 3 tries of 3 tasks",
        "  1 from one.jsonl (and 1 that a later file also has)",
        "  3 from two.jsonl",
        "1 row superseded by a later or graded try",
    ]
    assert told.err.splitlines() == [
        "pytest-intercode: warning: two.jsonl:4: the last line is truncated: its run was "
        "killed, or is writing it; it is left out",
        "pytest-intercode: warning: these are not shards of one run: profile strict in one.jsonl, "
        "paper in two.jsonl",
    ]
    rows = results(Path("new/out.jsonl"))
    assert [(row["task_id"], row["outcome"]) for row in rows] == [
        ("a", "infrastructure-error"),
        ("a", "solved"),
        ("b", "solved"),
        ("c", "solved"),
    ]


def test_gzip_and_intercodes_own() -> None:
    row = {"task_id": 3, "turn_history": {"actions": []}, "summary": {"max_reward": 1.0}}
    Path("theirs.json.gz").write_bytes(gzip.compress(json.dumps({"0": row}).encode()))
    for name in ("out.jsonl.gz", "OUT.JSONL.GZ"):
        assert main(["merge", name, "theirs.json.gz"]) == 0
        assert read_records(Path(name)) == [from_row(row)]


def test_what_is_scored_again_can_be_packed() -> None:
    run = _file("run.jsonl", _row("a", "task-error"))  # which stays as it is
    main(["rescore", run, "--output=again.jsonl.gz"])
    assert [record.task.id for record in read_records(Path("again.jsonl.gz"))] == ["a"]


def test_the_output_is_whole_or_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    out = _file("out.jsonl", _row("old"))
    one = _file("one.jsonl", _row("a"))

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", fail)
        assert main(["merge", "--force", out, one]) == 1
    assert sorted(path.name for path in Path().iterdir()) == ["one.jsonl", "out.jsonl"]
    assert results(Path(out))[0]["task_id"] == "old"
    assert main(["merge", "--force", out, one]) == 0
    assert results(Path(out))[0]["task_id"] == "a"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a.jsonl", "a.jsonl", "b.jsonl"], "a.jsonl: this is one of the files to merge; "),
        (["b.jsonl", "a.jsonl"], "b.jsonl: already exists; "),
        (["out.jsonl", "a.jsonl", "./a.jsonl"], "a.jsonl: is given twice"),
        (["out.jsonl", "a.jsonl", "no.jsonl"], "no.jsonl: there is no such results file"),
        (["out.jsonl", "empty.jsonl"], "empty.jsonl: there are no recorded episodes to merge"),
        (["out.jsonl", "a.jsonl", "b.jsonl"], "b.jsonl: try 1 of bash/t is also in a.jsonl, "),
        (["a.jsonl/out.jsonl", "b.jsonl"], "a.jsonl/out.jsonl: cannot be written: "),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _file("a.jsonl", _row("t"))
    _file("b.jsonl", _row("t", "failed"))
    _file("empty.jsonl")
    before = {path: path.read_text() for path in Path().iterdir()}
    assert main(["merge", *arguments]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"pytest-intercode: {said}")
    assert told.count("\n") == 1
    assert {path: path.read_text() for path in Path().iterdir()} == before


def test_the_last_file_may_count() -> None:
    a, b = _file("a.jsonl", _row("t")), _file("b.jsonl", _row("t", "failed"))
    assert main(["merge", "--last", "out.jsonl", a, b]) == 0
    assert [row.get("superseded") for row in results(Path("out.jsonl"))] == [True, None]


def test_jobs_of_two_agents_merge_into_two_cells(capsys: pytest.CaptureFixture[str]) -> None:
    one = _file("one.jsonl", _row("a", agent="codex"), _row("b", "failed", agent="codex"))
    two = _file("two.jsonl", _row("a", "failed", agent="claude"), _row("b", agent="claude"))
    assert main(["merge", "out.jsonl", one, two]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert told.out.splitlines() == [
        "out.jsonl: 4 rows, 4 tries of 2 tasks",
        "  2 from one.jsonl",
        "  2 from two.jsonl",
        "2 cells: codex, claude",
    ]
