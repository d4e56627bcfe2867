"""Services next to a sandbox: reached by their names, and by nobody else; gone with it."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import tarfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.machine import Archive, FileSpec, HealthCheck, Limits, Service, Services
from pytest_intercode.errors import ConfigurationError, SandboxError, TaskError, UngradableState
from pytest_intercode.sandboxes.docker import services as module
from pytest_intercode.sandboxes.docker.container import Container
from pytest_intercode.sandboxes.docker.engine import RUN_LABEL, DockerEngine
from pytest_intercode.sandboxes.docker.networks import SharedParts
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.system.archives import unpack_files
from tests.support.servers import IMAGE, ask, server

SOON = 15.0
GONE = 20.0  # seconds in which all that a dead client had is gone

Launch = Callable[..., Container]


@pytest.fixture
def launch(docker_engine: DockerEngine) -> Iterator[Launch]:
    with ExitStack() as stack:

        def start(*machines: Service, **fields: object) -> Container:
            services = Services(machines, ("main",))
            spec = replace(SandboxSpec(IMAGE, services=services), **fields)  # type: ignore[arg-type]
            container = docker_engine.launch(spec)
            stack.callback(container.close)
            return container

        yield start


def said(container: Container, action: str) -> str:
    execution = container.run(action, SOON)
    assert execution.status == 0, execution.output
    return execution.output.decode()


def remains(engine: DockerEngine, label: str) -> list[str]:
    """Return what an engine has with a label, but for what is being removed."""
    filters = {"label": label}
    names = [row["Id"] for row in engine.api.containers(all=True, filters=filters)]
    names += [row["Name"] for row in engine.api.networks(filters=filters)]
    return names + [row["Name"] for row in engine.api.volumes(filters=filters)["Volumes"] or ()]


def test_services_are_reached_by_their_names(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("1\n")
    db = server(
        aliases=("database",),
        variables=(("SHAPE", "circle"),),
        files=(("/etc/own", FileSpec("file", b"own\n")),),
        mounts=(Archive(tmp_path, "/usr/share/doc"),),
        tmpfs=("/fast",),
        volumes=(("mount1", "/shared"),),  # is of the task, whatever a mount is kept in
        limits=Limits(memory=128 * 1024**2, pids=50),
    )
    cache = server(
        "cache",
        depends_on=(("db", "healthy"),),
        volumes=(("mount1", "/data"),),
        read_only=("/data",),
    )
    services = Services((db, cache), ("main",), volumes=(("mount1", "/own"),))
    container = launch(services=replace(services, read_only=("/own",)))
    assert "Read-only" in said(container, "touch /own/note 2>&1 || true")
    assert container.command_service("cache", "ls -A /data", "", SOON) == (0, b"")
    said(container, ask("put colour blue"))
    assert said(container, ask("get colour", "database")) == "blue\n"
    assert said(container, ask("get colour", "cache")) == "nothing\n"
    look = (
        "cat /etc/own; ls /usr/share/doc; echo $SHAPE; df /fast | grep -c tmpfs; id -u; ulimit -f"
    )
    _, output = container.command_service("db", look, "nobody", SOON)
    assert output.decode().split() == ["own", "rows", "circle", "1", "65534", "524288"]
    container.command_service("db", "echo from db >/shared/note", "", SOON)
    status, output = container.command_service("cache", "cat /data/note; exit 3", "", SOON)
    assert (status, output) == (3, b"from db\n")
    assert said(container, "cat /own/note") == "from db\n"
    assert container.command_service("cache", "touch /data/note", "", SOON)[0] == 1
    assert container.command_service("db", "sleep 100", "", 0.2)[0] == 124
    _, output = container.command_service("db", "bash -c ': </dev/tcp/main/22' 2>&1", "", SOON)
    assert b"refused" in output  # it is reached, and nothing listens there


@pytest.mark.slow
def test_what_services_hold_is_collected(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    container = launch(server())
    said(container, ask("put a 1"))
    archive = container.archive_service("db", "/var/log/requests")
    assert unpack_files(archive) == {"/var/log/requests": b"put a 1\n"}
    make = "mkdir -p /tmp/x/y; echo a >/tmp/x/y/a; ln -s /etc/passwd /tmp/x/l; mkfifo /tmp/x/p"
    container.command_service("db", f"{make}; kill -9 1; kill 1", "", SOON)
    with tarfile.open(fileobj=io.BytesIO(container.archive_service("db", "/tmp/x"))) as packed:
        names = {member.name: member.linkname for member in packed}
    assert names == {"tmp/x": "", "tmp/x/y": "", "tmp/x/y/a": "", "tmp/x/l": "/etc/passwd"}
    assert container.archive_service("db", "/none") == b""
    with pytest.raises(SandboxError, match="there is no service 'web'"):
        container.archive_service("web", "/")
    monkeypatch.setattr(module, "_MAX_ARCHIVE", 1000)
    with pytest.raises(UngradableState, match="/usr/bin of the service db has more than"):
        container.archive_service("db", "/usr/bin")


def test_machines_without_a_network_in_common_do_not_reach_each_other(launch: Launch) -> None:
    web = server("web", networks=("default", "inner"))
    container = launch(web, server(networks=("inner",)))
    said(container, ask("put a 1", "web"))
    assert container.run(ask("put a 1"), SOON).status != 0
    inner = 'bash -c "' + ask("get a").replace("'", "") + '"'
    assert container.command_service("web", inner, "", SOON) == (0, b"nothing\n")


def test_nothing_else_is_reached(launch: Launch, docker_engine: DockerEngine) -> None:
    """Neither this machine, at any address of the engine's, nor another episode, nor a name."""
    container, neighbour = launch(server()), launch(server())
    address = said(neighbour, "getent hosts db").split()[0]
    listener = socket.create_server(("0.0.0.0", 0))  # the kernel accepts for it
    port = listener.getsockname()[1]
    own_address = said(container, "getent hosts main").split()[0]
    gateway = f"{own_address.rpartition('.')[0]}.{int(own_address.rpartition('.')[2]) & 224 | 1}"
    bridge = docker_engine.api.inspect_network("bridge")["IPAM"]["Config"][0].get("Gateway")
    targets = [f"{address}/7000", f"{gateway}/{port}", f"{bridge or '172.17.0.1'}/{port}"]
    tries = " ".join(
        f"(timeout 4 bash -c ': <>/dev/tcp/{address}' && echo {address}) &" for address in targets
    )
    plain_tries = tries.replace('"', "")
    _, beside = container.command_service("db", f'bash -c "{plain_tries} wait"', "", SOON)
    for output in (container.run(f"{tries} wait", SOON).output, beside):
        assert not any(address in output.decode().split() for address in targets), output
    assert container.run("getent hosts deb.debian.org", SOON).status != 0
    listener.close()


@pytest.mark.slow
def test_a_sandbox_joins_another_ones_services(launch: Launch, docker_engine: DockerEngine) -> None:
    agents = launch(server())
    said(agents, ask("put a 1"))
    verifiers = [launch(server(), joins=True), launch(joins=True)]
    for verifier in verifiers:
        verifier.join(agents)
        assert said(verifier, ask("get a")) == "1\n"
    plain = docker_engine.launch(SandboxSpec(IMAGE))
    with pytest.raises(SandboxError, match="cannot join"):
        plain.join(agents)
    with pytest.raises(SandboxError, match="has no service 'db'"):
        plain.command_service("db", "true", "", SOON)
    plain.close()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"command": ("sh", "-c", "echo no data; exit 7")},
            r"the service db is not ready: .* \(it printed last: no data",
        ),
        (
            {"health": HealthCheck(("sh", "-c", "echo not yet; exit 4"), 0.1)},
            "the service db is not ready: its health check ends with status 4: not yet",
        ),
    ],
)
def test_a_service_that_is_never_ready_is_the_tasks_fault(
    fields: dict[str, Any],
    reason: str,
    launch: Launch,
    docker_engine: DockerEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MIN_HEALTH_TIME", 1.0)
    monkeypatch.setattr(module, "_MAX_HEALTH_TIME", 1.0)
    with pytest.raises(TaskError, match=reason) as caught:
        launch(server(**fields))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"command": ("nothing-here",)}, ".*nothing-here"),
        ({"user": "nobody-here"}, ".*nobody-here"),
        ({"tmpfs": ("/",)}, ".*destination can't be"),
    ],
)
def test_a_service_that_no_engine_can_start_is_the_tasks_fault(
    fields: dict[str, Any], reason: str, launch: Launch
) -> None:
    with pytest.raises(TaskError, match=f"the service db cannot be started: {reason}"):
        launch(server(**fields))


@pytest.mark.slow
def test_services_wait_for_commands_that_end(launch: Launch) -> None:
    volumes = (("shared", "/shared"),)
    first = server("first", command=("sh", "-c", "sleep 1; echo 1 >/shared/n"), health=None)
    db = server(depends_on=(("first", "completed"),), volumes=volumes)
    container = launch(replace(first, volumes=volumes), db)
    assert container.command_service("db", "cat /shared/n", "", SOON) == (0, b"1\n")
    failing = replace(first, command=("sh", "-c", "exit 5"))
    with pytest.raises(TaskError, match="the service first ended with status 5"):
        launch(failing, server(depends_on=(("first", "completed"),)))


def test_a_service_that_prints_much_is_not_held_up(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_COMPLETION_TIMEOUT", SOON)
    monkeypatch.setattr(module, "_LAST_WORDS_TIMEOUT", 0.0)  # all is read of one that has ended
    command = ("sh", "-c", "head -c 3000000 /dev/zero; echo the end; exit 5")
    talker = server("talker", command=command, health=None)
    with pytest.raises(TaskError, match=r"ended with status 5 \(it printed last: .*the end\)"):
        launch(talker, server(depends_on=(("talker", "completed"),)))


@pytest.mark.parametrize("scratch", [(), ("/answer",)], ids=["disk", "scratch"])
def test_all_goes_with_the_sandbox(scratch: tuple[str, ...]) -> None:
    engine = DockerEngine()
    try:
        volumes = (("shared", "/shared"),)
        services = Services((server(volumes=volumes),), ("main",), volumes=volumes)
        container = engine.launch(SandboxSpec(IMAGE, services=services, scratch=scratch))
        verifier = engine.launch(SandboxSpec(IMAGE, joins=True))
        verifier.join(container)
        label = f"{RUN_LABEL}={engine.run}"
        assert len(remains(engine, label)) == 3 + 1 + 1  # two networks: the verifier's is gone
        container.close()
        deadline = time.monotonic() + GONE
        while len(remains(engine, label)) > 1 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert len(remains(engine, label)) == 1  # the verifier
    finally:
        engine.close()
    verifier.close()  # our end of its connection
    next_engine = DockerEngine()
    try:
        assert not remains(next_engine, label)
    finally:
        next_engine.close()


def test_a_container_that_cannot_be_connected_goes(
    docker_engine: DockerEngine, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect_own = SharedParts.connect_own
    container_ids: list[str] = []

    def connect_to_host(parts: SharedParts, container_id: str) -> None:
        container_ids.append(container_id)
        with monkeypatch.context() as context:
            context.setitem(parts._networks, "inner", "host")
            connect_own(parts, container_id)

    monkeypatch.setattr(SharedParts, "connect_own", connect_to_host)
    services = Services((server(health=None),), ("main",), ("default", "inner"))
    with pytest.raises(SandboxError, match=rf"^a container of {IMAGE}: .*user defined network"):
        launch(services=services)
    filters = {"id": container_ids[0]}
    assert not docker_engine.api.containers(all=True, filters=filters)


@pytest.mark.parametrize("reaped", [True, False], ids=["reaper", "next run"])
def test_all_goes_with_a_killed_client(reaped: bool, docker_engine: DockerEngine) -> None:
    script = """
        import sys, threading
        from pytest_intercode.core.machine import Services
        from pytest_intercode.sandboxes.docker.engine import DockerEngine
        from pytest_intercode.sandboxes.protocol import SandboxSpec
        from tests.support.servers import IMAGE, server
        engine = DockerEngine()
        volumes = (("shared", "/shared"),)
        db = server(volumes=volumes, restarts="always")
        services = Services((db,), ("main",), volumes=volumes)
        engine.launch(SandboxSpec(IMAGE, services=services))
        print(engine.run, engine._reaper._process.pid, flush=True)
        threading.Event().wait()
    """
    client = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    )
    assert client.stdout is not None
    with client.stdout as lines:
        run, reaper = lines.readline().split()
    label = f"{RUN_LABEL}={run}"
    assert len(remains(docker_engine, label)) == 4
    if not reaped:
        os.kill(int(reaper), signal.SIGKILL)
    client.kill()
    client.wait()
    if not reaped:
        docker_engine.sweep()
    deadline = time.monotonic() + GONE
    while (remaining_parts := remains(docker_engine, label)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not remaining_parts


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"backend": "bubblewrap"}, "bubblewrap"),
        ({"docker_hosts": ["default", "unix:///none"]}, "docker on default, unix:///none"),
        ({"backend": "docker"}, "docker"),
    ],
)
def test_who_has_no_services_says_so(
    settings: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("docker.APIClient.info", lambda _: {"BuildahVersion": "1.28.2"})  # Podman
    provider = SandboxProvider(SandboxSettings(**settings))
    with pytest.raises(ConfigurationError) as caught:
        provider.order(SandboxSpec(IMAGE, services=Services((server(),))))
    assert str(caught.value) == (
        f"the task has services, and {name} has none: use --intercode-sandbox=docker, "
        "with Docker's own engine (not Podman)"
    )


def test_services_are_not_for_a_limited_network() -> None:
    docker = SandboxProvider(SandboxSettings(docker_hosts=["default"]))
    assert not docker.services_problem(Services((server(),)), Limits())
    limits = Limits(hosts=("example.org",))
    with pytest.raises(ConfigurationError, match="an agent that may reach only some hosts"):
        docker.order(SandboxSpec(IMAGE, limits, services=Services((server(),))))
