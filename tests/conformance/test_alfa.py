"""InterCode-ALFA as it is published: its rows, and a few of its tasks on each of its machines."""

from __future__ import annotations

import json
from pathlib import Path

import docker
import pytest

from pytest_intercode.auditing.playing import play
from pytest_intercode.core.task import FORMAT_NAMES, Task
from pytest_intercode.environments.answer import Answer
from pytest_intercode.environments.bash.fields import golds_of
from pytest_intercode.errors import MissingProgram
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.suites.catalogue import data_folder as folder_of
from pytest_intercode.suites.catalogue import dataset_tasks
from pytest_intercode.suites.download import is_whole
from pytest_intercode.suites.upstream import files_of
from tests.support.alpine import ALPINE, make_image

SIZES = {"fs1": 153, "fs2": 49, "fs3": 57, "fs4": 23, "fs5": 18}


def tasks(samples: Path, name: str) -> dict[str, Task]:
    found = dataset_tasks(name, folder_of(samples, "INTERCODE_SAMPLES"), name)
    return {task.id: task for task in found}


def test_the_rows_are_those_that_are_fetched(samples: Path) -> None:
    rows = files_of("src/icalfa/assets/datasets/")
    assert len(rows) == 5
    assert all(is_whole(samples / file.target, file) for file in rows)


@pytest.mark.parametrize("name", ["alfa", "alfa-either"])
def test_the_tasks(samples: Path, name: str) -> None:
    found = tasks(samples, name)
    mapping = json.loads((samples / "alfa/mapping-to-intercode.json").read_text())["rows"]
    assert len(found) == len(mapping) == 300
    for task, row in zip(found.values(), mapping, strict=True):  # in the order of ALFA's index
        part = row["file"].removeprefix("nl2bash_").removesuffix(".json").replace("_", "")
        assert task.id == f"alfa-{part}-{row['row']:05d}"
        assert task.dataset == f"{name}-{part}"
        both = name == "alfa-either" and not row["gold2_equals_gold"]
        assert len(golds_of(task)) == 1 + both
        assert task.metadata["gold2"] in (golds_of(task)[-1][0], *task.gold) or name == "alfa"
    assert sum(task.hardness == "0" for task in found.values()) == 100
    for part, size in SIZES.items():
        assert len(tasks(samples, f"{name}-{part}")) == size
    shell = {"alfa-fs1-00013", "alfa-fs4-00004"}
    assert {task.reward.lenient for task in found.values()} == {FORMAT_NAMES}
    assert shell <= {task.id for task in found.values() if task.reward.normalise}


def test_both_datasets_say_the_same_of_their_tasks(samples: Path) -> None:
    alone, either = tasks(samples, "alfa"), tasks(samples, "alfa-either")
    for name, task in alone.items():
        other = either[name]
        assert (task.xfail, task.reward, task.image, task.archive, task.variables, task.audit) == (
            *(other.xfail, other.reward, other.image, other.archive, other.variables, other.audit),
        )


PLAYED = {
    # task: by which rule its second command is accepted; empty where the outputs are equal
    "alfa-fs1-00109": "",  # the content of $FILES
    "alfa-fs1-00145": "names",
    "alfa-fs2-00008": "",  # files are removed
    "alfa-fs3-00024": "paths",
}
ON_ALPINE = {"alfa-fs5-00003": "matches"}


def check(provider: SandboxProvider, task: Task, rule: str) -> None:
    other = str(task.metadata["gold2"])
    for command, format_name in ((task.gold[0], ""), (other, rule)):
        played = play(provider, task, Answer((command,)))
        assert played.solved, (task.id, command, played.reward)
        assert played.state.get("format", "") == format_name, task.id
    for command in (":", "echo 0 1 2 3 4 5 6 7 8 9"):
        assert not play(provider, task, Answer((command,))).solved, task.id


@pytest.mark.usefixtures("bubblewrap")
def test_a_few_tasks(samples: Path) -> None:
    """On this machine's own programs, as bubblewrap has no image of ALFA's."""
    provider = SandboxProvider(SandboxSettings("bubblewrap"))
    found = tasks(samples, "alfa")
    try:
        for name, rule in PLAYED.items():
            try:
                check(provider, found[name], rule)
            except MissingProgram as missing:
                pytest.skip(str(missing))
    finally:
        provider.close()


@pytest.mark.slow
def test_a_few_tasks_on_alpine(samples: Path, docker_api: docker.APIClient) -> None:
    """On busybox in place of Alpine, whose image is mapped."""
    images = {ALPINE: make_image(docker_api)}
    provider = SandboxProvider(SandboxSettings("docker", base_images=images))
    found = tasks(samples, "alfa")
    try:
        for name, rule in ON_ALPINE.items():
            check(provider, found[name], rule)
        shown = play(provider, found["alfa-fs5-00003"], Answer(("readlink -f $(which ls)",)))
        assert "busybox" in shown.observations[0]
    finally:
        provider.close()
