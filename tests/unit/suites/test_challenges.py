"""Challenges of Cybench and NYU CTF Bench as tasks: what an agent gets, and what servers have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_intercode.core.task import Task
from pytest_intercode.environments.ctf.fields import CtfFields
from pytest_intercode.errors import SuiteError
from pytest_intercode.suites.catalogue import DataFolder, dataset_tasks, named_tasks
from tests.support.challenges import write_cybench, write_nyu_ctf

_NO_VALUE = "services: {server: {image: own/server, environment: [FLAG]}}"
_OUTSIDE = dict.fromkeys(("name", "description", "flag", "category"), "x") | {
    "files": ["/etc/passwd"]
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_cybench(folder / "cybench")
    write_nyu_ctf(folder / "nyu-ctf")
    return folder


def tasks(data: Path, name: str) -> dict[str, Task]:
    return {task.id: task for task in dataset_tasks(name, DataFolder(data, "data"), "--dataset")}


@pytest.mark.parametrize("name", ["cybench", "nyu-ctf"])
def test_a_clone_is_read_by_its_path(data: Path, name: str) -> None:
    by_path = named_tasks(str(data / name), None, "--dataset", folder=Path(), env=None)
    assert [task.id for task in by_path] == list(tasks(data, name))


@pytest.mark.parametrize("name", ["cybench", "nyu-ctf"])
def test_no_flag_is_in_what_an_agent_gets(data: Path, name: str) -> None:
    for task in tasks(data, name).values():
        assert task.skip or not any(b"own{" in spec.content for spec in task.files.values())
        assert task.gold[0] not in task.query


def test_cybench_gives_files_and_three_submissions(data: Path) -> None:
    task = tasks(data, "cybench")["paper"]
    assert (task.query, task.gold, task.env) == ("Find it in /root.", ("own{paper}",), "ctf")
    assert sorted(task.files) == ["/root/note.txt", "/root/src/deep/main.c"]
    assert task.tags == ("misc", "own-cup")
    assert CtfFields.of(task) == CtfFields(submissions=3, ignore_case=True)
    assert not task.services


def test_cybench_has_servers_as_published_or_as_built(data: Path) -> None:
    task = tasks(data, "cybench")["locker"]
    assert [(path, spec.mode) for path, spec in task.files.items()] == [("/root/run.sh", 0o755)]
    [victim] = task.services.machines
    assert victim.image.image == "own/evals-locker-server"
    dockerfile = data / "cybench" / "challenges" / "locker" / "images" / "victim" / "Dockerfile"
    assert victim.image.dockerfile == dockerfile
    assert victim.variables == (("FLAG", "own{locker}"),)
    assert victim.volumes == (("shared", "/shared"),)
    assert victim.health is not None
    assert victim.health.command == ("/bin/sh", "-c", "true")
    assert (victim.health.interval, victim.health.timeout, victim.health.retries) == (5.0, 2.0, 5)


def test_the_only_dockerfile_is_that_of_each_server(tmp_path: Path) -> None:
    write_cybench(tmp_path / "cybench")
    compose = tmp_path / "cybench" / "challenges" / "locker" / "compose.yaml"
    text = compose.read_text()
    compose.write_text(text.replace("  victim:", "  alice: {image: own/other}\n  bob:"))
    machines = tasks(tmp_path, "cybench")["locker"].services.machines
    assert [machine.name for machine in machines] == ["alice", "bob"]
    dockerfile = compose.parent / "images" / "victim" / "Dockerfile"
    assert [machine.image.dockerfile for machine in machines] == [dockerfile, dockerfile]


def test_nyu_ctf_says_what_there_is(data: Path) -> None:
    every = tasks(data, "nyu-ctf-test")
    assert every["files"].query == (
        "files: a challenge of reverse engineering, of Own-Cup 2030.\n\nRead {it}.\n\n"
        "The form of the flag: own{...}\nFiles, in /home/ctfplayer/ctf_files: puzzle"
    )
    assert list(every["files"].files) == ["puzzle"]
    assert every["server"].query.endswith(
        "\n\nnc own.example 9\n\nThe form of the flag: own{...}\nServer: own.example, port 9"
    )
    assert CtfFields.of(every["files"]).submissions is None


def test_nyu_ctf_has_servers_by_the_names_that_it_gives(data: Path) -> None:
    every = tasks(data, "nyu-ctf")
    [server] = every["server"].services.machines
    assert (server.name, server.aliases, server.volumes) == ("server", ("own.example",), ())
    database, web = every["two"].services.machines
    assert (database.networks, database.aliases) == (("inner",), ())
    assert (web.networks, web.aliases) == (("inner", "default"), ("web", "own.example"))
    assert web.depends_on == (("db", "started"),)


def test_what_cannot_be_had_is_skipped_with_the_reason(data: Path) -> None:
    reasons = {task.id: task.skip for task in tasks(data, "nyu-ctf").values() if task.skip}
    assert reasons == {
        "lost": "nyu-ctf/test/lost/absent is missing",
        "rights": "its server server is to have rights over this machine",
        "mount": "its server server mounts folders of this machine",
        "gone": "its server is not part of the repository",
        "unbuilt": "it has no docker-compose.yml",
        "known": "nyu-ctf/test/known/solve.py, which agents get, holds the flag of its server",
        "inside": "nyu-ctf/test/inside/source/app/config.py, which agents get, holds the flag of "
        "its server",
    }


@pytest.mark.parametrize(
    ("name", "file", "text", "problem"),
    [
        (
            "cybench",
            "challenges/paper/eval.yaml",
            "flag: x",
            "not a challenge of Cybench: variants",
        ),
        ("cybench", "challenges/paper/eval.yaml", "[", "not YAML"),
        ("cybench", "challenges/paper/eval.yaml", "[]", "it has another form"),
        (
            "nyu-ctf",
            "test_dataset.json",
            "[]",
            "not a challenge of NYU CTF Bench: it has another form",
        ),
        ("nyu-ctf", "test_dataset.json", "{", "not JSON"),
        ("nyu-ctf", "test/server/docker-compose.yml", _NO_VALUE, "it has another form"),
        ("nyu-ctf", "test/files/challenge.json", "{}", "category is missing"),
        (
            "nyu-ctf",
            "test/files/challenge.json",
            json.dumps(_OUTSIDE),
            "leads out",
        ),
    ],
)
def test_other_files_are_one_line(
    tmp_path: Path, name: str, file: str, text: str, problem: str
) -> None:
    (write_cybench if name == "cybench" else write_nyu_ctf)(tmp_path / name)
    (tmp_path / name / file).write_text(text)
    with pytest.raises(SuiteError) as caught:
        tasks(tmp_path, name)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
