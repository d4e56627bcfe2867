"""``pytest-intercode lint``: each rule on a folder that breaks it, and on one that does not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_intercode.cli import main
from pytest_intercode.linting.rules import RULES
from tests.support.polyglot import write_sample
from tests.support.task_folders import BASE, write_harbor, write_terminal_bench

_SEPARATE = """\
[task]
name = "team/clean"
authors = [{name = "Ada"}]
[metadata]
difficulty = "easy"
category = "files"
own = {anything = 1}
[agent]
timeout_sec = 60
[verifier]
environment_mode = "separate"
[verifier.env]
ANYTHING = "1"
"""
_LONG = (
    "#!/bin/bash\n# a solution that is long enough to be known again by what it holds\necho 1 >a\n"
)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)


def write_clean(folder: str, files: Mapping[str, str] | None = None, **settings: str) -> None:
    """Write a task of Harbor's in which nothing is found."""
    texts = {"tests/Dockerfile": f"FROM {BASE}\nCOPY test.sh /tests/test.sh\n", **(files or {})}
    arguments = {"tests": "grep -q 1 a", "solution": "echo 1 >a", "toml": _SEPARATE, **settings}
    write_harbor(Path("set", folder), files=texts, **arguments)


def found(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[tuple[str, str, int]]:
    """Return the rule, the path and the line of each finding."""
    main(["lint", *(arguments or ("set",)), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["version"] == 1
    return [(row["rule"], row["path"], row["line"]) for row in document["findings"]]


def test_nothing_is_found_in_a_clean_task(capsys: pytest.CaptureFixture[str]) -> None:
    write_clean("a")
    assert main(["lint", "set", "--strict"]) == 0
    assert capsys.readouterr().out == "1 task, 0 errors, 0 warnings\n"


_DEFAULT_TESTS = "pytest && echo 1 > /logs/verifier/reward.txt"
_HARBOR = {
    "no-timeout": (
        {"toml": _SEPARATE.replace("timeout_sec = 60\n", "")},
        {},
        ("set/a/task.toml", 8),
    ),
    "no-metadata": (
        {"toml": _SEPARATE.replace('category = "files"\n', "")},
        {},
        ("set/a/task.toml", 4),
    ),
    "unknown-key": (
        {"toml": _SEPARATE.replace("timeout_sec", "timeout_secs = 5\ntimeout_sec")},
        {},
        ("set/a/task.toml", 9),
    ),
    "shared-verifier": (
        {"toml": _SEPARATE.replace('"separate"', '"shared"')},
        {},
        ("set/a/task.toml", 10),
    ),
    "unpinned-image": (
        {"dockerfile": "FROM debian:latest\nWORKDIR /app\n"},
        {},
        ("set/a/environment/Dockerfile", 1),
    ),
    "unpinned-package": (
        {"dockerfile": f"FROM {BASE}\nRUN pip install numpy\n"},
        {},
        ("set/a/environment/Dockerfile", 2),
    ),
    "answer-in-image": (
        {"dockerfile": f"FROM {BASE}\nCOPY . /app\n"},
        {"solution/solve.sh": _LONG, "environment/hidden/x.sh": _LONG},
        ("set/a/environment/Dockerfile", 2),
    ),
    "instruction-names-tests": (
        {},
        {"instruction.md": "Write 1 to a.\nSee /tests/test.sh.\n"},
        ("set/a/instruction.md", 2),
    ),
    "no-reward": ({}, {"tests/test.sh": "#!/bin/bash\ntrue\n"}, ("set/a/tests/test.sh", 1)),
    "reward-not-reached": ({"tests": "set -e\ngrep -q 1 a"}, {}, ("set/a/tests/test.sh", 2)),
    "reward-kept": (
        {},
        {"tests/test.sh": f"#!/bin/bash\n{_DEFAULT_TESTS}\n"},
        ("set/a/tests/test.sh", 2),
    ),
    "windows-line-ends": (
        {"solution": "echo 1 >a\r\ntrue"},
        {},
        ("set/a/solution/solve.sh", 1),
    ),
    "cannot-run": ({"toml": f"{_SEPARATE}[environment]\ngpus = 1\n"}, {}, ("set/a/task.toml", 0)),
    "cannot-load": (
        {"toml": f"{_SEPARATE}[environment]\ncpus = 'x'\n"},
        {},
        ("set/a/task.toml", 0),
    ),
}


@pytest.mark.parametrize("rule", _HARBOR)
def test_a_rule_of_task_folders(rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    settings, files, place = _HARBOR[rule]
    write_clean("a", files, **settings)
    assert found(capsys) == [(rule, *place)]
    assert main(["lint", "set", "--disable", rule, "--strict"]) == 0
    capsys.readouterr()
    assert main(["lint", "set"]) == (RULES[rule].level == "error")
    line = capsys.readouterr().out.splitlines()[0]
    assert f": {RULES[rule].level}: {rule}: " in line
    assert RULES[rule].remedy in line


def test_what_has_no_solution_and_what_is_fetched(capsys: pytest.CaptureFixture[str]) -> None:
    write_clean("a")
    Path("set/a/solution/solve.sh").unlink()
    write_terminal_bench(Path("set/b"), tests="# as usual\npip install pytest", solution="true")
    assert found(capsys) == [
        ("no-solution", "set/a/task.toml", 0),
        ("verifier-downloads", "set/b/run-tests.sh", 3),
        ("unpinned-package", "set/b/run-tests.sh", 3),
    ]


def test_what_is_copied_where_terminal_bench_builds(capsys: pytest.CaptureFixture[str]) -> None:
    files = {"Dockerfile": f"FROM {BASE}\nCOPY . /app\n", "data.csv": "1\n"}
    write_terminal_bench(Path("set/a"), tests="true", solution="true", files=files)
    assert found(capsys) == [("answer-in-image", "set/a/Dockerfile", 2)]
    Path("set/a/.dockerignore").write_text(
        "# what agents are not given\nrun-tests.sh\nsolution.*\n"
    )
    assert found(capsys) == []


def test_the_image_that_a_compose_file_names_is_looked_at(
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = {
        "docker-compose.yaml": "services: {client: {build: {dockerfile: Other}}}\n",
        "Other": f"FROM {BASE}\nCOPY solution.sh /app/\n",
    }
    write_terminal_bench(Path("set/a"), tests="true", solution="true", files=files)
    web = "services: {main: {build: web}}\n"
    inner = {"environment/docker-compose.yaml": web, "solution/solve.sh": _LONG}
    inner |= {"environment/web/Dockerfile": f"FROM {BASE}\nCOPY a /\n", "environment/web/a": _LONG}
    write_clean("b", inner)
    assert found(capsys) == [
        ("answer-in-image", "set/a/Other", 2),
        ("answer-in-image", "set/b/environment/web/Dockerfile", 2),
    ]


def test_what_keeps_a_task_from_being_read_is_at_its_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_clean("a", {"environment/docker-compose.yaml": "services:\n  [\n"})
    write_clean("b", {"environment/docker-compose.yaml": "networks: [a]\n"})
    assert found(capsys) == [
        ("cannot-load", "set/a/environment/docker-compose.yaml", 3),
        ("cannot-load", "set/b/environment/docker-compose.yaml", 0),
    ]


def test_data_that_tests_and_image_have_alike(capsys: pytest.CaptureFixture[str]) -> None:
    data = {"environment/in.csv": "1,2\n" * 40, "tests/in.csv": "1,2\n" * 40}
    files = {**data, "solution/in.csv": data["tests/in.csv"]}
    write_clean("a", files, dockerfile=f"FROM {BASE}\nCOPY in.csv /app/\n")
    assert found(capsys) == []


def test_helpers_of_steps_write_their_reward(capsys: pytest.CaptureFixture[str]) -> None:
    toml = f'{_SEPARATE.replace("separate", "shared")}\n[[steps]]\nname = "one"\n'
    files = {
        "tests/helpers.sh": "echo 1 > /logs/verifier/reward.txt\n",
        "steps/one/tests/test.sh": "#!/bin/bash\nsource /tests/helpers.sh\n",
        "steps/one/instruction.md": "Do it.\n",
        "steps/one/solution/solve.sh": "true\n",
    }
    write_clean("a", files, toml=toml)
    assert [rule for rule, _, _ in found(capsys)] == ["shared-verifier"]


def test_a_suite_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    Path("Dockerfile").write_text("FROM debian\n")
    Path("suite.yaml").write_text(
        "env: swe\ntasks:\n  - id: one\n    query: Do it.\n    gold: touch a\n"
        "    dockerfile: Dockerfile\n    verification: {command: test -e a, parser: status}\n"
    )
    assert found(capsys, "suite.yaml") == [
        ("unpinned-image", "Dockerfile", 1),
    ]
    Path("suite.yaml").write_text("env: bash\ntasks:\n  - id: one\n    qery: x\n")
    [(rule, path, line)] = found(capsys, "suite.yaml")
    assert (rule, path, line) == ("cannot-load", "suite.yaml", 4)
    assert main(["lint", "bash", "sql", "--strict"]) == 0


def test_annotations_of_github(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_clean("a,b", dockerfile="FROM debian\n")
    expected = (
        "::warning file=set/a%2Cb/environment/Dockerfile,line=1,title=unpinned-image::"
        "the image debian is of no version; name a tag other than latest, or a digest"
    )
    assert main(["lint", "set", "--github"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == expected
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    monkeypatch.chdir("set")
    assert main(["lint", "."]) == 0
    assert capsys.readouterr().out.splitlines()[0] == expected


def test_a_finding_cannot_be_a_command_of_github(capsys: pytest.CaptureFixture[str]) -> None:
    write_clean("a", toml=f'"x\\n::error::forged" = 1\n{_SEPARATE}')
    assert main(["lint", "set", "--github"]) == 0
    [line, _] = capsys.readouterr().out.splitlines()
    assert line.startswith("::warning file=set/a/task.toml,line=1,title=unknown-key::")
    assert "forged" in line


def test_folders_cannot_lead_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside.md").write_text("secret /tests/test.sh")
    write_clean("a")
    Path("set/a/instruction.md").unlink()
    Path("set/a/instruction.md").symlink_to("../../outside.md")
    assert found(capsys) == [("cannot-load", "set/a/instruction.md", 0)]


def test_no_script_outside_is_looked_into(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "outside.sh").write_text("a\nb\ncurl example.org\n")
    files = {
        "steps/one/instruction.md": "Write 1 to a.\n",
        "steps/one/tests/Dockerfile": f"FROM {BASE}\n",
        "steps/one/tests/test.sh": "pip install pytest==8.4.1\n",
    }
    write_clean("a", files, toml=f"{_SEPARATE}[[steps]]\nname = 'one'\n")
    Path("set/a/tests/test.sh").unlink()
    Path("set/a/tests/test.sh").symlink_to("../../../outside.sh")
    assert set(found(capsys)) == {("cannot-load", "set/a/tests/test.sh", 0)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["set", "--disable", "unpined-image"], "there is no such rule. Did you mean"),
        (["nowhere"], "lint nowhere: there is no such suite"),
        (["empty"], "contains no task"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("empty").mkdir()
    assert main(["lint", *arguments]) == 2
    problem = capsys.readouterr().err
    assert problem.count("\n") == 1
    assert message in problem


def test_a_folder_in_another_format_is_read_as_runs_read_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It has no task folders; Aider's exercises are found by the folders of their languages."""
    write_sample(Path("exercises"))
    main(["lint", "exercises"])
    assert capsys.readouterr().out.splitlines()[-1].startswith("5 tasks, ")


def test_a_mistake_in_rows_is_of_their_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("suite.yaml").write_text("env: bash\nrows: {path: tasks.jsonl}\n")
    Path("tasks.jsonl").write_text('{"query": "a", "gold": "true"}\n{"query": \n')
    [(rule, path, line)] = found(capsys, "suite.yaml")
    assert (rule, Path(path).name, line) == ("cannot-load", "tasks.jsonl", 2)


def test_the_instruction_of_a_step_without_tests_is_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_clean("a", {"steps/one/instruction.md": "Look at /tests/test.sh.\n"})
    places = [(Path(path).name, line) for rule, path, line in found(capsys) if "names" in rule]
    assert places == [("instruction.md", 1)]
