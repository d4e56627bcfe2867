"""The services of one sandbox in Docker: containers next to its own.

Everything that belongs to a sandbox has the labels of its own container, so that a sweep for the
container also removes the rest.
"""

from __future__ import annotations

import contextlib
import io
import posixpath
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from pytest_intercode.core.machine import HealthCheck, Service
from pytest_intercode.core.text import one_line
from pytest_intercode.errors import SandboxError, TaskError, UngradableState
from pytest_intercode.sandboxes.docker.errors import client_errors, plain
from pytest_intercode.sandboxes.docker.networks import SharedParts
from pytest_intercode.sandboxes.docker.reaper import remove_container
from pytest_intercode.sandboxes.docker.streams import AttachedStreams
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.transport import ChannelClosed, Chunk
from pytest_intercode.system.archives import add_entry, pack_files

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["ServiceGroup"]

_SERVER_CAPABILITIES = ("NET_BIND_SERVICE", "SYS_CHROOT")  # needed by sshd
_MIN_HEALTH_TIME = 30.0  # minimum seconds for a service, as machines may be busy
_MAX_HEALTH_TIME = 600.0  # seconds, as in Harbor
_COMPLETION_TIMEOUT = 300.0  # seconds for a command that others wait for
_FIRST_INTERVAL = 0.05  # seconds between the first tries of a health check
_LAST_WORDS_TIMEOUT = 0.2  # seconds for the latest output of a service that failed
_OUTPUT_END_TIMEOUT = 10.0  # seconds for the output of a service that has ended to be complete
_MAX_OUTPUT = 64 * 1024  # bytes that are kept of an output
_MAX_LAST_OUTPUT = 300  # characters in a message
_NOT_RUNNING = 409  # the HTTP status of requests for a container that has ended
_TIMED_OUT = 124  # the status of a command that took too long, as in `timeout`
_MAX_ARCHIVE = 512 * 1024**2  # bytes that are taken from a service at a time
_RESTARTS = {"never": "no", "on-failure": "on-failure", "always": "unless-stopped"}


class ServiceGroup:
    """The networks, volumes and services of one sandbox.

    Args:
        api: the engine's client.
        spec: the spec of the sandbox, which is in a network with other machines.
        labels: the labels of everything that is made.
        image_id: returns the engine's id of an image.
        create: creates a container from a configuration and an image, and returns its id.
        limit: returns the limits of a container, in the form of the engine's API.

    Attributes:
        parts: the networks and volumes.
    """

    def __init__(
        self,
        api: APIClient,
        spec: SandboxSpec,
        labels: Mapping[str, str],
        image_id: Callable[[str], str],
        create: Callable[[Any, str], str],
        limit: Callable[[SandboxSpec], dict[str, Any]],
    ) -> None:
        self._api = api
        self._spec = spec
        self._labels = dict(labels)
        self._image_id = image_id
        self._create = create
        self._limit = limit
        self.parts = SharedParts(api, spec.services, labels, closed=not spec.limits.network)
        self._containers: dict[str, str] = {}
        self._outputs: dict[str, AttachedStreams] = {}
        self._printed: dict[str, bytes] = {}  # the last output of each service

    # -- the services

    def start(self) -> None:
        """Start the services, each after its dependencies are in the state that it needs.

        Raises:
            TaskError: an engine cannot start one of them, or it does not become ready.
            SandboxError: the engine refuses, or does not answer.
        """
        services = {service.name: service for service in self._spec.services.machines}
        for service in services.values():
            for name, condition in service.depends_on:
                if condition == "completed":
                    self._wait_for_end(services[name])
                elif condition == "healthy":
                    self._wait_for_health(services[name])
            with _start_errors(service):
                self._start(service)

    def wait(self) -> None:
        """Wait until all services are ready.

        Raises:
            TaskError: one of them does not become ready.
        """
        services = {service.name: service for service in self._spec.services.machines}
        for service in services.values():
            if service.health is not None:
                self._wait_for_health(service)
        for name, condition in self._spec.services.depends_on:
            if condition == "completed":
                self._wait_for_end(services[name])
        for output in self._outputs.values():
            output.close()
        self._outputs.clear()

    def _start(self, service: Service) -> None:
        from docker.types import Healthcheck

        api = self._api
        assert service.image.image is not None, "the image of a service is ready"
        names = (service.name, *service.aliases)
        folders = [f"{self.parts.empty_volume()}:{mount.at}:nocopy" for mount in service.mounts]
        spec = SandboxSpec(service.image.image, service.limits, scratch=service.tmpfs)
        host = self._limit(spec)
        host |= self.parts.host_settings(service.networks)
        host["AutoRemove"] = False  # its files may be asked for, however it ends
        host["RestartPolicy"] = {"Name": _RESTARTS[service.restarts]}
        host["CapAdd"] = [*host["CapAdd"], *_SERVER_CAPABILITIES]
        host["Binds"] = [*self.parts.binds(service.volumes, service.read_only), *folders]
        config = api.create_container_config(
            self._image_id(service.image.image),
            command=None if service.command is None else list(service.command),  # type: ignore[arg-type]
            entrypoint=None if service.entrypoint is None else list(service.entrypoint),
            environment=dict(service.variables),
            working_dir=service.workdir or None,
            user=service.user or None,
            hostname=service.name,
            stdin_open=False,
            tty=False,
            healthcheck=Healthcheck(test=["NONE"]),  # our own check ends when it succeeds
            labels=self._labels,
            networking_config=self.parts.endpoints(service.networks, names),  # type: ignore[arg-type]
            host_config=host,  # type: ignore[arg-type]
        )
        container_id = self._create(config, service.image.image)
        self._containers[service.name] = container_id
        archives = [pack_files({}, "/", 0.0, mount) for mount in service.mounts]
        archives += [pack_files(dict(service.files), "/", 0.0)] if service.files else []
        for archive in archives:
            api.put_archive(container_id, "/", archive)
        self.parts.connect(container_id, service.networks, names)
        # Before the start: its first output may tell why it does not become ready.
        attached = api.attach_socket(container_id, params={"stdout": 1, "stderr": 1, "stream": 1})
        self._outputs[service.name] = AttachedStreams(attached)
        api.start(container_id)

    def _wait_for_health(self, service: Service) -> None:
        check = service.health or HealthCheck()
        command = list(check.command) or self._image_check(service)
        if not command:
            return
        span = check.start_period + check.retries * max(check.interval, 1.0)
        deadline = time.monotonic() + min(_MAX_HEALTH_TIME, max(_MIN_HEALTH_TIME, span))
        interval, reason = _FIRST_INTERVAL, ""
        while time.monotonic() < deadline:
            state = self._state(service)
            if _has_ended(state) and service.restarts == "never":
                reason = f"it ended with status {state.get('ExitCode')}"
                break
            try:
                status, output = self._run(service.name, command, "", check.timeout)
            except client_errors() as error:
                if getattr(error, "status_code", 0) != _NOT_RUNNING:
                    raise
                status, output = 1, plain(error).encode()
            if status == 0:
                return
            reason = f"its health check ends with status {status}: {_last(output)}"
            self._pause(interval)
            interval = min(2 * interval, max(check.interval, _FIRST_INTERVAL))
        raise TaskError(self._problem(service, f"is not ready: {reason or 'it has no time'}"))

    def _wait_for_end(self, service: Service) -> None:
        deadline = time.monotonic() + _COMPLETION_TIMEOUT
        while not _has_ended(state := self._state(service)):
            if time.monotonic() > deadline:
                raise TaskError(self._problem(service, "does not end, and others wait for it"))
            self._pause(_FIRST_INTERVAL)
        if state.get("ExitCode"):
            raise TaskError(self._problem(service, f"ended with status {state['ExitCode']}"))

    def _state(self, service: Service) -> Mapping[str, Any]:
        state: Mapping[str, Any] = self._api.inspect_container(self._containers[service.name])[
            "State"
        ]
        return state

    def _image_check(self, service: Service) -> list[str]:
        image_id = self._image_id(service.image.image or "")
        image = self._api.inspect_image(image_id)  # type: ignore[no-untyped-call]
        test = ((image.get("Config") or {}).get("Healthcheck") or {}).get("Test") or []
        if test[:1] == ["CMD-SHELL"]:
            return ["/bin/sh", "-c", *test[1:]]
        return list(test[1:]) if test[:1] == ["CMD"] else []

    def _problem(self, service: Service, words: str) -> str:
        """Describe what is wrong with a service, with its last output."""
        has_ended = _has_ended(self._state(service))
        self._pause(_OUTPUT_END_TIMEOUT if has_ended else _LAST_WORDS_TIMEOUT, service.name)
        printed = self._printed.get(service.name, b"")
        hint = f" (it printed last: {_last(printed)})" if printed.strip() else ""
        return f"the service {service.name} {words}{hint}"

    def _pause(self, seconds: float, name: str | None = None) -> None:
        """Wait, and read the output of the services; return early when a named one's output ends.

        The engine blocks a program whose output is not read: after a megabyte, the program would
        neither become ready nor end.
        """
        deadline = time.monotonic() + seconds
        while True:
            chunks = [chunk for name in list(self._outputs) for chunk in self._read(name)]
            remaining = deadline - time.monotonic()
            if remaining <= 0 or (name is not None and name not in self._outputs):
                return
            if not chunks:
                time.sleep(min(remaining, _FIRST_INTERVAL))

    def _read(self, name: str) -> list[Chunk]:
        """Return the new output of a service, and keep the end of it."""
        try:
            chunks = self._outputs[name].receive(0)
        except (ChannelClosed, OSError):
            self._outputs.pop(name).close()
            return []
        printed = b"".join([self._printed.get(name, b""), *(chunk.data for chunk in chunks)])
        self._printed[name] = printed[-_MAX_OUTPUT:]
        return chunks

    # -- requests to a service

    def run(self, name: str, command: str, user: str, timeout: float) -> tuple[int, bytes]:
        """Run a line of its ``sh`` in a service.

        Raises:
            SandboxError: there is no such service, or the engine does not answer.
        """
        self._container(name)
        try:
            return self._run(name, ["sh", "-c", command], user, timeout)
        except client_errors() as error:
            if getattr(error, "status_code", 0) in (404, _NOT_RUNNING):
                return 1, plain(error).encode()
            raise SandboxError(f"the service {name}: {plain(error)}") from None

    def archive(self, name: str, path: str) -> bytes:
        """Return a tar archive of a path, and of everything below it.

        Raises:
            SandboxError: there is no such service, or the engine does not answer.
            UngradableState: it is too large.
        """
        path = posixpath.normpath(path)
        buffer = io.BytesIO()
        try:
            blocks, _ = self._api.get_archive(self._container(name), path)
            for block in blocks:
                buffer.write(block)
                if buffer.tell() > _MAX_ARCHIVE:
                    raise UngradableState(
                        f"{path} of the service {name} has more than {_MAX_ARCHIVE // 2**20} MiB"
                    )
        except client_errors() as error:
            if getattr(error, "status_code", 0) == 404:
                return b""
            raise SandboxError(f"the service {name}: {plain(error)}") from None
        buffer.seek(0)
        return _with_paths(buffer, posixpath.dirname(path))

    def _container(self, name: str) -> str:
        if name not in self._containers:
            raise SandboxError(f"there is no service {name!r}")
        return self._containers[name]

    def _run(self, name: str, command: list[str], user: str, timeout: float) -> tuple[int, bytes]:
        api = self._api
        execution = api.exec_create(self._containers[name], command, user=user)["Id"]
        streams = AttachedStreams(api.exec_start(execution, socket=True))
        output, deadline = b"", time.monotonic() + timeout
        try:
            while (remaining := deadline - time.monotonic()) > 0:
                chunks = streams.receive(remaining)
                output = b"".join([output, *(chunk.data for chunk in chunks)])[-_MAX_OUTPUT:]
        except ChannelClosed:
            code = api.exec_inspect(execution).get("ExitCode")
            return (_TIMED_OUT if code is None else int(code)), output
        finally:
            streams.close()
        return _TIMED_OUT, output

    # -- the end

    def move(self, container_id: str, other: ServiceGroup) -> None:
        """Move the sandbox's own container to another one's networks, and end the services."""
        self.parts.move(container_id, other.parts)
        self.close()

    def close(self, container_id: str = "") -> None:
        """Remove everything; what cannot be removed now is left to later sweeps by the labels.

        Args:
            container_id: the sandbox's own container, which has to be removed before its networks.
        """
        for output in self._outputs.values():
            output.close()
        for container in (*self._containers.values(), *filter(None, [container_id])):
            with contextlib.suppress(*client_errors()):
                remove_container(self._api, container)
        self._containers, self._outputs = {}, {}
        self.parts.remove()


def _has_ended(state: Mapping[str, Any]) -> bool:
    return state.get("Status") in ("exited", "dead")


@contextlib.contextmanager
def _start_errors(service: Service) -> Iterator[None]:
    """Tell impossible requests of a task from problems of this engine."""
    try:
        yield
    except client_errors() as error:
        reason = plain(error)
        is_wrong = getattr(error, "status_code", 0) == HTTPStatus.BAD_REQUEST
        if "unable to find user" in reason or (is_wrong and "CPUs" not in reason):
            raise TaskError(f"the service {service.name} cannot be started: {reason}") from None
        raise SandboxError(f"the service {service.name}: {reason}") from None


def _last(output: bytes) -> str:
    return one_line(output.decode("utf-8", "replace").strip())[-_MAX_LAST_OUTPUT:] or "nothing"


def _with_paths(packed: io.BytesIO, folder: str) -> bytes:
    """Return an archive with names relative to the root, and only entries that verifiers accept."""
    buffer = io.BytesIO()
    with (
        tarfile.open(fileobj=packed) as source,
        tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as target,
    ):
        for member in source:
            path = posixpath.normpath(posixpath.join("/", folder, member.name.lstrip("/")))
            if posixpath.commonpath([path, folder]) != folder:
                continue
            content: bytes | str | None = None
            if member.isreg() or member.islnk():
                file = source.extractfile(member)
                content = file.read() if file is not None else b""
            elif member.issym():
                content = member.linkname
            elif not member.isdir():
                continue
            owner = (member.uid, member.gid)
            mode, time_ = member.mode & 0o7777, float(member.mtime)
            add_entry(target, path.lstrip("/"), content, mode, mtime=time_, owner=owner)
    return buffer.getvalue()
