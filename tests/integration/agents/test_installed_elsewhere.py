"""Installed agents on an engine that shares nothing with this machine: no file, and no network.

It is reached by TCP with TLS, and its daemon does not see the folders that bundles are in.
"""

from __future__ import annotations

import contextlib
import gc
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_intercode.core.task import ImageSource
from pytest_intercode.core.usage import Budget
from pytest_intercode.errors import AgentLoadError
from pytest_intercode.sandboxes.docker.engine import DockerEngine
from pytest_intercode.sandboxes.docker.hosts import check_hosts
from pytest_intercode.sandboxes.docker.images import DockerImages
from pytest_intercode.sandboxes.docker.volumes import CONTENT_LABEL
from pytest_intercode.sandboxes.settings import parse_docker_host
from pytest_intercode.system.files import bundled_folder
from tests.integration.agents.test_installed import RECIPE
from tests.support.installed import KEY, SUPPORT, World
from tests.support.model_server import Command
from tests.support.second_engine import SecondEngine

pytest.importorskip("aiohttp")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    # The SDK leaves its socket open when an engine is gone.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def elsewhere(docker_engine: DockerEngine) -> Iterator[SecondEngine]:
    """An engine as in a virtual machine, which has the image of the tasks."""
    if SecondEngine.obstacle():
        pytest.skip(SecondEngine.obstacle())
    image = DockerImages(docker_engine.api).resolve(
        ImageSource(bundled_folder("dockerfiles") / "bash.Dockerfile")
    )
    folder = Path(tempfile.mkdtemp(prefix="ice", dir="/tmp"))
    engine = SecondEngine(folder, tcp=True, size="3g", machine=True)
    try:
        engine.load(image)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_TLS_VERIFY", "1")
            patch.setenv("DOCKER_CERT_PATH", str(engine.certificates))
            patch.setenv("DOCKER_HOST", engine.tcp)
            yield engine
        assert engine.containers() == []
    finally:
        engine.close()
        gc.collect()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a recipe and its program."""
    (tmp_path / "program").mkdir()
    shutil.copy(SUPPORT / "installed_program.py", tmp_path / "program")
    (tmp_path / "mine.yaml").write_text(RECIPE)
    return tmp_path


def volumes(engine: SecondEngine) -> set[str]:
    with engine._client() as api:
        rows = api.volumes(filters={"label": CONTENT_LABEL})["Volumes"] or []
        return {row["Name"] for row in rows}


@pytest.fixture(scope="module", params=["codex", "claude"])
def world(
    request: pytest.FixtureRequest,
    elsewhere: SecondEngine,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    name = str(request.param)
    try:
        new_world = World("docker", name, {"model": "gpt-5"}, tmp_path_factory.mktemp(name))
    except AgentLoadError as error:
        pytest.skip(f"its packages cannot be had here: {error}")
    yield new_world
    new_world.close()


def test_a_real_agent_solves_a_task(world: World, elsewhere: SecondEngine) -> None:
    request_count = len(world.server.requests)
    record = world.play(Command("echo hi >x"), Command("cat x; ls /opt/intercode"), "done")
    assert (record.outcome, record.reason) == ("solved", "")
    assert [turn.action for turn in record.turns][:1] == ["echo hi >x"]
    assert "hi" in record.turns[1].observation
    assert record.usage.requests == len(world.server.requests) - request_count
    assert record.left_behind == ()
    assert KEY not in repr(record)
    with elsewhere._client() as api:
        rows = api.containers(all=True)
        types = {mount["Type"] for row in rows for mount in row["Mounts"]}
    assert types <= {"volume"}


def test_a_budget_stops_a_real_agent(world: World) -> None:
    request_count = len(world.server.requests)
    steps = [Command(f"echo {number}") for number in range(40)]
    record = world.play(*steps, "done", budget=Budget(tokens=300), timeout=60)
    assert record.outcome == "out-of-budget", record.reason
    assert len(world.server.requests) - request_count == 3  # of 107 tokens each


def test_real_agents_at_a_time(world: World) -> None:
    with ThreadPoolExecutor(3) as threads:
        runs = [threads.submit(world.play, Command("echo hi >x"), "done") for _ in range(3)]
    assert [run.result().outcome for run in runs] == ["solved"] * 3


def test_a_folder_is_copied_once_for_each_content(elsewhere: SecondEngine, folder: Path) -> None:
    def play() -> set[str]:
        previous = volumes(elsewhere)
        with contextlib.closing(
            World("docker", "installed:mine.yaml", {"model": "m"}, folder)
        ) as world:
            record = world.play(Command("echo hi >x"), "done")
        assert record.outcome == "solved", record.reason
        return volumes(elsewhere) - previous

    # The program, and the folder of the gateway unless another agent has brought it already.
    assert len(play()) in (2, 4)
    assert play() == set()
    with (folder / "program" / "installed_program.py").open("a") as file:
        file.write("# changed\n")
    assert len(play()) == 2
    # A volume that a killed run has half filled is not whole, and not used.
    whole = next(name for name in volumes(elsewhere) if name.endswith("-whole"))
    with elsewhere._client() as api:
        for name in volumes(elsewhere):
            if name.endswith("-whole"):
                api.remove_volume(name)
    assert whole not in volumes(elsewhere)
    assert len(play()) == 4


def test_several_hosts(
    elsewhere: SecondEngine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOCKER_HOST")
    hosts = ["default=1", f"{elsewhere.tcp}=4"]
    check_hosts([parse_docker_host(host) for host in hosts], None, "--intercode-docker-host")
    with contextlib.closing(
        World("docker", "installed:mine.yaml", {"model": "m"}, folder, hosts)
    ) as world:
        world.play(Command("true"), "done")
        time.sleep(2)  # by when the other host has the image
        with ThreadPoolExecutor(6) as threads:
            runs = [
                threads.submit(world.play, Command("sleep 1; echo hi >x"), "done") for _ in range(6)
            ]
        records = [run.result() for run in runs]
    assert [(record.outcome, record.reason) for record in records] == [("solved", "")] * 6
    assert {record.host for record in records} == {"default", elsewhere.tcp}
