"""Bare containers and bare shells: the time that the engine, and bash, take alone.

A cycle only creates, starts, kills and removes a container: from the same image and with the same
limits as our sandboxes, and like them with networking disabled. That is the faster kind;
``network_mode="none"``, as most would write it, takes about twice as long.

The containers have the label of one of our engines, whose reaper removes them if this process is
killed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from benchmarks.machine import needs
from benchmarks.measuring import seconds
from pytest_intercode.core.task import ImageSource
from pytest_intercode.sandboxes.docker.container import host_config
from pytest_intercode.sandboxes.docker.engine import (
    OWNER_LABEL,
    RUN_LABEL,
    STARTERS,
    DockerEngine,
)
from pytest_intercode.sandboxes.docker.images import DockerImages
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.system.files import bundled_folder

__all__ = ["BareContainers", "bare_containers", "bare_shell"]


class BareContainers:
    """Containers from the bash image."""

    def __init__(self, engine: DockerEngine) -> None:
        self._api = engine.api
        self._labels = {RUN_LABEL: engine.run}
        source = ImageSource(bundled_folder("dockerfiles") / "bash.Dockerfile")
        self._spec = SandboxSpec(DockerImages(engine.api).resolve(source))

    def start(
        self, *, disabled: bool = True, spec: SandboxSpec | None = None, network: str = ""
    ) -> str:
        """Create and start a container that does nothing; return its id.

        Args:
            disabled: whether to disable networking; otherwise the network mode is ``none``.
            spec: image, limits and variables; by default those of a bash sandbox.
            network: the network to join; empty for none.
        """
        spec = spec or self._spec
        config = host_config(self._api, spec)
        config["AutoRemove"] = False
        if network:
            config["NetworkMode"] = network
        created = self._api.create_container(
            spec.image,
            ["sleep", "1000"],
            host_config=config,
            environment=dict(spec.variables),
            network_disabled=disabled and not network,
            labels=self._labels,
        )
        name = str(created["Id"])
        self._api.start(name)
        return name

    def end(self, name: str) -> None:
        """Kill and remove a container."""
        self._api.kill(name)
        self._api.remove_container(name, force=True)

    @contextlib.contextmanager
    def lent(self, spec: SandboxSpec) -> Iterator[str]:
        """Yield a container, and end it afterwards."""
        name = self.start(spec=spec)
        try:
            yield name
        finally:
            self.end(name)

    def cycles(self, count: int, *, threads: int = 1, disabled: bool = True) -> float:
        """Return how many seconds a number of cycles take."""

        def cycle(_: int) -> None:
            self.end(self.start(disabled=disabled))

        def all_of_them() -> None:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(cycle, range(count)))

        return seconds(all_of_them)

    def networked_cycle(self, count: int) -> float:
        """Return the seconds of containers in their own network, until all are removed."""

        def cycle() -> None:
            network = self._api.create_network(
                f"bare-{secrets.token_hex(6)}", internal=True, labels=self._labels
            )["Id"]
            names = [self.start(network=network) for _ in range(count)]
            for name in names:
                self.end(name)
            self._api.remove_network(network)

        return seconds(cycle)

    def run(self, name: str, command: list[str], folder: str = "/") -> tuple[int, bytes]:
        """Run a command in a container, as the SDK's ``Container.exec_run`` does.

        Returns:
            The exit status and the output.
        """
        execution = self._api.exec_create(name, command, workdir=folder)
        output = self._api.exec_start(execution["Id"])
        return int(self._api.exec_inspect(execution["Id"])["ExitCode"]), output

    def schedule(self, episodes: int, *, concurrency: int, thinking: float) -> float:
        """Return the seconds of episodes that have two containers each, and only think.

        An episode waits for the first container before it thinks, and for the second one after
        that. As many containers start at a time as in a run of ours. Their ends count only as far
        as they delay starts.

        Args:
            episodes: how many episodes.
            concurrency: how many episodes at a time.
            thinking: seconds that each episode thinks.
        """
        with (
            ThreadPoolExecutor(STARTERS) as starters,
            ThreadPoolExecutor(concurrency) as threads,
            ThreadPoolExecutor(concurrency) as enders,
        ):

            def episode(_: int) -> None:
                first = starters.submit(self.start).result()
                second = starters.submit(self.start)
                time.sleep(thinking)
                for name in (first, second.result()):
                    enders.submit(self.end, name)

            return seconds(lambda: list(threads.map(episode, range(episodes))))

    def exec_run(self, name: str, command: list[str]) -> None:
        """Run a command that succeeds."""
        status, _ = self.run(name, command)
        assert status == 0, status

    def timed(self, name: str, script: str, variables: Mapping[str, str]) -> float:
        """Return the seconds that a script takes in a container, by the container's clock.

        Its output goes into a pipe, as in a sandbox.
        """
        whole = (
            f"began=$(date +%s%N)\n({script}\n) 2>&1 | cat >/dev/null\n"
            "echo $(($(date +%s%N) - began))"
        )
        execution = self._api.exec_create(name, ["bash", "-c", whole], environment=dict(variables))
        return int(self._api.exec_start(execution["Id"])) / 1e9

    def put(self, name: str, archive: bytes) -> None:
        """Unpack an archive at a container's root."""
        self._api.put_archive(name, "/", archive)

    def sandboxes(self) -> int:
        """Return how many sandboxes this process has, including those being removed."""
        rows = self._api.containers(all=True, filters={"label": OWNER_LABEL})
        owners = [row["Labels"][OWNER_LABEL].split(" ") for row in rows]
        return sum(owner[2:3] == [str(os.getpid())] for owner in owners)


@contextlib.contextmanager
def bare_containers() -> Iterator[BareContainers]:
    """Yield bare containers; those that remain are removed at the end.

    Raises:
        Unavailable: there is no Docker engine.
    """
    needs("docker")
    with contextlib.closing(DockerEngine()) as engine:
        yield BareContainers(engine)


@contextlib.contextmanager
def bare_shell(command: Sequence[str] = ("bash",)) -> Iterator[Callable[[str], bytes]]:
    """Yield a function that runs a line in an open bash behind pipes, and returns its output.

    The output is read up to a marker, which comes with the status. There is no timeout, and the
    line must not end the shell or read its input, and must end its output with a newline.

    Args:
        command: the command that starts the bash, here or at the other end of a pipe.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, cwd="/"
    ) as shell:
        shell_input, shell_output = shell.stdin, shell.stdout
        assert shell_input is not None
        assert shell_output is not None

        def run(line: str) -> bytes:
            marker = secrets.token_hex(8)
            shell_input.write(f"{line}\necho {marker} $?\n".encode())
            shell_input.flush()
            printed = b""
            while not (line_read := shell_output.readline()).startswith(marker.encode()):
                assert line_read, "the shell has ended"
                printed += line_read
            return printed

        try:
            yield run
        finally:
            shell.kill()
