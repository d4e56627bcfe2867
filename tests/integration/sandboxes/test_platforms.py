"""Images for another platform than the engine's: what the engine is asked for, and what runs.

The engine is the real one, behind a proxy by which it says that it is of another processor. So what
it builds and runs is, for us, an image for another platform under emulation.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from pytest_intercode.core.platforms import Platform, platform_of_machine
from pytest_intercode.core.task import ImageSource
from pytest_intercode.errors import ConfigurationError, ImageError, SandboxError
from pytest_intercode.sandboxes.choice import find_platform
from pytest_intercode.sandboxes.docker.engine import DockerEngine
from pytest_intercode.sandboxes.docker.images import DockerImages
from pytest_intercode.sandboxes.docker.platforms import image_info, image_platform
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from tests.support.image_registry import ImageRegistry
from tests.support.recording_engine import ARM64, RecordingEngine

_BASE = "debian:bookworm-slim"
_PROXY, _ENGINE = Platform("arm64"), Platform("amd64")


@pytest.fixture
def api(docker_engine: DockerEngine) -> docker.APIClient:
    """The real engine's client."""
    if docker_engine.platform != _ENGINE:
        pytest.skip("the proxy would say of this engine what it says itself")
    return docker_engine.api


@pytest.fixture
def proxy(
    api: docker.APIClient, docker_engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RecordingEngine]:
    """The engine of another processor, which ``docker`` uses here."""
    path = docker_engine.link.address.url.removeprefix("unix://")
    with contextlib.closing(RecordingEngine(path, ARM64)) as engine:
        monkeypatch.setenv("DOCKER_HOST", engine.address)
        yield engine


@pytest.fixture
def tagged(api: docker.APIClient) -> Iterator[Callable[[str], str]]:
    """Give the base image a further name, which goes with the test, as those for platforms do."""
    repositories: list[str] = []

    def tag(repository: str) -> str:
        repositories.append(repository)
        api.tag(_BASE, repository, "1", force=True)
        return f"{repository}:1"

    yield tag
    for repository in repositories:
        for image in api.images(repository):
            for name in image["RepoTags"]:
                api.remove_image(name, noprune=True)


def _settings(**values: Any) -> SandboxSettings:
    return SandboxSettings("docker", **values)


def _dockerfile(folder: Path, base: str = _BASE, text: str = "") -> Path:
    path = folder / "Dockerfile"
    path.write_text(text or f"FROM {base}\nENV NAME={secrets.token_hex(4)}\n")
    return path


def test_the_engine_says_its_platform(proxy: RecordingEngine) -> None:
    assert find_platform(_settings()) == _PROXY
    assert find_platform(_settings(platform="amd64")) == _ENGINE
    assert find_platform(_settings(docker_hosts=[proxy.address])) == _PROXY
    assert find_platform(SandboxSettings("bubblewrap")) == platform_of_machine("x86_64")


def test_nothing_is_asked_for_where_no_platform_is_named(
    proxy: RecordingEngine, tmp_path: Path
) -> None:
    lines: list[str] = []
    with contextlib.closing(SandboxProvider(_settings(), progress=lines.append)) as provider:
        image = provider.image(ImageSource(dockerfile=_dockerfile(tmp_path)))
        with contextlib.closing(provider.acquire(SandboxSpec(image))) as sandbox:
            assert sandbox.run("uname -m", 10).output == b"x86_64\n"
    assert "linux" not in image
    assert [parameters.get("platform") for parameters in proxy.asked("POST /build")] == [None]
    creations = proxy.asked("POST /containers/create")
    assert creations
    assert not any("platform" in parameters for parameters in creations)
    # Yet what is emulated is said, whoever made the image.
    assert [line for line in lines if "emulation" in line] == [
        f"{image} is for linux/amd64, but the engine is linux/arm64: it runs under emulation, "
        "more slowly; times are not comparable"
    ]


@pytest.mark.parametrize("by_option", [False, True], ids=["suite", "option"])
def test_a_platform_reaches_builds_and_containers(
    by_option: bool,
    proxy: RecordingEngine,
    api: docker.APIClient,
    tagged: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """And two images of it are one line of warning."""
    lines: list[str] = []
    settings = _settings(platform=_ENGINE if by_option else None)
    task_platform = None if by_option else _ENGINE
    base = tagged(f"127.0.0.1:9/built-{by_option}".lower())
    with contextlib.closing(SandboxProvider(settings, progress=lines.append)) as provider:
        for name in ("one", "two"):
            folder = tmp_path / name
            folder.mkdir()
            source = ImageSource(dockerfile=_dockerfile(folder, base), platform=task_platform)
            image = provider.image(source)
            assert image.endswith(".linux-amd64")
            with contextlib.closing(provider.acquire(SandboxSpec(image))) as sandbox:
                assert sandbox.run("echo $NAME", 10).status == 0
    expected = {"platform": "linux/amd64"}
    for path in ("POST /build", "POST /containers/create"):
        requests = proxy.asked(path)
        assert len(requests) >= 2
        assert all(parameters.items() >= expected.items() for parameters in requests), path
    assert sum("emulation" in line for line in lines) == 1
    assert image_platform(image_info(api, f"{base}.linux-amd64")) == _ENGINE


def test_a_suite_comes_before_the_option(
    proxy: RecordingEngine, tagged: Callable[[str], str]
) -> None:
    name = tagged("127.0.0.1:9/first")
    with contextlib.closing(docker.APIClient(proxy.address)) as client:
        images = DockerImages(client, _settings(platform=_PROXY))
        assert images.resolve(ImageSource(image=name, platform=_ENGINE)) == f"{name}.linux-amd64"


def test_the_image_of_another_platform_is_not_taken(
    api: docker.APIClient, tagged: Callable[[str], str]
) -> None:
    """It is pulled by the name that it has, which cannot be done here."""
    name = tagged("127.0.0.1:9/other")
    images = DockerImages(api)
    assert images.resolve(ImageSource(image=name)) == name
    assert images.resolve(ImageSource(image=name, platform=_ENGINE)) == name
    with pytest.raises(
        ImageError, match=r"^image \S+/other:1 is on this machine for linux/amd64, "
    ):
        images.resolve(ImageSource(image=name, platform=_PROXY))
    assert image_platform(image_info(api, name)) == _ENGINE
    assert not image_info(api, f"{name}.linux-arm64")


def test_builds_start_from_images_of_their_platform(
    api: docker.APIClient, tagged: Callable[[str], str], tmp_path: Path
) -> None:
    """The engine's own builder takes any image of the name, whatever its platform is."""
    name = tagged("127.0.0.1:9/base")
    images = DockerImages(api)
    for text in (f"FROM --platform=linux/arm64 {name}\n", f"ARG B={name}\nFROM $B\n"):
        path = _dockerfile(tmp_path, text=text)
        platform = None if "--platform" in text else _PROXY
        with pytest.raises(ImageError, match=r"^base image 127\.0\.0\.1:9/base:1 of .*file is"):
            images.resolve(ImageSource(dockerfile=path, platform=platform))


def test_platforms_of_newer_builders_are_known(api: docker.APIClient, tmp_path: Path) -> None:
    text = (
        f"FROM --platform=$BUILDPLATFORM {_BASE} AS one\nRUN echo {secrets.token_hex(4)} >/one\n"
        f"FROM --platform=$TARGETPLATFORM {_BASE}\nCOPY --from=one /one /two\n"
    )
    name = DockerImages(api).resolve(ImageSource(dockerfile=_dockerfile(tmp_path, text=text)))
    assert image_platform(image_info(api, name)) == _ENGINE


def test_an_image_is_pulled_for_its_platform(
    api: docker.APIClient,
    proxy: RecordingEngine,
    tagged: Callable[[str], str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Its name stays with what had it before, or with nothing; the digest is still known."""
    registry = ImageRegistry(tmp_path)
    try:
        repository = f"{registry.where}/sweb.eval.x86_64.a"
        name = tagged(repository)
        for line in api.push(repository, tag="1", stream=True, decode=True):
            assert "error" not in line
        api.remove_image(name, noprune=True)
        client = docker.APIClient(proxy.address)
        request.addfinalizer(client.close)

        # A suite says it: a tag of its own.
        images = DockerImages(client)
        image = images.resolve(ImageSource(image=name, platform=_ENGINE))
        assert image == f"{name}.linux-amd64"
        assert not image_info(api, name)
        assert images.pinned(image).startswith(f"{repository}@sha256:")
        assert proxy.asked("POST /images/create")[-1]["platform"] == "linux/amd64"
        count = len(proxy.asked("POST /images/create"))
        DockerImages(client).resolve(ImageSource(image=name, platform=_ENGINE))
        assert len(proxy.asked("POST /images/create")) == count

        # The name says it.
        assert DockerImages(client).resolve(ImageSource(image=name)) == name
        assert proxy.asked("POST /images/create")[-1]["platform"] == "linux/amd64"
    finally:
        registry.stop()


def test_an_image_that_is_not_made_for_the_platform_is_one_line(
    api: docker.APIClient, tagged: Callable[[str], str], tmp_path: Path
) -> None:
    registry = ImageRegistry(tmp_path)
    try:
        name = tagged(f"{registry.where}/plain")
        for _ in api.push(name.rpartition(":")[0], tag="1", stream=True, decode=True):
            pass
        with pytest.raises(ImageError) as caught:
            DockerImages(api).resolve(ImageSource(image=name, platform=_PROXY))
        assert str(caught.value).startswith(f"image {name} is not made for linux/arm64: ")
        assert str(caught.value).endswith(
            ". If it is for another processor, say so: 'platform: linux/amd64' in the suite, or "
            "--intercode-platform=linux/amd64"
        )
        assert "\n" not in str(caught.value)
        assert image_platform(image_info(api, name)) == _ENGINE
    finally:
        registry.stop()


def test_bubblewrap_has_this_machines_platform() -> None:
    is_arm = platform_of_machine("x86_64") != find_platform(_bubblewrap())
    foreign = "amd64" if is_arm else "arm64"
    refusal = rf"^--intercode-platform=linux/{foreign}: bubblewrap runs this machine's programs"
    with (
        contextlib.closing(SandboxProvider(_bubblewrap(platform=foreign))) as provider,
        pytest.raises(ConfigurationError, match=refusal),
    ):
        provider.check({"platform": "--intercode-platform"})
    source = ImageSource(image="debian", platform=Platform(foreign))
    with (
        contextlib.closing(SandboxProvider(_bubblewrap())) as provider,
        pytest.raises(ImageError, match=rf"is for linux/{foreign}, but bubblewrap runs"),
    ):
        provider.image(source)


def _bubblewrap(**values: Any) -> SandboxSettings:
    return SandboxSettings("bubblewrap", **values)


_SUITE = """\
env: bash
defaults: {platform: linux/amd64}
tasks:
  - {id: a, query: Make it., gold: "uname -m >a"}
  - {id: b, query: Make it., gold: "echo b >b", image: IMAGE}
"""


@pytest.mark.slow
def test_a_run_says_once_that_it_is_emulated(
    proxy: RecordingEngine,
    tagged: Callable[[str], str],
    pytester: pytest.Pytester,
) -> None:
    image = tagged("127.0.0.1:9/played")
    pytester.makefile(".yaml", suite=_SUITE.replace("IMAGE", image))
    options = ("--intercode-agent=oracle", "--intercode-sandbox=docker", "-p", "no:cacheprovider")
    run = pytester.runpytest_subprocess(
        *("suite.yaml", *options, "--intercode-platform=linux/arm64"),
        f"--intercode-base-image={_BASE}={tagged('127.0.0.1:9/base-of-bash')}",
        "--intercode-results=results.jsonl",
    )
    run.assert_outcomes(passed=2)
    run.stdout.fnmatch_lines(["*docker*, linux/arm64*"])
    assert sum("under emulation" in line for line in run.outlines) == 1
    lines = Path(pytester.path, "results.jsonl").read_text().splitlines()
    images = {record["image"] for record in map(json.loads, lines) if "image" in record}
    assert images >= {f"{image}.linux-amd64"}
    assert all(name.endswith(".linux-amd64") for name in images if name)


def test_without_emulation_the_error_says_the_platforms(
    proxy: RecordingEngine, tmp_path: Path
) -> None:
    """Without it, a shell ends as soon as it is started, as this one does."""
    path = _dockerfile(tmp_path, text=f"FROM {_BASE}\nRUN cp /bin/true /bin/bash\n")
    with contextlib.closing(SandboxProvider(_settings())) as provider:
        spec = SandboxSpec(provider.image(ImageSource(dockerfile=path)))
        with pytest.raises(
            SandboxError,
            match=r"does not start as a sandbox \(it is for linux/amd64, and the engine is "
            r"linux/arm64; does it emulate that\? .*docs/suites\.md\): "
            r"(the sandbox has ended|.* No such container)",  # it may be removed already
        ):
            provider.acquire(spec)
