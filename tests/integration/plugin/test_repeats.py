"""``--intercode-repeat`` and ``--intercode-shard``: how often each task is tried, and which are."""

from __future__ import annotations

import json

import pytest

from pytest_intercode.cli import main
from tests.conftest import results

# Solves a task on its even tries, which it counts by files; any process or thread may be next.
SOMETIMES = '''
import itertools

class Sometimes(Solver):
    """Solves what is called prints always, and the rest every second time."""

    def reset(self, task):
        super().reset(task)
        for tries in itertools.count(1):
            try:
                open(f"{task.id}.{tries}", "x").close()
                break
            except FileExistsError:
                pass
        if tries % 2 and task.id != "prints":
            self.left = ["submit"]
'''


@pytest.fixture
def sometimes(pytester: pytest.Pytester, pretend: object) -> str:
    """Return the option for an agent that solves some tasks every second time."""
    with (pytester.path / "agents.py").open("a") as file:
        file.write(SOMETIMES)
    return "--intercode-agent=agents.py:Sometimes"


def _ids(result: pytest.RunResult) -> list[str]:
    return [line.partition("[")[2].rstrip("]") for line in result.outlines if "::" in line]


def test_each_task_becomes_so_many_items(pytester: pytest.Pytester, pretend: object) -> None:
    result = pytester.runpytest("suite.yaml", "--intercode-repeat=2", "--co", "-q")
    assert _ids(result) == ["prints-1", "prints-2", "writes-1", "writes-2", "both-1", "both-2"]
    once = pytester.runpytest("suite.yaml", "--intercode-repeat=1", "--co", "-q")
    assert _ids(once) == ["prints", "writes", "both"]


def test_an_item_is_pasted(pytester: pytest.Pytester, pretend: object) -> None:
    name = "suite.yaml::test_solves[writes-2]"
    result = pytester.runpytest(name, "--intercode-repeat=2", "--co", "-q")
    assert _ids(result) == ["writes-2"]


@pytest.mark.parametrize(
    ("pasted", "found"),
    [("cron-job-disabled-2", ["cron-job-disabled-2"]), ("cron-job-disabled", ["-1", "-2"])],
)
def test_an_item_of_a_bundled_suite_is_pasted(
    pytester: pytest.Pytester, pasted: str, found: list[str]
) -> None:
    name = f"intercode/bash::test_solves[{pasted}]"
    result = pytester.runpytest(name, "--intercode-repeat=2", "--co", "-q")
    assert [each.removeprefix("cron-job-disabled") for each in _ids(result)] == [
        each.removeprefix("cron-job-disabled") for each in found
    ]


def test_a_try_that_is_not_there(pytester: pytest.Pytester) -> None:
    name = "intercode/bash::test_solves[cron-job-disabled-3]"
    result = pytester.runpytest(name, "--intercode-repeat=2", "--co", "-q")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no bundled suite or dataset has this task. Did you mean *"])


@pytest.mark.parametrize("distributed", [(), ("-n", "2"), ("--intercode-concurrency=4",)])
def test_statistics(
    pytester: pytest.Pytester, sometimes: str, distributed: tuple[str, ...]
) -> None:
    result = pytester.runpytest_subprocess(
        *("suite.yaml", sometimes, "--intercode-repeat=4", "--intercode-results=r.jsonl"),
        *distributed,
    )
    rows = results(pytester.path / "r.jsonl")
    tries = sorted((row["task_id"], row["repeat"]) for row in rows)
    assert tries == [(name, n) for name in ("both", "prints", "writes") for n in (1, 2, 3, 4)]
    result.assert_outcomes(passed=8, failed=4)
    # 8 of 12 solved; one of four: 1 and 1 - C(2,4)/C(4,4); all of four: 1 and 0
    result.stdout.fnmatch_lines(
        [
            "by *value *tasks *tries *rate *95% interval *pass@1 *pass@4 *pass^4 *reward*",
            "all *3 *12 *66.7% * 66.7% *100.0% *33.3% *0.667 *",
            "hardness *easy *1 *4 *100.0% * 100.0% *100.0% *100.0% *1.000 *",
            "hardness *hard *2 *8 *50.0% * 50.0% *100.0% *0.0% *0.500 *",
            "tag *files *2 *8 *50.0% *",
            "tag *text *2 *8 *75.0% *",
        ],
        consecutive=False,
    )
    summary = json.loads((pytester.path / "r.summary.json").read_text())
    assert summary["all"]["solved"] == 8
    assert summary["all"]["pass_at"]["2"] == pytest.approx((1 + 2 * 5 / 6) / 3)
    assert summary["all"]["pass_hat"]["2"] == pytest.approx((1 + 2 * 1 / 6) / 3)
    assert summary["tag"]["text"]["tries"] == 8


def test_shards_are_all_and_nothing_twice(pytester: pytest.Pytester, pretend: object) -> None:
    parts = [
        _ids(pytester.runpytest("suite.yaml", f"--intercode-shard={n}/2", "--co", "-q"))
        for n in (1, 2)
    ]
    assert parts == [["prints", "both"], ["writes"]]


def test_shards_by_the_times_of_an_earlier_run(
    pytester: pytest.Pytester, pretend: object, capsys: pytest.CaptureFixture[str]
) -> None:
    """They take equally long, and are merged again if they are all of one run."""
    rows = [("prints", 1.0), ("writes", 6.0), ("both", 2.0), ("both", 4.0)]
    tried = [
        {
            **{"environment": "ic_bash", "suite": "suite", "task_id": name, "seconds": seconds},
            **{"outcome": "failed", "reward": 0.0, "repeat": at, "turn_history": {"actions": []}},
        }
        for at, (name, seconds) in enumerate(rows, 1)
    ]
    (pytester.path / "old.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in tried))

    def run(part: str, durations: str = "old.jsonl") -> list[str]:
        options = (f"--intercode-shard={part}/2", f"--intercode-durations={durations}")
        result = pytester.runpytest(
            *("suite.yaml", "--intercode-agent=agents:Solver", *options),
            f"--intercode-results=shard-{part}.jsonl",
            *("-q", "-q"),
        )
        assert result.ret == pytest.ExitCode.OK
        lines = (pytester.path / f"shard-{part}.jsonl").read_text().splitlines()
        return [json.loads(line)["task_id"] for line in lines]

    assert sorted(map(sorted, (run("1"), run("2")))) == [["both", "prints"], ["writes"]]
    row = json.loads((pytester.path / "shard-1.jsonl").read_text().splitlines()[0])
    assert len(row["shard"].pop("durations")) == 16
    assert row["shard"] == {"part": 1, "parts": 2, "items": row["shard"]["items"]}
    names = [str(pytester.path / f"{name}.jsonl") for name in ("all", "shard-1", "shard-2")]
    assert main(["merge", *names]) == 0
    assert main(["merge", "--force", *names[:2]]) == 1
    assert "no file has an episode of the shard 2/2; name its file too, or" in (
        capsys.readouterr().err
    )
    assert main(["merge", "--force", "--partial", *names[:2]]) == 0
    (pytester.path / "other.jsonl").write_text(json.dumps(tried[0]) + "\n")
    run("2", "other.jsonl")
    assert main(["merge", "--force", *names]) == 1
    assert "the digest of --intercode-durations is" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "--intercode-durations=a.jsonl",
            "*: needs --intercode-shard=I/N, whose parts it balances",
        ),
        (
            "--intercode-durations=none.jsonl --intercode-shard=1/2",
            "--intercode-durations=*none.jsonl: No such file or directory",
        ),
        (
            "--intercode-durations=a.jsonl --intercode-shard=1/2",
            "--intercode-durations=*a.jsonl: contains no graded episodes, so no task has a time",
        ),
        ("--intercode-durations=suite.yaml --intercode-shard=1/2", "--intercode-durations=*"),
    ],
)
def test_durations_of_no_use(
    pytester: pytest.Pytester, pretend: object, options: str, message: str
) -> None:
    (pytester.path / "a.jsonl").write_text("")
    result = pytester.runpytest("suite.yaml", *options.split(), "--co")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert len([line for line in result.errlines if line]) == 1
    result.stderr.fnmatch_lines([f"ERROR: {message}"])


def test_shards_of_what_is_limited(pytester: pytest.Pytester, pretend: object) -> None:
    options = ("--intercode-limit=2", "--intercode-shard=2/2", "--intercode-repeat=2")
    assert _ids(pytester.runpytest("suite.yaml", *options, "--co", "-q")) == [
        "writes-1",
        "writes-2",
    ]


@pytest.mark.parametrize("value", ["0/2", "3/2", "2", "a/b", "-1/2"])
def test_no_shard(pytester: pytest.Pytester, pretend: object, value: str) -> None:
    result = pytester.runpytest("suite.yaml", f"--intercode-shard={value}", "--co")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--intercode-shard={value}: the form I/N is needed*"])


@pytest.mark.parametrize("value", ["0", "-2", "1.5", "many"])
def test_no_number_of_tries(pytester: pytest.Pytester, pretend: object, value: str) -> None:
    result = pytester.runpytest("suite.yaml", f"--intercode-repeat={value}", "--co")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--intercode-repeat={value}: a whole number above 0 is needed*"])
