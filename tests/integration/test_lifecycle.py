"""Sandboxes end with their client, however it ends, and nothing is left of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from docker.errors import NotFound

from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.docker.engine import OWNER_LABEL, RUN_LABEL, DockerEngine
from pytest_intercode.sandboxes.pool import Pool
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.suites.loader import bundled_folder
from pytest_intercode.suites.task import ImageSource
from tests.integration.conftest import Launch

SOON = 15.0
GONE = 10.0  # seconds in which a dead client's containers must be gone

LAUNCH = """
    import sys, threading
    from pytest_intercode.sandboxes.docker.engine import DockerEngine
    from pytest_intercode.sandboxes.protocol import SandboxSpec
    engine = DockerEngine()
    print(engine._reaper._process.pid, engine.run)
"""
IDLE = "threading.Event().wait()"
CREATE = """
    from pytest_intercode.sandboxes.docker.engine import OWNER_LABEL, RUN_LABEL
    row = engine.api.create_container(sys.argv[1], ["true"], labels=engine._labels)
    print(row["Id"][:12], flush=True)
"""


class Client:
    """A process of its own that holds sandboxes, as a pytest process does."""

    def __init__(self, image: str, script: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, image], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self._lines = self.process.stdout
        reaper, self.run = self.read()
        self.reaper = int(reaper)

    def read(self) -> list[str]:
        """Return the words of the next line that it prints."""
        return self._lines.readline().split()

    def kill(self) -> None:
        """End it as nothing can prepare for."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        self._lines.close()


@pytest.fixture
def client(bash_image: str) -> Iterator[Callable[..., Client]]:
    """Return a factory of clients; they are killed in the end."""
    clients: list[Client] = []

    def start(*parts: str) -> Client:
        made = Client(bash_image, "\n".join(map(textwrap.dedent, (LAUNCH, *parts))))
        clients.append(made)
        return made

    yield start
    for each in clients:
        each.close()


def exists(engine: DockerEngine, name: str) -> bool:
    try:
        state: dict[str, str] = engine.api.inspect_container(name)["State"]
    except NotFound:
        return False
    return state["Status"] != "removing"


def running(engine: DockerEngine, run: str) -> list[str]:
    """Name the containers with a run's label, but those that the engine is removing."""
    rows = engine.api.containers(all=True, filters={"label": f"{RUN_LABEL}={run}"})
    return sorted(row["Id"][:12] for row in rows if row["State"] != "removing")


def await_true(condition: Callable[[], bool], timeout: float = GONE) -> None:
    limit = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < limit, "not in time"
        time.sleep(0.05)


def test_containers_end_with_a_killed_client(
    docker_engine: DockerEngine, client: Callable[..., Client]
) -> None:
    """By themselves: the reaper is killed first."""
    killed = client(
        """
        spec = SandboxSpec(sys.argv[1])
        idle, busy, stubborn = (engine.launch(spec) for _ in range(3))
        idle.run("sleep 1000 & disown; setsid sleep 1000 &", 10)
        for sandbox, action in (
            (busy, "while :; do :; done"),
            (stubborn, "trap '' HUP TERM INT; yes >/dev/null & while :; do sleep 1; done"),
        ):
            thread = threading.Thread(target=sandbox.run, args=(action, 1000), daemon=True)
            thread.start()
        print(idle.name, busy.name, stubborn.name, flush=True)
        """,
        IDLE,
    )
    names = killed.read()
    assert len(names) == 3
    assert running(docker_engine, killed.run) == sorted(names)
    os.kill(killed.reaper, signal.SIGKILL)
    killed.kill()
    await_true(lambda: not any(exists(docker_engine, name) for name in names))


def test_reaper_removes_what_never_started(
    docker_engine: DockerEngine, client: Callable[..., Client]
) -> None:
    killed = client(CREATE, IDLE)
    [name] = killed.read()
    assert exists(docker_engine, name)
    killed.kill()
    await_true(lambda: not exists(docker_engine, name))
    await_true(lambda: not Path(f"/proc/{killed.reaper}").exists())


def test_reaper_goes_with_an_orderly_client(
    docker_engine: DockerEngine, client: Callable[..., Client]
) -> None:
    orderly = client(
        'sandbox = engine.launch(SandboxSpec(sys.argv[1])); sandbox.run("sleep 1000 &", 10)',
        "print(sandbox.name, flush=True); engine.close()",
    )
    [name] = orderly.read()
    assert orderly.process.wait(SOON) == 0
    assert not Path(f"/proc/{orderly.reaper}").exists()
    await_true(lambda: not exists(docker_engine, name))


def test_sweep_tells_the_dead_from_the_living(
    docker_engine: DockerEngine, client: Callable[..., Client]
) -> None:
    dead, living = client(CREATE, IDLE), client(CREATE, IDLE)
    [left], [used] = dead.read(), living.read()
    os.kill(dead.reaper, signal.SIGKILL)
    dead.kill()
    # Another machine's containers, on an engine that several share, are not ours to judge.
    labels = {RUN_LABEL: "elsewhere", OWNER_LABEL: "another-machine pid:[1] 99999999 1"}
    image = docker_engine.api.inspect_container(used)["Image"]
    foreign = docker_engine.api.create_container(image, ["true"], labels=labels)["Id"]
    try:
        mine = docker_engine.launch(SandboxSpec(image))
        assert exists(docker_engine, left)
        assert docker_engine.sweep() >= 1
        assert not exists(docker_engine, left)
        assert exists(docker_engine, used)
        assert exists(docker_engine, foreign)
        assert mine.run("echo alive", SOON).output == b"alive\n"
        mine.close()
    finally:
        docker_engine.api.remove_container(foreign, force=True)
    living.kill()
    await_true(lambda: not exists(docker_engine, used))


def test_closed_sandbox_is_removed(docker_engine: DockerEngine, launch: Launch) -> None:
    sandbox = launch()
    sandbox.run("sleep 1000 &", SOON)
    sandbox.close()
    await_true(lambda: not exists(docker_engine, sandbox.name))
    sandbox.close()
    with pytest.raises(SandboxError, match=sandbox.name):
        sandbox.run("true", SOON)


def test_vanished_container_is_an_error_with_its_name(
    docker_engine: DockerEngine, launch: Launch
) -> None:
    sandbox = launch()
    killer = threading.Timer(0.3, docker_engine.api.kill, args=(sandbox.name,))
    killer.start()
    began = time.monotonic()
    with pytest.raises(SandboxError, match=f"sandbox {sandbox.name} ended while in use"):
        sandbox.run("sleep 1000", 60)
    killer.join()
    assert time.monotonic() - began < 5
    for call in (sandbox.changes, lambda: sandbox.admin("true", SOON), lambda: sandbox.settle(1)):
        with pytest.raises(SandboxError, match=sandbox.name):
            call()
    sandbox.interrupt()


def test_failed_launch_leaves_nothing(bash_image: str) -> None:
    engine = DockerEngine()
    try:
        with pytest.raises(SandboxError, match="no-such-image"):
            engine.launch(SandboxSpec("no-such-image"))
        with pytest.raises(SandboxError, match=r"does not start as a sandbox: .*/dev/null/x"):
            engine.launch(SandboxSpec(bash_image, workdir="/dev/null/x"))
        await_true(lambda: running(engine, engine.run) == [])
    finally:
        engine.close()


def test_pool(bash_image: str) -> None:
    engine = DockerEngine()
    pool = Pool(engine, size=3)
    one = SandboxSpec(bash_image)
    other = SandboxSpec(bash_image, hostname="other")
    try:
        pool.expect([one, other, one, one, one])
        await_true(lambda: len(running(engine, engine.run)) == 3)
        warm = running(engine, engine.run)
        first = pool.acquire(one)
        second = pool.acquire(other)
        assert {first.name, second.name} < set(warm)
        assert second.run("hostname", SOON).output == b"other\n"
        # What is expected next is there already; then something else is.
        pool.expect([one])
        assert running(engine, engine.run) == warm
        pool.expect([other])
        [surplus] = set(warm) - {first.name, second.name}
        await_true(lambda: not exists(engine, surplus))
        third = pool.acquire(other)
        assert third.run("hostname", SOON).output == b"other\n"
        cold = pool.acquire(one)
        assert cold.name not in warm
        assert cold.run("echo alive", SOON).output == b"alive\n"
        pool.expect([one, other])
        pool.close()
        taken = {first.name, second.name, third.name, cold.name}
        await_true(lambda: set(running(engine, engine.run)) == taken)
        pool.expect([one])
        assert set(running(engine, engine.run)) == taken
        for sandbox in (first, second, third, cold):
            sandbox.close()
    finally:
        pool.close()
        engine.close()
    with contextlib.closing(DockerEngine()) as again:
        await_true(lambda: running(again, engine.run) == [])


def test_pool_passes_errors_on(bash_image: str) -> None:
    engine = DockerEngine()
    pool = Pool(engine)
    try:
        pool.expect([SandboxSpec("no-such-image")] * 2)
        with pytest.raises(SandboxError, match="no-such-image"):
            pool.acquire(SandboxSpec("no-such-image"))
        pool.close()
        assert running(engine, engine.run) == []
    finally:
        pool.close()
        engine.close()


def descriptors() -> dict[str, str]:
    """Return this process's open files."""
    found = {}
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            found[path.name] = str(path.readlink())
    return found


def children() -> set[str]:
    """Return the processes that this one started and that still run."""
    lists = Path("/proc/self/task").glob("*/children")
    return {pid for each in lists for pid in each.read_text().split()}


def test_provider_leaves_nothing(docker_engine: DockerEngine, bash_image: str) -> None:
    source = ImageSource(dockerfile=bundled_folder("dockerfiles") / "bash.Dockerfile")
    names: list[str] = []

    def use(episodes: int) -> None:
        provider = SandboxProvider()
        try:
            spec = SandboxSpec(provider.image(source))
            assert spec.image == bash_image
            for _ in range(episodes):
                provider.expect([spec] * 3)
                gold = provider.background(lambda: provider.acquire(spec))
                agent = provider.acquire(spec)
                agent.mark()
                agent.run("sleep 1000 & echo x >/tmp/x", SOON)
                assert "/tmp/x" in agent.changes().entries
                names.extend((agent.name, gold.result(SOON).name))
                agent.close()
                gold.result().close()
        finally:
            provider.close()
        provider.close()

    use(1)  # what is imported or connected once stays
    before = threading.enumerate(), descriptors(), children()
    use(20)
    assert (threading.enumerate(), descriptors(), children()) == before
    assert len(set(names)) == 42
    await_true(lambda: not any(exists(docker_engine, name) for name in names))


def test_provider_closes_what_is_in_use(docker_engine: DockerEngine, bash_image: str) -> None:
    provider = SandboxProvider()
    sandbox = provider.acquire(SandboxSpec(bash_image))
    provider.close()
    await_true(lambda: not exists(docker_engine, sandbox.name))
    with pytest.raises(SandboxError):
        sandbox.run("true", SOON)
    sandbox.close()
