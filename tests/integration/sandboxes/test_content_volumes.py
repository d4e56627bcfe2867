"""Volumes with a copy of a folder: one for each content, whole or not used, and gone in the end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import docker
import pytest

from pytest_intercode.sandboxes.docker import volumes
from pytest_intercode.sandboxes.docker.engine import DockerEngine
from pytest_intercode.sandboxes.docker.images import DockerImages
from pytest_intercode.sandboxes.docker.reaper import remove_container
from pytest_intercode.sandboxes.docker.volumes import Volumes, remove_old_volumes
from tests.support.backends import SOURCE

NOW = timedelta(seconds=-1)  # older than that is whatever there is
Make = Callable[[], Volumes]


@pytest.fixture
def api(docker_engine: DockerEngine, monkeypatch: pytest.MonkeyPatch) -> docker.APIClient:
    # Not those of the runs that have this engine meanwhile.
    monkeypatch.setattr(volumes, "CONTENT_LABEL", f"pytest-intercode.test-{os.urandom(4).hex()}")
    return docker_engine.api


@pytest.fixture
def image(api: docker.APIClient) -> str:
    return DockerImages(api).resolve(SOURCE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "tool").write_text(os.urandom(500).hex())  # logs hold text
    return bundle


@pytest.fixture
def make(api: docker.APIClient) -> Iterator[Make]:
    """Return a function that makes the volumes of a run; what it has is removed in the end."""
    runs = []

    def start() -> Volumes:
        runs.append(f"run-{os.urandom(4).hex()}")
        return Volumes(api, {"pytest-intercode.test": runs[-1]})

    yield start
    for run in runs:
        end_run(api, run)
    for name in names_of(api):
        api.remove_volume(name)


def end_run(api: docker.APIClient, run: str) -> None:
    for row in api.containers(all=True, filters={"label": f"pytest-intercode.test={run}"}):
        remove_container(api, row["Id"])


def names_of(api: docker.APIClient) -> set[str]:
    rows = api.volumes(filters={"label": volumes.CONTENT_LABEL})["Volumes"] or ()
    return {row["Name"] for row in rows}


def content_of(api: docker.APIClient, volume: str, image: str) -> bytes:
    config = api.create_host_config(binds=[f"{volume}:/v"])
    container = api.create_container(image, ["cat", "/v/tool"], host_config=config)
    try:
        api.start(container)
        api.wait(container)
        return bytes(api.logs(container))
    finally:
        remove_container(api, container["Id"])


def test_runs_share_what_has_one_content(
    api: docker.APIClient, make: Make, image: str, folder: Path, tmp_path: Path
) -> None:
    first = make().name(str(folder), image)
    assert content_of(api, first, image) == (folder / "tool").read_bytes()
    copy = tmp_path / "copy"
    folder.rename(copy)
    second = make()
    assert second.name(str(copy), image) == first
    (copy / "tool").write_bytes(b"other")
    assert second.name(str(copy), image) == first  # of one run, agent and gold have the same
    assert make().name(str(copy), image) != first


def test_runs_that_begin_at_the_same_time(
    api: docker.APIClient, make: Make, image: str, folder: Path
) -> None:
    runs = [make() for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        names = set(threads.map(lambda run: run.name(str(folder), image), runs))
    [name] = names
    assert names_of(api) == {name, f"{name}-whole"}


def test_what_is_not_whole_is_not_used(
    api: docker.APIClient,
    make: Make,
    image: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def break_off(folder: Path) -> Iterator[bytes]:
        yield bytes(512)
        raise OSError(5, "the disk is broken")

    with monkeypatch.context() as patch:
        patch.setattr(volumes, "stream_folder", break_off)
        with pytest.raises(Exception, match=r"disk is broken|Connection"):
            make().name(str(folder), image)
    assert names_of(api) == set()
    # A run that was killed removes nothing.
    name = make().name(str(folder), image)
    api.remove_volume(f"{name}-whole")
    other = make().name(str(folder), image)
    assert other != name
    assert names_of(api) == {name, other, f"{other}-whole"}


def test_a_volume_that_goes_just_before_it_is_used(
    api: docker.APIClient,
    image: str,
    make: Make,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The engine would make an empty one of its name."""
    first = make()
    name = first.name(str(folder), image)
    end_run(api, first._labels["pytest-intercode.test"])
    find = Volumes._find

    def find_and_lose(self: Volumes, digest: str) -> list[str]:
        names = find(self, digest)
        if names == [name]:
            with contextlib.suppress(docker.errors.NotFound):
                api.remove_volume(name)
        return names

    monkeypatch.setattr(Volumes, "_find", find_and_lose)
    second = make().name(str(folder), image)
    assert second != name
    assert content_of(api, second, image) == (folder / "tool").read_bytes()


def test_old_ones_are_removed_unless_a_run_has_them(
    api: docker.APIClient,
    make: Make,
    image: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = make()
    name = run.name(str(folder), image)
    api.create_volume("half", labels={volumes.CONTENT_LABEL: "0"})
    everything = {name, f"{name}-whole", "half"}
    remove_old_volumes(api)
    assert names_of(api) == everything
    monkeypatch.setattr(volumes, "_MAX_FILLING_TIME", NOW)
    remove_old_volumes(api)
    assert names_of(api) == everything - {"half"}
    monkeypatch.setattr(volumes, "_MAX_AGE", NOW)
    remove_old_volumes(api)
    assert names_of(api) == {name, f"{name}-whole"}
    end_run(api, run._labels["pytest-intercode.test"])
    remove_old_volumes(api)
    assert names_of(api) == set()
    assert volumes._age({"CreatedAt": "2020-01-01T10:00:00.123456789Z"}) > timedelta(days=365)
    assert volumes._age({}) == timedelta()
