"""``pytest-intercode check``: what is missing, what is skipped, what has no gold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_intercode.cli import main
from tests.support.task_folders import BASE, write_harbor, write_terminal_bench

GONE = "no.invalid/gone:1"
PUBLISHED = "ghcr.io/laude-institute/t-bench/ubuntu-24-04:20250624"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    fetches = "pip install pytest==8.4.1 2>/dev/null"
    write_harbor(folder / "a", tests=fetches, solution="true")
    write_harbor(
        folder / "b",
        tests=fetches,
        solution="true",
        dockerfile=f"FROM {GONE} AS x\nFROM x\n",
        toml='[environment]\nnetwork_mode = "no-network"\n',
    )
    write_harbor(folder / "c", tests="true", solution="", dockerfile=f"FROM {PUBLISHED}\n")
    (folder / "c/solution/solve.sh").unlink()
    write_harbor(folder / "d", tests="true", solution="true", toml="[environment]\ngpus = 1\n")
    write_terminal_bench(folder / "e", tests="true", solution="true")
    (folder / "e/run-tests.sh").unlink()
    (folder / "f").mkdir()
    (folder / "f/task.toml").write_text("x")
    return folder


def lines(capsys: pytest.CaptureFixture[str]) -> tuple[list[str], str]:
    printed = capsys.readouterr()
    return [" ".join(line.split()) for line in printed.out.splitlines()], printed.err


@pytest.mark.usefixtures("needs_docker")
def test_what_is_there_and_what_is_missing(
    dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # This machine may have the image that stands for the published one.
    missing = "no.invalid/ubuntu:24.04"
    assert main(["check", "set", "--base-image", f"ubuntu:24.04={missing}"]) == 1
    table, advice = lines(capsys)
    assert table[:4] == [
        f"missing image 1 task {PUBLISHED} ({missing})",
        f"missing image 1 task {GONE}",
        f"present image 1 task {BASE}",
        "missing kit 2 tasks pytest==8.4.1",
    ]
    assert "skipped 1 task it needs an accelerator (gpus or tpu in task.toml)" in table
    assert any("the tests' script is missing: there is no run-tests.sh" in line for line in table)
    assert any(line.startswith("skipped 1 task task.toml: not TOML") for line in table)
    assert table[-2:] == ["no gold 1 task c", "6 tasks, 3 of them skipped"]
    assert "add them with pytest-intercode kit --dataset set\n" in advice
    assert "--intercode-base-image NAME=REPLACEMENT" in advice


@pytest.mark.usefixtures("needs_docker", "dataset")
def test_what_options_put_in_the_place_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    mapped = ("--base-image", f"{GONE}={BASE}", "--base-image", f"ubuntu:24.04={BASE}")
    assert main(["check", "set", *mapped, "--network"]) == 1
    table, advice = lines(capsys)
    assert f"present image 1 task {GONE} ({BASE})" in table
    assert f"present image 1 task {PUBLISHED} ({BASE})" in table
    assert "missing kit 1 task pytest==8.4.1" in table  # of the one that has no network
    assert "docker pull" not in advice


@pytest.mark.usefixtures("dataset")
def test_docker_need_not_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    assert main(["check", "set/a"]) == 1
    table, advice = lines(capsys)
    assert table == [
        f"unknown image 1 task {BASE}",
        "missing kit 1 task pytest==8.4.1",
        "1 task, 0 of them skipped",
    ]
    assert "no Docker engine answers" in advice
    Path("registry.json").write_text(json.dumps([{"name": "own", "dataset_path": "set"}]))
    assert main(["check", "registry.json:own"]) == 1
    assert "6 tasks, 3 of them skipped" in lines(capsys)[0]


def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "nothing-here"]) == 2
    assert lines(capsys)[1].count("\n") == 1
