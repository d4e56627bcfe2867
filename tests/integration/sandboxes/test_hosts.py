"""Several Docker engines at a time: this machine's, others by a socket, TLS and SSH, and Podman's.

The other engines run on this machine, with data, networks and sockets of their own.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from pytest_intercode.cli import main
from pytest_intercode.core.machine import Services
from pytest_intercode.core.task import Database, ImageSource, Limits
from pytest_intercode.databases.mysql.engine import MySqlEngine, image_source
from pytest_intercode.environments.swe.strict import SweEnvironment
from pytest_intercode.errors import ConfigurationError, SandboxError
from pytest_intercode.sandboxes.backend import BackendEvents
from pytest_intercode.sandboxes.docker import hosts
from pytest_intercode.sandboxes.docker.address import find_address
from pytest_intercode.sandboxes.docker.backend import DockerBackend, DockerHostsBackend
from pytest_intercode.sandboxes.docker.hosts import DockerHosts, check_hosts
from pytest_intercode.sandboxes.docker.images import copy_image, layers_of
from pytest_intercode.sandboxes.docker.link import Link
from pytest_intercode.sandboxes.docker.volumes import CONTENT_LABEL
from pytest_intercode.sandboxes.protocol import Sandbox, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings, parse_docker_host
from tests.conftest import PIDS, pids_of, results
from tests.support import servers
from tests.support.backends import SOURCE
from tests.support.image_registry import ImageRegistry
from tests.support.second_engine import SecondEngine
from tests.support.ssh_server import SshServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("needs_docker"),
    # The SDK leaves its socket open when an engine is gone.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SOON = 60.0
OPTION = "--intercode-docker-host"

SUITE = """\
env: bash
tasks:
""" + "".join(
    f"  - {{id: task-{number:02d}, query: Say {number}., gold: echo {number}}}\n"
    for number in range(24)
)
AGENT = """\
import re, time


class Agent:
    def reset(self, task):
        self.left = ["sleep 0.5", f"echo {re.search('[0-9]+', task.query)[0]}", "submit"]

    def act(self, observation):
        time.sleep(0.5)
        return self.left.pop(0)
"""


def await_true(condition: Callable[[], object], timeout: float = SOON) -> None:
    limit = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < limit, "not in time"
        time.sleep(0.05)


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """Make a folder with a path that is short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="ich", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Have what the SDK left open collected while that is no error."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def engine() -> Iterator[SecondEngine]:
    """A second engine, which also listens on TCP."""
    if SecondEngine.obstacle():
        pytest.skip(SecondEngine.obstacle())
    with short_folder() as folder:
        made = SecondEngine(folder, tcp=True, size="2g")
        yield made
        made.close()


@pytest.fixture
def second(engine: SecondEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[SecondEngine]:
    """The second engine in good order."""
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(engine.certificates))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    engine.start()
    yield engine
    assert engine.containers() == []


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def provide(lines: list[str]) -> Iterator[Callable[..., SandboxProvider]]:
    """Return a function that makes providers of some hosts; they are closed in the end."""
    with contextlib.ExitStack() as stack:

        def make(*hosts: str) -> SandboxProvider:
            made = SandboxProvider(SandboxSettings(docker_hosts=hosts), progress=lines.append)
            stack.callback(made.close)
            stack.callback(close_sandboxes, made)
            return made

        yield make


def close_sandboxes(provider: SandboxProvider) -> None:
    if isinstance(getattr(provider.backend, "engine", None), DockerHosts):
        for host in hosts_of(provider).hosts:
            for box in list(host._containers):
                box.close()


def spec_on_all(provider: SandboxProvider) -> SandboxSpec:
    """Return the spec of a sandbox whose image all hosts have."""
    image = provider.image(SOURCE)
    await_true(lambda: all(image in host.ready_images for host in hosts_of(provider).hosts))
    return SandboxSpec(image)


def hosts_of(provider: SandboxProvider) -> DockerHosts:
    engine = getattr(provider.backend, "engine", None)
    assert isinstance(engine, DockerHosts)
    return engine


def where(sandbox: Sandbox) -> str:
    return sandbox.host


def test_sandboxes_are_spread_by_slots(
    second: SecondEngine, provide: Callable[..., SandboxProvider], lines: list[str]
) -> None:
    provider = provide("default=4", f"{second.url}=8")
    spec = spec_on_all(provider)
    found = [where(provider.acquire(spec)) for _ in range(12)]
    assert found.count("default") == 4
    assert found.count(second.url) == 8
    layers = []
    for name in ("default", second.url):
        with contextlib.closing(Link(find_address(name))) as link:
            layers.append(layers_of(link.api, spec.image))
    assert layers[0] == layers[1] != ()
    assert not [line for line in lines if "does not" in line]


@pytest.mark.parametrize("way", ["tls", "ssh"])
def test_a_sandbox_of_another_machine(
    way: str,
    second: SecondEngine,
    provide: Callable[..., SandboxProvider],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    with contextlib.ExitStack() as stack:
        host = second.tcp
        if way == "ssh":
            if SshServer.obstacle():
                pytest.skip(SshServer.obstacle())
            server = SshServer(tmp_path)
            stack.callback(server.close)
            monkeypatch.setenv("PATH", f"{server.programs}:{os.environ['PATH']}")
            host = server.url + second.url.removeprefix("unix://")
        provider = provide("default=1", f"{host}=100")
        spec = spec_on_all(provider)
        sandbox = provider.acquire(spec)
        assert where(sandbox) == host
        flood = sandbox.run("head -c 3000000 /dev/zero | tr '\\0' x", 20)
        assert (flood.size, flood.status) == (3_000_000, 0)
        long = "y" * 2_000_000
        assert sandbox.run(f"wc -c <<'E'\n{long}\nE", 20).output == b"2000001\n"
        sandbox.mark()
        sandbox.run("echo x >/root/file", 5)
        assert list(sandbox.changes().entries) == ["/root/file"]
        # What a sandbox reads of this machine is copied there.
        kit = tmp_path / "kit"
        kit.mkdir()
        (kit / "tool").write_text("a tool")
        reader = provider.acquire(
            SandboxSpec(spec.image, readonly=((str(kit), "/opt/kit"),), workdir="/opt/kit")
        )
        said = reader.run("cat tool; touch other", 5).output
        assert said.startswith(b"a tool"), said
        assert b"Read-only file system" in said
        if way == "ssh":
            engine = hosts_of(provider).hosts[1].engine
            assert engine is not None
            tunnel = engine.link._tunnel
            assert tunnel is not None
            assert tunnel._process is not None
            pid = tunnel._process.pid
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            for child in children:
                os.kill(int(child), signal.SIGKILL)
            with pytest.raises(SandboxError, match=r"the Docker host ssh.* was lost"):
                sandbox.run("echo again", 5)
            await_true(lambda: where(provider.acquire(spec)) == host)
        provider.close()
        with second._client() as api:  # what others of the same content would use stays
            labels = [row["Labels"] or {} for row in api.volumes()["Volumes"] or ()]
        assert all(CONTENT_LABEL in row for row in labels)


def test_mysql_on_another_machine(
    second: SecondEngine, provide: Callable[..., SandboxProvider], tmp_path: Path
) -> None:
    pytest.importorskip("pymysql")
    script = tmp_path / "shop.sql"
    script.write_text(
        "CREATE DATABASE shop; USE shop; CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2);"
    )
    provider = provide("default", second.tcp)
    image = provider.image(image_source((script,)))
    await_true(lambda: all(image in host.ready_images for host in hosts_of(provider).hosts))
    databases = MySqlEngine(provider)
    database = Database(engine="mysql", scripts=(script,), name="shop")
    with contextlib.ExitStack() as stack:
        stack.callback(databases.close)
        sessions = [databases.session(database, writes=False, limits=Limits()) for _ in range(4)]
        for session in sessions:
            stack.callback(session.close)
            answer = session.execute("SELECT a FROM t", 10, max_rows=9, max_bytes=9999)
            assert answer.result is not None
            assert answer.result.rows == ((1,), (2,))
            text = "SELECT REPEAT('x', 2000000)"
            large = session.execute(text, 20, max_rows=1, max_bytes=4_000_000)
            assert large.result is not None
            assert large.result.rows == (("x" * 2_000_000,),)
            assert session.execute("SELECT SLEEP(9)", 0.5, max_rows=1, max_bytes=99).ended == (
                "timeout"
            )
        servers = [server for found in databases._reading.values() for server in found]
        assert {where(server._sandbox) for server in servers} == {"default", second.tcp}
        assert [server.sessions for server in servers] == [2, 2]


def test_a_host_that_is_lost_and_comes_back(
    second: SecondEngine, provide: Callable[..., SandboxProvider], lines: list[str]
) -> None:
    provider = provide("default=1", f"{second.url}=8")
    spec = spec_on_all(provider)
    provider.expect([spec] * 4)
    time.sleep(2)  # for idle ones
    sandbox = provider.acquire(spec)
    assert where(sandbox) == second.url
    sandbox.run("true", 5)
    second.end(signal.SIGKILL)
    # At once, and without an action: the engine's stream of events ends with it.
    await_true(lambda: lines and "no longer answers" in lines[-1], 5)
    assert "1 of 2 hosts remain" in lines[-1]
    with pytest.raises(SandboxError, match=r"the Docker host .* was lost"):
        sandbox.run("echo again", 5)
    boxes = [provider.acquire(spec) for _ in range(6)]
    assert {where(box) for box in boxes} == {"default"}
    assert all(box.run("echo 1", 5).output == b"1\n" for box in boxes)
    second.start()
    await_true(lambda: lines[-1].endswith("answers again"), 20)
    await_true(lambda: where(provider.acquire(spec)) == second.url)


def test_a_cable_that_is_cut(
    second: SecondEngine, provide: Callable[..., SandboxProvider], lines: list[str]
) -> None:
    provider = provide("default=1", f"{second.tcp}=8")
    spec = spec_on_all(provider)
    sandbox = provider.acquire(spec)
    assert where(sandbox) == second.tcp
    second.cut()
    try:
        with pytest.raises(SandboxError, match="was lost"):
            sandbox.run("echo again", 1)
        assert where(provider.acquire(spec)) == "default"
    finally:
        second.cut(mended=True)
    await_true(lambda: lines[-1].endswith("answers again"), 20)


def test_a_host_that_is_lost_while_it_gives_an_image_is_passed_over(
    second: SecondEngine,
    provide: Callable[..., SandboxProvider],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def copy(*arguments: Any) -> None:
        second.end(signal.SIGKILL)
        copy_image(*arguments)

    monkeypatch.setattr(hosts, "copy_image", copy)
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text(f"FROM {servers.IMAGE}\nRUN echo {os.getpid()} >/made\n")
    second.load(servers.IMAGE)
    provider = provide(second.url, "default")
    image = provider.image(ImageSource(dockerfile=dockerfile))
    sandbox = provider.acquire(SandboxSpec(image))
    assert where(sandbox) == "default"
    assert sandbox.run("cat /made", 5).output == f"{os.getpid()}\n".encode()


def test_a_host_whose_disk_is_full_is_left_out(
    second: SecondEngine, provide: Callable[..., SandboxProvider], lines: list[str]
) -> None:
    provider = provide("default=1", f"{second.url}=100")
    spec = spec_on_all(provider)
    second.fill()
    try:
        boxes = [provider.acquire(spec) for _ in range(5)]
        assert {where(box) for box in boxes} == {"default"}
    finally:
        (second.data / "filler").unlink()
    [line] = [line for line in lines if "is not used for" in line]
    assert f"{second.url}: 3 starts failed here, but not on other hosts" in line
    assert "no space left" in line


def test_one_host_has_the_services_of_tasks(
    second: SecondEngine, provide: Callable[..., SandboxProvider]
) -> None:
    second.load(servers.IMAGE)
    provider = provide(second.tcp)
    image = provider.image(ImageSource(image=servers.IMAGE))
    services = Services((servers.server(),), ("main",))
    agents = provider.acquire(SandboxSpec(image, services=services))
    verifier = provider.acquire(SandboxSpec(image, joins=True, services=services))
    verifier.join(agents)
    agents.run(servers.ask("put colour blue"), 10)
    assert verifier.run(servers.ask("get colour"), 10).output == b"blue\n"


def test_tests_reach_the_services_of_each_try_on_its_own_host(
    second: SecondEngine, provide: Callable[..., SandboxProvider], tmp_path: Path
) -> None:
    second.load(servers.IMAGE)
    check = f'[ "$(bash -c "{servers.ask("get colour")}")" = "blue 2" ] && reward=1 || reward=0\n'
    save = "echo $reward >/logs/verifier/reward.txt\n"
    task = servers.write_task(tmp_path, {"tests/test.sh": "#!/bin/bash\n" + check + save})
    provider = provide("default=2", f"{second.tcp}=2")
    tries = [SweEnvironment(provider) for _ in range(4)]
    rewards: dict[str, list[float]] = defaultdict(list)
    try:
        for environment in tries:
            environment.reset(task=task)
        # Neither a try nor a verifier is where the others' services are.
        for number, environment in enumerate(tries):
            environment.step(servers.ask(f"put colour blue {number}"))
        for environment in tries:
            environment.step("submit")
            assert environment.final is not None
            rewards[environment.host].append(environment.final.value)
    finally:
        for environment in tries:
            environment.close()
    assert sorted(rewards) == sorted(["default", second.tcp])
    assert [len(of_host) for of_host in rewards.values()] == [2, 2]
    assert sorted(reward for of_host in rewards.values() for reward in of_host) == [0, 0, 0, 1]


def test_podman_as_a_host(
    provide: Callable[..., SandboxProvider], monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() or not shutil.which("podman") or not shutil.which("runc"):
        pytest.skip("needs root, podman and runc")
    with short_folder() as folder:
        url = f"unix://{folder}/podman.sock"
        own = ["podman", "--root", f"{folder}/root", "--runroot", f"{folder}/run"]
        # crun refuses machines with both versions of control groups.
        service = [*own, "--runtime=runc", "--cgroup-manager=cgroupfs", "system", "service"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([*service, "--time=0", url], stdout=log, stderr=log)
        try:
            await_true((folder / "podman.sock").exists)
            with pytest.raises(ConfigurationError, match="this is the same engine as"):
                check_hosts([parse_docker_host(url), parse_docker_host(f"{url}=2")], None, OPTION)
            provider = provide("default=1", f"{url}=100")
            check_hosts([parse_docker_host("default"), parse_docker_host(url)], None, OPTION)
            with monkeypatch.context() as patch:
                patch.setenv("DOCKER_HOST", url)
                assert not DockerBackend(SandboxSettings("docker")).has_services
            for names, has_services in ((url,), False), ((url, "default"), True):
                settings = SandboxSettings(docker_hosts=names)
                assert DockerHostsBackend(settings).has_services == has_services
            sandbox = provider.acquire(spec_on_all(provider))
            assert where(sandbox) == url
            # It closes no network, so what has services is on the other one.
            services = Services((servers.server(),), ("main",))
            agents = provider.acquire(SandboxSpec(provider.image(SOURCE), services=services))
            assert where(agents) == "default"
            agents.close()
            sandbox.mark()
            assert sandbox.run("echo x | tee /root/file", 10).output == b"x\n"
            assert list(sandbox.changes().entries) == ["/root/file"]
            provider.close()
            left = subprocess.run([*own, "ps", "-aq"], capture_output=True, check=True)
            assert left.stdout == b""
        finally:
            process.terminate()
            process.wait()
            subprocess.run([*own, "system", "reset", "-f"], check=False, capture_output=True)
            for line in Path("/proc/self/mountinfo").read_text().splitlines():
                if str(folder) in line:
                    subprocess.run(["umount", "-l", line.split()[4]], check=False)


# -- a registry


@pytest.fixture
def registries(second: SecondEngine) -> Iterator[list[ImageRegistry]]:
    """One registry, in the network of each engine by the same address."""
    with short_folder() as folder, contextlib.ExitStack() as stack:
        first = ImageRegistry(folder)
        stack.callback(first.stop)
        other = ImageRegistry(folder, port=first.port, network=second.pid())
        stack.callback(other.stop)
        yield [first, other]


def test_a_registry_carries_images_from_host_to_host(
    second: SecondEngine,
    registries: list[ImageRegistry],
    docker_api: docker.APIClient,
    tmp_path: Path,
) -> None:
    where = registries[0].where
    hosts = [parse_docker_host("default"), parse_docker_host(second.url)]
    check_hosts(hosts, None, OPTION, where)
    lines: list[str] = []
    settings = SandboxSettings(docker_hosts=hosts, registry=where)
    made = DockerHosts(settings, BackendEvents(lines.append, lines.append))
    try:
        sources = []
        for name in ("one", "two"):
            (tmp_path / f"{name}.Dockerfile").write_text(
                f"FROM scratch\nCOPY . /{os.urandom(8).hex()}\n"
            )
            sources.append(ImageSource(dockerfile=tmp_path / f"{name}.Dockerfile"))
        names = [made.resolve(sources[0])]
        await_true(lambda: all(names[0] in host.ready_images for host in made.hosts))
        said = "\n".join(lines)
        assert (said.count("building "), said.count("pushing "), said.count("pulling ")) == (
            1,
            1,
            1,
        )
        assert "copying" not in said
        assert made.pinned(names[0]).startswith(f"{where}/pytest-intercode@sha256:")
        with second._client() as theirs:
            assert layers_of(theirs, names[0]) == layers_of(docker_api, names[0]) != ()
        registries[1].stop()
        names.append(made.resolve(sources[1]))
        await_true(lambda: all(names[1] in host.ready_images for host in made.hosts))
        [line] = [line for line in lines if "cannot be pulled" in line]
        assert line.startswith(f"{second.url}: {where}/pytest-intercode@sha256:")
        assert f"copying {names[1]} from default to {second.url} (first use)" in lines
        with pytest.raises(ConfigurationError) as caught:
            check_hosts(hosts, None, OPTION, where)
        assert str(caught.value).startswith(
            f"{OPTION}={second.url}: the registry {where} does not answer: "
        )
    finally:
        made.close()
        for row in docker_api.images(filters={"label": "pytest-intercode.image"}):
            if any(tag in names for tag in row["RepoTags"] or ()):
                docker_api.remove_image(row["Id"], force=True)


# -- whole runs


def project(pytester: pytest.Pytester, hosts: list[str], *more: str) -> list[str]:
    """Write a project; return the command that runs it."""
    (pytester.path / "suite.yaml").write_text(SUITE)
    (pytester.path / "agent.py").write_text(AGENT)
    (pytester.path / "conftest.py").write_text(PIDS)
    options = [f"{OPTION}={host}" for host in hosts]
    command = [sys.executable, "-m", "pytest", "suite.yaml", "--intercode-agent=agent.py:Agent"]
    return [*command, "--intercode-results=all.jsonl", *options, *more]


def test_an_engine_is_killed_in_the_middle_of_a_run(
    second: SecondEngine, pytester: pytest.Pytester
) -> None:
    command = project(pytester, ["default", second.url], "--intercode-concurrency=6")
    run = subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.PIPE, text=True)
    written = pytester.path / "all.jsonl"
    await_true(lambda: written.exists() and len(written.read_text().splitlines()) >= 6)
    second.end(signal.SIGKILL)
    said, _ = run.communicate(timeout=SOON)
    assert run.returncode == 0, said
    assert f"Docker host {second.url} no longer answers" in said
    rows = results(written)
    assert sorted(row["task"]["id"] if "task" in row else row["task_id"] for row in rows) == [
        f"task-{number:02d}" for number in range(24)
    ]
    assert {row["outcome"] for row in rows} == {"solved"}
    again = [row for row in rows if row.get("attempts")]
    assert all("was lost" in attempt for row in again for attempt in row["attempts"])


def test_a_run_that_is_killed_leaves_nothing_on_any_host(
    second: SecondEngine, pytester: pytest.Pytester, docker_api: docker.APIClient
) -> None:
    command = project(pytester, ["default", second.tcp], "--intercode-concurrency=6")
    run = subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.DEVNULL)
    written = pytester.path / "all.jsonl"
    await_true(lambda: written.exists() and len(written.read_text().splitlines()) >= 3)
    with second._client() as theirs:
        owned = {api: sandboxes_of(api, pids_of(pytester.path)) for api in (docker_api, theirs)}
        assert all(owned.values())
        run.kill()
        run.wait()
        for api in owned:
            await_true(lambda api=api: not sandboxes_of(api, pids_of(pytester.path)), 15)  # type: ignore[misc]


def sandboxes_of(api: docker.APIClient, pids: set[int]) -> list[str]:
    rows = api.containers(all=True, filters={"label": "pytest-intercode.owner"})
    found = {row["Id"]: int(row["Labels"]["pytest-intercode.owner"].split(" ")[2]) for row in rows}
    return [row for row, pid in found.items() if pid in pids]


def test_mistakes_are_one_line(second: SecondEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(*hosts: str) -> str:
        with pytest.raises(ConfigurationError) as caught:
            check_hosts([parse_docker_host(host) for host in hosts], None, OPTION)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    check_hosts([parse_docker_host("default"), parse_docker_host(second.tcp)], None, OPTION)
    assert said(second.tcp, second.url) == (
        f"{OPTION}={second.url}: this is the same engine as {second.tcp}; name each host once"
    )
    assert said("default", f"unix://{second.data}/none") == (
        f"{OPTION}=unix://{second.data}/none: no Docker engine answers there: No such file or "
        "directory"
    )
    second.send(signal.SIGSTOP)
    try:
        assert said("default", second.url) == (
            f"{OPTION}={second.url}: no answer within 10 seconds"
        )
    finally:
        second.send(signal.SIGCONT)
    monkeypatch.delenv("DOCKER_TLS_VERIFY")
    monkeypatch.delenv("DOCKER_CERT_PATH")
    assert said(second.tcp).startswith(f"{OPTION}={second.tcp}: TLS: the engine requires it; set ")


def test_the_commands_of_the_page(second: SecondEngine, pytester: pytest.Pytester) -> None:
    page = Path(__file__).parents[3] / "docs" / "hosts.md"
    found = re.findall(r"^    (pytest\S* (?:.*\\\n)*.*)$", page.read_text(), re.MULTILINE)
    commands = [each for each in found if "--intercode-registry" not in each]
    assert len(commands) == 3
    (pytester.path / "my_agent.py").write_text(
        "class Agent:\n    def act(self, observation):\n        return 'submit'\n"
    )
    for command in commands:
        words = shlex.split(
            command.replace("\\\n", " ").replace("ssh://ada@big-machine", second.url)
        )
        if words[0] == "pytest-intercode":
            assert main([*words[1:], "--limit=4"]) == 0
            continue
        done = subprocess.run(
            [sys.executable, "-m", *words, "--intercode-limit=4", "--intercode-results=all.jsonl"],
            cwd=pytester.path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1, done.stdout + done.stderr  # the agent solves nothing
        assert f"sandbox docker on default, {second.url}" in done.stdout
        for row in results(pytester.path / "all.jsonl"):
            assert row["host"] in ("default", second.url)
