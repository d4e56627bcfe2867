"""``pytest-intercode images``: what is here, what can be had, and having it."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from pytest_intercode.cli import main
from pytest_intercode.core.task import ImageSource
from pytest_intercode.sandboxes.provider import SandboxProvider
from tests.support.image_registry import ImageRegistry
from tests.support.task_folders import BASE, write_harbor

GONE = "localhost:1/gone"  # where no registry answers


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))


def write_task(name: str, *instructions: str, toml: str = "") -> None:
    write_harbor(
        Path("set", name),
        tests="true",
        solution="true",
        toml=toml,
        dockerfile="\n".join([*instructions, "WORKDIR /app", ""]),
    )


@pytest.fixture
def own_tag(docker_api: docker.APIClient) -> Iterator[str]:
    """A tag that no other test has; what is tagged with it loses its name in the end."""
    tag = secrets.token_hex(6)
    yield tag
    for image in docker_api.images():
        for name in image["RepoTags"] or ():
            if name.endswith(f":{tag}"):
                with contextlib.suppress(docker.errors.APIError):
                    docker_api.remove_image(name, force=True)


def printed(capsys: pytest.CaptureFixture[str]) -> tuple[list[str], str]:
    output = capsys.readouterr()
    return [" ".join(line.split()) for line in output.out.splitlines()], output.err


@pytest.mark.usefixtures("needs_docker")
def test_what_is_here_and_what_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        write_task(name, f"FROM {BASE}")
    write_task("c", f"FROM {GONE}:1", f"ENV N={secrets.token_hex(4)}")
    write_task("d", f"FROM {GONE}:2")
    write_task("e", f"FROM {BASE}", toml=f'[environment]\ndocker_image = "{GONE}:3"\n')
    assert main(["images", "set"]) == 1
    lines, advice = printed(capsys)
    assert lines[:3] == [
        f"missing image 1 task - - {GONE}:1",
        f"missing image 1 task - - {GONE}:2",
        f"missing image 1 task - - {GONE}:3, else its Dockerfile is built",
    ]
    [base] = [line for line in lines if line.endswith(f" {BASE}")]
    assert base.startswith("present image 3 tasks ")
    assert " MB linux/" in base
    assert "to build build 1 task - - set/c/environment/Dockerfile" in lines
    assert lines[-1].startswith("9 images: 3 missing, ")
    assert advice.count("connection refused") == 1  # of a registry that is asked once
    assert f"{GONE}:1, {GONE}:2, {GONE}:3: " in advice
    assert "--build pulls and builds all images" in advice
    assert main(["images", "set/c", "--base-image", f"{GONE}:1={BASE}"]) == 1
    assert f"{GONE}:1 ({BASE})" in printed(capsys)[0][1]


def test_what_is_pulled_and_built(
    docker_api: docker.APIClient,
    tmp_path: Path,
    own_tag: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "registry").mkdir()
    registry = ImageRegistry(tmp_path / "registry")
    try:
        base = f"{registry.where}/base"
        docker_api.tag(BASE, base, own_tag)
        docker_api.push(base, tag=own_tag)
        docker_api.remove_image(f"{base}:{own_tag}")
        write_task("a", f"FROM {base}:{own_tag}", f"ENV N={own_tag}")
        write_task("b", f"FROM {base}:{own_tag}", "COPY own /", f"ENV N={own_tag}")
        Path("set/b/environment/own").touch()
        assert main(["images", "set"]) == 1
        lines, advice = printed(capsys)
        assert lines[0].startswith("to pull image 2 tasks - linux/")
        assert lines[-1] == "3 images: 1 to pull, 2 to build"
        assert "--pull pulls the missing images" in advice
        assert main(["images", "set", "--pull"]) == 1
        lines, advice = printed(capsys)
        assert advice.count(f"pulling {base}:{own_tag} (first use)") == 1
        assert lines[-1] == "3 images: 2 to build, 1 present"
    finally:
        registry.stop()
    assert main(["images", "set", "--build", "--concurrency", "2"]) == 0
    lines, advice = printed(capsys)
    assert lines[-1] == "3 images: 3 present"
    assert advice.count("building pytest-intercode/dockerfile:") == 2
    assert main(["images", "set"]) == 0


@pytest.mark.usefixtures("needs_docker")
def test_what_cannot_be_pulled_or_built(capsys: pytest.CaptureFixture[str]) -> None:
    write_task("a", f"FROM {GONE}:1")
    write_task("b", f"FROM {GONE}:2")
    write_task("c", f"FROM {BASE}", "RUN echo it broke; exit 7")
    assert main(["images", "set", "--build"]) == 1
    lines, problems = printed(capsys)
    assert lines[-1] == "6 images: 2 missing, 3 to build, 1 present"
    assert problems.count("cannot be pulled") == 1
    assert f"{GONE}:1, {GONE}:2: base image {GONE}:1 of " in problems
    assert "c/environment/Dockerfile does not build" in problems


@pytest.mark.usefixtures("needs_docker")
def test_one_that_is_wrong_does_not_hide_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    write_task("a", "FROM Upper/Case:1")
    write_task("b", f"FROM {BASE}", toml='[environment]\ndocker_image = "a b"\n')
    write_task("c", f"FROM {BASE}", "COPY . /app")
    Path("set/c/environment/link").symlink_to("/etc")
    write_task("d", f"FROM {BASE}", toml="[")
    assert main(["images", "set", "--base-image", f"{BASE}={GONE}:1"]) == 1
    lines, problems = printed(capsys)
    assert lines[-1].startswith("6 images: 5 missing, 1 to build")
    assert "missing image 1 task - - a b, else its Dockerfile is built" in lines
    wrong_names = "Upper/Case:1, set/a/environment/Dockerfile"
    assert f"{wrong_names}: 'Upper/Case:1' cannot be the name of an image: " in problems
    assert "set/c/environment/Dockerfile: " in problems
    assert "link: is a link that leads out of " in problems
    assert f"{BASE} ({GONE}:1): " in problems
    assert "1 skipped task left out; `pytest-intercode lint` says why" in problems
    assert main(["images", "set/c", "--build"]) == 1
    assert "link: is a link that leads out of " in printed(capsys)[1]


@pytest.mark.usefixtures("bubblewrap")
def test_an_interrupt_ends_builds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    build_start, closed = threading.Event(), threading.Event()

    def build(provider: SandboxProvider, source: ImageSource) -> None:
        if source.name.endswith("a/environment/Dockerfile"):
            assert build_start.wait(30)
            raise KeyboardInterrupt
        build_start.set()
        assert closed.wait(30)

    monkeypatch.setattr(SandboxProvider, "image", build)
    monkeypatch.setattr(SandboxProvider, "close", lambda provider: closed.set())
    for name in ("a", "b"):
        write_task(name, f"FROM {BASE}", f"ENV N={name}")
    began = time.monotonic()
    assert main(["images", "set", "--build", "--sandbox", "bubblewrap"]) == 130
    assert time.monotonic() - began < 15
    assert "interrupted" in printed(capsys)[1]


@pytest.mark.usefixtures("bubblewrap")
def test_bubblewrap_has_systems(capsys: pytest.CaptureFixture[str]) -> None:
    write_task("a", f"FROM {GONE}:1")
    assert main(["images", "bash", "set", "--sandbox", "bubblewrap"]) == 1
    lines, problems = printed(capsys)
    assert lines[0] == "missing image 1 task - - set/a/environment/Dockerfile"
    assert lines[1].startswith("present image ")
    assert lines[1].endswith("bash.Dockerfile (this machine's system)")
    assert "is made by Docker; for bubblewrap, unpack it" in problems
    assert main(["images", "bash", "--sandbox", "bubblewrap", "--build"]) == 0


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("options", [(), ("--pull",)], ids=["list", "pull"])
def test_images_that_lack_the_same_share_a_line(
    options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    write_task("a", f"FROM {GONE}:1")
    write_task("b", f"FROM {GONE}:2")
    assert main(["images", "set", "--sandbox", "bubblewrap", *options]) == 1
    names = ", ".join(f"set/{name}/environment/Dockerfile" for name in ("a", "b"))
    problems = printed(capsys)[1]
    assert f"pytest-intercode: {names}: the image " in problems
    assert problems.count("is made by Docker") == 1


@pytest.mark.usefixtures("bubblewrap")
def test_further_images_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(7):
        install = f"RUN apt-get install -y no-such-package-{min(number, 5)}"
        write_harbor(
            Path("set", f"t{number}"),
            tests="true",
            solution="true",
            dockerfile=f"FROM {BASE}\n{install}\n",
        )
    assert main(["images", "set", "--sandbox", "bubblewrap"]) == 1
    problems = printed(capsys)[1]
    assert problems.count("apt-get install no-such-package-") == 5
    line = "pytest-intercode: 2 further images cannot be pulled or built, for other reasons\n"
    assert line in problems


def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["images", "bsh"]) == 2
    problem = printed(capsys)[1]
    assert problem.count("\n") == 1
    assert "images bsh: there is no such suite" in problem
    assert "bash" in problem
