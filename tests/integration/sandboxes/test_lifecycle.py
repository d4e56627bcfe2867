"""Sandboxes end with their client, however it ends, and nothing is left of them."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.docker.engine import OWNER_LABEL, RUN_LABEL, DockerEngine
from pytest_intercode.sandboxes.docker.reaper import remove_container
from pytest_intercode.sandboxes.pool import Pool
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from tests.integration.conftest import Launch
from tests.support.backends import SOURCE, Backend, DockerBackend

SOON = 15.0
GONE = 10.0  # seconds in which a dead client's containers must be gone

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
        [reaper] = self.read()
        self.reaper = int(reaper)  # bubblewrap's starter is one, too

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


def clients(image: str, beginning: str) -> Iterator[Callable[..., Client]]:
    made: list[Client] = []

    def start(*parts: str) -> Client:
        made.append(Client(image, "\n".join(map(textwrap.dedent, (beginning, *parts)))))
        return made[-1]

    yield start
    for each in made:
        each.close()


@pytest.fixture
def client(backend: Backend) -> Iterator[Callable[..., Client]]:
    """Return a factory of clients; they are killed in the end."""
    yield from clients(backend.image, backend.client)


@pytest.fixture
def docker_client(docker_engine: DockerEngine, bash_image: str) -> Iterator[Callable[..., Client]]:
    """Return a factory of clients of Docker's."""
    yield from clients(bash_image, DockerBackend(docker_engine).client)


@pytest.fixture
def docker_backend(docker_engine: DockerEngine) -> DockerBackend:
    """Return Docker, for what no other backend has."""
    return DockerBackend(docker_engine)


def await_true(condition: Callable[[], bool], timeout: float = GONE) -> None:
    limit = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < limit, "not in time"
        time.sleep(0.05)


@pytest.mark.parametrize("first", ["the client", "the reaper"])
def test_sandboxes_end_with_a_killed_client(
    backend: Backend, client: Callable[..., Client], first: str
) -> None:
    """By themselves, too: if the reaper is killed first."""
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
    assert all(map(backend.exists, names))
    if first == "the reaper":
        os.kill(killed.reaper, signal.SIGKILL)
    killed.kill()
    await_true(lambda: not any(map(backend.exists, names)))
    await_true(lambda: not Path(f"/proc/{killed.reaper}").exists())


def test_reaper_removes_what_never_started(
    docker_backend: DockerBackend, docker_client: Callable[..., Client]
) -> None:
    killed = docker_client(CREATE, IDLE)
    [name] = killed.read()
    assert docker_backend.exists(name)
    killed.kill()
    await_true(lambda: not docker_backend.exists(name))
    await_true(lambda: not Path(f"/proc/{killed.reaper}").exists())


@pytest.mark.parametrize("by", [signal.SIGSTOP, signal.SIGKILL])
@pytest.mark.parametrize("left", ["nothing", "a container"])
def test_stopped_or_killed_reaper(
    docker_backend: DockerBackend, monkeypatch: pytest.MonkeyPatch, by: signal.Signals, left: str
) -> None:
    engine = DockerEngine()
    name = engine.api.create_container(docker_backend.image, ["true"], labels=engine._labels)["Id"]
    os.kill(engine._reaper._process.pid, by)
    if left == "a container":  # which cannot be removed yet
        monkeypatch.setattr(DockerEngine, "_remove", lambda *_: False)
    engine.close()
    reaper = engine._reaper._process.pid
    await_true(lambda: not docker_backend.exists(name))
    await_true(lambda: "python" not in _command(reaper))


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_reaper_goes_with_an_orderly_client(
    backend: Backend, client: Callable[..., Client]
) -> None:
    orderly = client(
        'sandbox = engine.launch(SandboxSpec(sys.argv[1])); sandbox.run("sleep 1000 &", 10)',
        "print(sandbox.name, flush=True); engine.close()",
    )
    [name] = orderly.read()
    assert orderly.process.wait(SOON) == 0
    assert not Path(f"/proc/{orderly.reaper}").exists()
    await_true(lambda: not backend.exists(name))


def test_sweep_tells_the_dead_from_the_living(
    docker_backend: DockerBackend, docker_client: Callable[..., Client]
) -> None:
    api, exists = docker_backend.api, docker_backend.exists
    dead, living = docker_client(CREATE, IDLE), docker_client(CREATE, IDLE)
    [left], [used] = dead.read(), living.read()
    os.kill(dead.reaper, signal.SIGKILL)
    dead.kill()
    # Another machine's containers, on an engine that several share, are not ours to judge.
    labels = {RUN_LABEL: "elsewhere", OWNER_LABEL: "another-machine pid:[1] 99999999 1"}
    image = api.inspect_container(used)["Image"]
    foreign = api.create_container(image, ["true"], labels=labels)["Id"]
    try:
        mine = docker_backend.engine.launch(SandboxSpec(image))
        docker_backend.engine.sweep()  # or a run of another test did
        assert not exists(left)
        assert exists(used)
        assert exists(foreign)
        assert mine.run("echo alive", SOON).output == b"alive\n"
        mine.close()
    finally:
        api.remove_container(foreign, force=True)
    living.kill()
    await_true(lambda: not exists(used))


def test_what_the_engine_says_is_gone_is_not_counted(docker_backend: DockerBackend) -> None:
    api = docker_backend.api
    made = api.create_container(docker_backend.image, ["true"])["Id"]
    assert remove_container(api, made)
    assert not remove_container(api, made)


def test_a_tag_that_moves(docker_backend: DockerBackend) -> None:
    """All sandboxes of one run have the image that the name stood for at first."""
    api = docker_backend.api
    repository, tag = "pytest-intercode-test-moving", secrets.token_hex(4)
    api.tag(docker_backend.image, repository, tag)
    spec = SandboxSpec(f"{repository}:{tag}")
    with contextlib.ExitStack() as at_end:
        at_end.callback(api.remove_image, spec.image, force=True)
        engine = at_end.enter_context(contextlib.closing(DockerEngine()))
        first = engine.launch(spec)
        first.run("touch /moved", SOON)
        api.commit(first.name, repository, tag)
        first.close()
        second = engine.launch(spec)
        assert second.run("ls /moved", SOON).status == 2
        second.close()
        later = docker_backend.engine.launch(spec)
        at_end.callback(later.close)
        assert later.run("ls /moved", SOON).status == 0


def test_closed_sandbox_is_removed(backend: Backend, launch: Launch) -> None:
    sandbox = launch()
    sandbox.run("sleep 1000 &", SOON)
    sandbox.close()
    await_true(lambda: not backend.exists(sandbox.name))
    sandbox.close()
    with pytest.raises(SandboxError, match=sandbox.name):
        sandbox.run("true", SOON)


def test_vanished_sandbox_is_an_error_with_its_name(backend: Backend, launch: Launch) -> None:
    sandbox = launch()
    killer = threading.Timer(0.3, backend.kill, args=(sandbox,))
    killer.start()
    began = time.monotonic()
    with pytest.raises(SandboxError, match=f"sandbox {sandbox.name} ended while in use"):
        sandbox.run("sleep 1000", 60)
    killer.join()
    assert time.monotonic() - began < 30
    for call in (sandbox.changes, lambda: sandbox.admin("true", SOON), lambda: sandbox.settle(1)):
        with pytest.raises(SandboxError, match=sandbox.name):
            call()
    sandbox.interrupt()


def test_failed_launch_leaves_nothing(backend: Backend) -> None:
    engine = backend.new_engine()
    try:
        with pytest.raises(SandboxError, match="no-such-image"):
            engine.launch(SandboxSpec(backend.bad_image))
        with pytest.raises(SandboxError, match=r"does not start as a sandbox: .*/dev/null/x"):
            engine.launch(SandboxSpec(backend.image, workdir="/dev/null/x"))
        await_true(lambda: backend.running(engine) == [])
    finally:
        engine.close()


def test_pool(backend: Backend) -> None:
    engine = backend.new_engine()
    pool = Pool(engine, size=3)
    one = SandboxSpec(backend.image)
    other = SandboxSpec(backend.image, hostname="other")
    try:
        pool.expect([one, other, one, one, one])
        await_true(lambda: len(backend.running(engine)) == 3)
        warm = backend.running(engine)
        first = pool.order(one).wait()
        second = pool.order(other).wait()
        assert {first.name, second.name} < set(warm)
        assert second.run("hostname", SOON).output == b"other\n"
        # What is expected next is there already; then something else is.
        pool.expect([one])
        assert backend.running(engine) == warm
        pool.expect([other])
        [surplus] = set(warm) - {first.name, second.name}
        await_true(lambda: not backend.exists(surplus))
        third = pool.order(other).wait()
        assert third.run("hostname", SOON).output == b"other\n"
        cold = pool.order(one).wait()
        assert cold.name not in warm
        assert cold.run("echo alive", SOON).output == b"alive\n"
        pool.expect([one, other])
        pool.close()
        taken = {first.name, second.name, third.name, cold.name}
        await_true(lambda: set(backend.running(engine)) == taken)
        pool.expect([one])
        assert set(backend.running(engine)) == taken
        for sandbox in (first, second, third, cold):
            sandbox.close()
    finally:
        pool.close()
        engine.close()
    await_true(lambda: not any(map(backend.exists, taken)))


def test_pool_passes_errors_on(backend: Backend) -> None:
    engine = backend.new_engine()
    pool = Pool(engine)
    try:
        pool.expect([SandboxSpec(backend.bad_image)] * 2)
        with pytest.raises(SandboxError, match="no-such-image"):
            pool.order(SandboxSpec(backend.bad_image)).wait()
        pool.close()
        assert backend.running(engine) == []
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


def test_provider_leaves_nothing(backend: Backend) -> None:
    names: list[str] = []

    def use(episodes: int) -> None:
        provider = SandboxProvider(SandboxSettings(backend.name))
        try:
            spec = SandboxSpec(provider.image(SOURCE))
            assert spec.image == backend.image
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
    use(3)
    assert (threading.enumerate(), descriptors(), children()) == before
    assert len(set(names)) == 8
    await_true(lambda: not any(backend.exists(name) for name in names))


def test_provider_closes_what_is_in_use(backend: Backend) -> None:
    provider = SandboxProvider(SandboxSettings(backend.name))
    sandbox = provider.acquire(SandboxSpec(backend.image))
    provider.close()
    await_true(lambda: not backend.exists(sandbox.name))
    with pytest.raises(SandboxError):
        sandbox.run("true", SOON)
    sandbox.close()


def test_an_end_waits_for_a_start(docker_engine: DockerEngine, bash_image: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("it needs pipes of our own")
    backend = DockerBackend(docker_engine)
    sandbox = docker_engine.launch(SandboxSpec(bash_image))
    sandbox.run("sleep 1000 & setsid sleep 1000 &", SOON)
    keeper = psutil.Process(sandbox._process)
    with docker_engine._endings.after_start():
        sandbox.close()
        await_true(lambda: not keeper.children(recursive=True))  # nothing of the agent goes on
        with pytest.raises(SandboxError):
            sandbox.run("true", SOON)
        sandbox.close()
        assert keeper.is_running()
    await_true(lambda: not backend.exists(sandbox.name))
