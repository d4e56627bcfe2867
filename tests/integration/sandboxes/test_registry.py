"""Images of ours in a registry: the real program, and one engine that stands for two machines."""

from __future__ import annotations

import contextlib
import io
import json
import re
import secrets
import shlex
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import docker
import pytest
from docker.errors import ImageNotFound

from pytest_intercode.core.task import ImageSource
from pytest_intercode.errors import ConfigurationError, ImageError
from pytest_intercode.sandboxes.docker.images import DockerImages
from pytest_intercode.sandboxes.docker.registry import CONTENT_LABEL, Registry
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from tests.conftest import results
from tests.support.image_registry import PASSWORD, ImageRegistry
from tests.support.ray_cluster import PYTHON, needs_ray

ROOT = Path(__file__).parents[3]
OPTION = "--intercode-registry"


@pytest.fixture
def registry(docker_api: docker.APIClient, tmp_path: Path) -> Iterator[ImageRegistry]:
    made = ImageRegistry(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def source(docker_api: docker.APIClient, tmp_path: Path) -> Iterator[ImageSource]:
    """A small image that no machine has yet."""
    path = tmp_path / "small.Dockerfile"
    path.write_text(f"FROM scratch\nCOPY small.Dockerfile /{secrets.token_hex(8)}\n")
    yield ImageSource(dockerfile=path)
    forget(docker_api)


class Machine(DockerImages):
    """What one machine's process knows, with the lines that it showed."""

    def __init__(self, api: docker.APIClient, where: str) -> None:
        self.lines: list[str] = []
        super().__init__(api, SandboxSettings(registry=where), self.lines.append)

    def did(self, word: str) -> int:
        return sum(line.startswith(f"{word} ") for line in self.lines)


def forget(api: docker.APIClient) -> None:
    """Remove the images of these tests from the engine, so that it is another machine's."""
    for row in api.images(filters={"label": "pytest-intercode.image=small.Dockerfile"}):
        with contextlib.suppress(ImageNotFound):
            api.remove_image(row["Id"], force=True)


def image_id(api: docker.APIClient, name: str) -> str:
    return str(api.inspect_image(name)["Id"])  # type: ignore[no-untyped-call]


def build(api: docker.APIClient, content: str) -> str:
    """Build an image that says that it was made of something."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as context:
        text = f"FROM scratch\nLABEL made={secrets.token_hex(8)}\n".encode()
        entry = tarfile.TarInfo("Dockerfile")
        entry.size = len(text)
        context.addfile(entry, io.BytesIO(text))
    labels = {CONTENT_LABEL: content, "pytest-intercode.image": "small.Dockerfile"}
    name = f"pytest-intercode/small:{secrets.token_hex(6)}"
    for event in api.build(
        fileobj=io.BytesIO(buffer.getvalue()), custom_context=True, tag=name, labels=labels,
        rm=True, decode=True,
    ):  # fmt: skip
        assert "error" not in event, event
    return name


@pytest.mark.slow
def test_what_one_machine_built_another_pulls(
    docker_api: docker.APIClient, registry: ImageRegistry, source: ImageSource
) -> None:
    where = f"{registry.where}/team/agents"
    first = Machine(docker_api, where)
    name = first.resolve(source)
    built = image_id(docker_api, name)
    assert (first.did("building"), first.did("pushing"), first.did("pulling")) == (1, 1, 0)
    [tag] = registry.tags("team/agents/pytest-intercode")
    label, content, kind = tag.split("-")
    assert (label, kind) == ("small", docker_api.version()["Arch"])
    assert name == f"pytest-intercode/small:{content[:12]}"

    again = Machine(docker_api, where)  # the next process here: it is all there
    assert again.resolve(source) == name
    assert again.lines == []

    forget(docker_api)
    second = Machine(docker_api, where)
    assert second.resolve(source) == name
    assert (second.did("building"), second.did("pushing"), second.did("pulling")) == (0, 0, 1)
    assert image_id(docker_api, name) == built
    pinned = first.pinned(name)
    assert pinned.startswith(f"{where}/pytest-intercode@sha256:")
    assert again.pinned(name) == second.pinned(name) == pinned

    forget(docker_api)
    third = Machine(docker_api, where)
    third.take(name, pinned)
    assert (image_id(docker_api, name), third.pinned(name)) == (built, pinned)


@pytest.mark.slow
def test_what_is_on_the_machine_is_pushed_and_not_built_again(
    docker_api: docker.APIClient, registry: ImageRegistry, source: ImageSource
) -> None:
    name = DockerImages(docker_api).resolve(source)
    assert DockerImages(docker_api).pinned(name) == ""
    machine = Machine(docker_api, registry.where)
    assert machine.resolve(source) == name
    assert (machine.did("building"), machine.did("pushing")) == (0, 1)
    assert len(registry.tags()) == 1


@pytest.mark.slow
def test_layers_are_shared_too(
    docker_api: docker.APIClient, registry: ImageRegistry, source: ImageSource, tmp_path: Path
) -> None:
    with tarfile.open(tmp_path / "layer.tar", "w") as layer:
        layer.add(tmp_path / "small.Dockerfile", "opt/file")
    layered = ImageSource(dockerfile=source.dockerfile, layers=(tmp_path / "layer.tar",))
    name = Machine(docker_api, registry.where).resolve(layered)
    docker_api.remove_image(name, force=True)
    for row in docker_api.images(f"{registry.where}/pytest-intercode"):
        docker_api.remove_image(row["Id"], force=True)
    second = Machine(docker_api, registry.where)
    assert second.resolve(layered) == name
    assert (second.did("building"), second.did("pulling")) == (0, 2)
    docker_api.remove_image(image_id(docker_api, name), force=True)


@pytest.mark.slow
def test_the_later_of_two_builders_takes_what_the_earlier_pushed(
    docker_api: docker.APIClient, registry: ImageRegistry, source: ImageSource
) -> None:
    machine = Machine(docker_api, registry.where)
    other: list[str] = []

    def note(line: str) -> None:
        if line.startswith("building"):  # meanwhile, somewhere else
            content = machine_content(machine, source)
            other.append(build(docker_api, content))
            Registry(docker_api, registry.where).give(other[0], "small", content)

    machine._progress = note
    name = machine.resolve(source)
    assert image_id(docker_api, name) == image_id(docker_api, other[0])
    assert len(registry.tags()) == 1


def machine_content(machine: DockerImages, source: ImageSource) -> str:
    """Return the hash that an image has, from another engine's point of view."""
    found: list[str] = []

    class Asked(Exception):
        pass

    class Only(DockerImages):
        def _provide(self, label: str, content: str, build: object, platform: object) -> str:
            found.append(content)
            raise Asked

    with pytest.raises(Asked):
        Only(machine._api).resolve(source)
    return found[0]


def test_a_registry_that_does_not_answer_is_an_error_and_nothing_is_built(
    docker_api: docker.APIClient, registry: ImageRegistry, source: ImageSource
) -> None:
    registry.stop()
    machine = Machine(docker_api, registry.where)
    with pytest.raises(ImageError) as caught:
        machine.resolve(source)
    said = str(caught.value)
    assert said.startswith(f"the registry {registry.where} does not answer: ")
    assert "connection refused" in said
    assert "leave --intercode-registry out" in said
    assert "\n" not in said
    assert machine.lines == []
    assert docker_api.images(filters={"label": "pytest-intercode.image=small.Dockerfile"}) == []
    provider = SandboxProvider(SandboxSettings(registry=registry.where, backend="docker"))
    with pytest.raises(ConfigurationError, match=rf"^{OPTION}={registry.where}: the registry"):
        provider.check({"registry": OPTION})
    registry.start()
    provider.check({"registry": OPTION})
    with pytest.raises(ConfigurationError, match="bubblewrap has no images"):
        SandboxProvider(SandboxSettings(registry="a:1", backend="bubblewrap")).check(
            {"registry": OPTION}
        )


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", ["hosts", "cluster"])
def test_the_commands_of_the_pages(
    registry: ImageRegistry, page: str, tmp_path: Path, docker_api: docker.APIClient
) -> None:
    text = (ROOT / f"docs/{page}.md").read_text()
    [command] = [
        each
        for each in re.findall(r"^    (pytest (?:.*\\\n)*.*)$", text, re.MULTILINE)
        if "--intercode-registry" in each
    ]
    python = sys.executable
    if page == "cluster":
        needs_ray()
        python = str(PYTHON)
    (tmp_path / "my_agent.py").write_text(
        "class Agent:\n    def act(self, observation):\n        return 'submit'\n"
    )
    where = f"{registry.where}/agents"
    words = shlex.split(command.replace("\\\n", " ").replace("registry.example.org/agents", where))
    words = [word.replace("=auto", "=local:1") for word in words]
    more = ("--intercode-limit=2", "--intercode-results=all.jsonl", "--intercode-sandbox=docker")
    done = subprocess.run(
        [python, "-m", *words, *more],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 1, done.stdout + done.stderr  # the agent solves nothing
    [tag] = registry.tags("agents/pytest-intercode")
    rows = results(tmp_path / "all.jsonl")
    assert len(rows) == 2
    for row in rows:
        assert row["image_digest"].startswith(f"{where}/pytest-intercode@sha256:")
        assert row["image"] == f"pytest-intercode/bash:{tag.split('-')[1][:12]}"
    for each in docker_api.images(f"{where}/pytest-intercode"):
        for name in each["RepoTags"]:
            if name.startswith(where):
                docker_api.remove_image(name)


class Nothing(BaseHTTPRequestHandler):
    """A server that knows no page."""

    def do_GET(self) -> None:
        self.send_error(404, "nothing", "x" * 5000)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None: ...


def test_what_is_no_registry_is_one_line(docker_api: docker.APIClient) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Nothing) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        where = f"127.0.0.1:{server.server_port}"
        problem = Registry(docker_api, where).problem()
        server.shutdown()
        thread.join()
    assert problem.startswith(f"the registry {where} does not answer: ")
    assert "\n" not in problem
    assert len(problem) < 600


@pytest.mark.slow
def test_credentials_are_dockers_own_and_in_no_text(
    docker_api: docker.APIClient,
    tmp_path: Path,
    source: ImageSource,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = ImageRegistry(tmp_path, users=True)
    try:
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "none"))
        caplog.set_level(1)
        with contextlib.closing(docker.APIClient()) as api:
            stranger = Machine(api, registry.where)
            with pytest.raises(ImageError) as caught:
                stranger.resolve(source)
            assert str(caught.value).startswith(f"the registry {registry.where} refuses us: ")
            assert f"'docker login {registry.where}'" in str(caught.value)
            assert stranger.lines == []
        registry.write_credentials(tmp_path / "config")
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "config"))
        with contextlib.closing(docker.APIClient()) as api:
            ada = Machine(api, registry.where)
            name = ada.resolve(source)
            assert len(registry.tags()) == 1
            said = [*ada.lines, ada.pinned(name), caplog.text, str(caught.value)]
        hidden = json.loads((tmp_path / "config/config.json").read_text())["auths"]
        for secret in (PASSWORD, hidden[registry.where]["auth"]):
            assert not any(secret in each for each in said)
    finally:
        registry.stop()


@pytest.mark.slow
def test_who_may_only_read_builds_what_is_not_there(
    docker_api: docker.APIClient, tmp_path: Path, source: ImageSource
) -> None:
    registry = ImageRegistry(tmp_path, readonly=True)
    try:
        machine = Machine(docker_api, registry.where)
        name = machine.resolve(source)
        assert image_id(docker_api, name)
        assert machine.pinned(name) == ""
        [line] = [line for line in machine.lines if "cannot be pushed" in line]
        assert line.endswith("; other machines have to build it, too")
        assert registry.tags() == []
    finally:
        registry.stop()


@pytest.mark.slow
def test_an_image_that_is_not_what_its_tag_says_is_refused(
    docker_api: docker.APIClient, registry: ImageRegistry, source: ImageSource
) -> None:
    machine = Machine(docker_api, registry.where)
    content = machine_content(machine, source)
    Registry(docker_api, registry.where).give(build(docker_api, "0" * 64), "small", content)
    with pytest.raises(ImageError, match=r"is not the image that its tag names \(made of '0000"):
        machine.resolve(source)
    assert not machine.did("building")
