"""Images of Dockerfiles that are not ours: what they need, when they are built, and how often."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.task import ImageSource
from pytest_intercode.errors import ImageError, ImageMissing, SandboxError
from pytest_intercode.sandboxes.build import copied_modes, one_builder
from pytest_intercode.sandboxes.docker.engine import DockerEngine
from pytest_intercode.sandboxes.docker.images import DockerImages
from pytest_intercode.sandboxes.images import (
    ImageNotReady,
    ImageWait,
    waiting_for_images,
    without_waiting,
)
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings

_BASE = "debian:bookworm-slim"
_SOON = 60.0  # seconds


def images(engine: DockerEngine, **replacements: str) -> DockerImages:
    base_images = {name.replace("_", ":"): to for name, to in replacements.items()}
    return DockerImages(engine.api, SandboxSettings(base_images=base_images))


def variables(engine: DockerEngine, name: str) -> list[str]:
    found: list[str] = engine.api.inspect_image(name)["Config"]["Env"]  # type: ignore[no-untyped-call]
    return found


def dockerfile(folder: Path, text: str) -> Path:
    path = folder / "Dockerfile"
    path.write_text(text)
    return path


def test_a_base_image_is_replaced(docker_engine: DockerEngine, tmp_path: Path) -> None:
    path = dockerfile(tmp_path, "FROM no-such-image:1 AS one\nFROM one\nENV A=1\n")
    name = images(docker_engine, **{"no-such-image_1": _BASE}).resolve(ImageSource(dockerfile=path))
    assert "A=1" in variables(docker_engine, name)
    assert path.read_text().startswith("FROM no-such-image")


def test_modes_of_copied_files_need_no_other_builder(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    text = "COPY --chmod=755 a b /x/\nCOPY --chown=1:1 --chmod=0600 f* --link /y\nADD c /z"
    plain, modes = copied_modes(text)
    assert plain == "COPY a b /x/\nCOPY --chown=1:1 f* --link /y\nADD c /z"
    assert modes == {"a": 0o755, "b": 0o755, "f*": 0o600}
    (tmp_path / "run.sh").write_text("#!/bin/sh\necho ran\n")
    path = dockerfile(tmp_path, f'FROM {_BASE}\nCOPY --chmod=755 run.sh /r\nRUN ["/r"]\n')
    assert images(docker_engine).resolve(ImageSource(dockerfile=path))


def test_another_text_is_built(docker_engine: DockerEngine, tmp_path: Path) -> None:
    path = dockerfile(tmp_path, "FROM no-such-image")
    source = ImageSource(dockerfile=path, text=f"FROM {_BASE}\nENV B=2\nCOPY Dockerfile /x\n")
    name = images(docker_engine).resolve(source)
    assert "B=2" in variables(docker_engine, name)


def test_a_dockerfile_stands_in_for_an_image_that_cannot_be_had(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    path = dockerfile(tmp_path, f"FROM {_BASE}\nENV C=3\n")
    name = images(docker_engine).resolve(ImageSource(dockerfile=path, image="localhost:1/none:1"))
    assert "C=3" in variables(docker_engine, name)
    assert images(docker_engine).resolve(ImageSource(dockerfile=path, image=_BASE)) == _BASE


def test_an_image_that_cannot_be_had_is_named(docker_engine: DockerEngine, tmp_path: Path) -> None:
    path = dockerfile(tmp_path, "FROM localhost:1/none:1\n")
    with pytest.raises(
        ImageError,
        match=r"base image localhost:1/none:1 of .*Dockerfile is not on this machine .* "
        r"--intercode-base-image localhost:1/none:1=REPLACEMENT",
    ):
        images(docker_engine).resolve(ImageSource(dockerfile=path))


def test_a_dockerfile_that_does_not_build_shows_its_last_lines(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    path = dockerfile(tmp_path, f"FROM {_BASE}\nCOPY nothing /x\n")
    with pytest.raises(ImageError, match=r"Dockerfile does not build: .*nothing[\s\S]*Step 2/4"):
        images(docker_engine).resolve(ImageSource(dockerfile=path))


# -- what is copied and mounted from images


def test_an_image_that_is_copied_from_is_replaced(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    path = dockerfile(
        tmp_path,
        f"FROM {_BASE} AS one\nFROM {_BASE}\nCOPY --from=no-such-image:1 /etc/os-release /x\n"
        "COPY --from=one /etc/os-release /y\nCOPY --from=0 /etc/os-release /z\n",
    )
    name = images(docker_engine, **{"no-such-image_1": _BASE}).resolve(ImageSource(dockerfile=path))
    assert docker_engine.api.inspect_image(name)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    "line",
    [
        "COPY --from=localhost:1/none:1 /x /y",
        "COPY --chown=1 \\\n  --from=localhost:1/none:1 /x /y",
        "RUN --mount=type=bind,from=localhost:1/none:1,target=/x true",
    ],
)
def test_an_image_that_is_copied_from_and_missing_is_named(
    docker_engine: DockerEngine, tmp_path: Path, line: str
) -> None:
    path = dockerfile(tmp_path, f"FROM {_BASE}\n{line}\n")
    with pytest.raises(
        ImageError, match=r"--intercode-base-image localhost:1/none:1=REPLACEMENT"
    ) as raised:
        images(docker_engine).resolve(ImageSource(dockerfile=path))
    assert raised.value.image == "localhost:1/none:1"


def test_a_replacement_that_is_missing_is_named_with_what_it_replaces(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    path = dockerfile(tmp_path, "ARG V=1\nFROM written:$V\n")
    with pytest.raises(
        ImageError, match=r"none:1 of .*, which replaces written:1, .* written:1=REPLACEMENT"
    ):
        images(docker_engine, **{"written_1": "localhost:1/none:1"}).resolve(
            ImageSource(dockerfile=path)
        )


# -- what an image depends on


def folders(tmp_path: Path, text: str, count: int = 3) -> list[ImageSource]:
    """Return the sources of equal Dockerfiles, each in a folder with files of its own."""
    sources = []
    for number in range(count):
        folder = tmp_path / f"task-{number}"
        folder.mkdir()
        (folder / "task.toml").write_text(f"id = {number}\n")
        sources.append(ImageSource(dockerfile=dockerfile(folder, text)))
    return sources


def test_equal_dockerfiles_that_copy_nothing_are_one_build(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    lines: list[str] = []
    made = DockerImages(docker_engine.api, progress=lines.append)
    text = f"FROM {_BASE}\nENV D={secrets.token_hex(4)}\nRUN [ ! -e /task.toml ]\n"
    sources = folders(tmp_path, text)
    assert sources[1].dockerfile is not None
    sources[1].dockerfile.chmod(0o755)
    with ThreadPoolExecutor(len(sources)) as threads:
        names = list(threads.map(made.resolve, sources))
    assert len(set(names)) == 1
    assert lines == [f"building {names[0]} from Dockerfile (first use)"]


def test_dockerfiles_that_copy_are_built_for_each_folder(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    made = DockerImages(docker_engine.api)
    text = f"FROM {_BASE}\nCOPY task.toml /\n"
    assert len(set(map(made.resolve, folders(tmp_path, text)))) == 3


def test_triggers_of_a_base_read_the_context(docker_engine: DockerEngine, tmp_path: Path) -> None:
    base = f"pytest-intercode-test/onbuild:{secrets.token_hex(4)}"
    source = ImageSource(
        dockerfile=dockerfile(tmp_path, f"FROM {_BASE}\nONBUILD COPY task.toml /\n")
    )
    made = DockerImages(docker_engine.api)
    docker_engine.api.tag(made.resolve(source), "pytest-intercode-test/onbuild", base.split(":")[1])
    try:
        names = list(map(made.resolve, folders(tmp_path, f"FROM {base}\nENV X=1\n")))
        assert len(set(names)) == 3
    finally:
        docker_engine.api.remove_image(base)


def test_times_and_modes_of_a_context_do_not_matter(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    made = DockerImages(docker_engine.api)
    path = dockerfile(tmp_path, f"FROM {_BASE}\nCOPY a /\n")
    file = tmp_path / "a"
    file.write_text("a")
    file.chmod(0o600)
    first = made.resolve(ImageSource(dockerfile=path))
    for changed in (file, path):
        changed.chmod(0o664)
        os.utime(changed, (0, 0))
    assert made.resolve(ImageSource(dockerfile=path)) == first
    file.chmod(0o755)
    assert made.resolve(ImageSource(dockerfile=path)) != first


def test_what_cannot_be_had_is_tried_once(docker_engine: DockerEngine, tmp_path: Path) -> None:
    lines: list[str] = []
    made = DockerImages(docker_engine.api, progress=lines.append)
    for number in range(3):
        folder = tmp_path / f"missing-{number}"
        folder.mkdir()
        text = f"FROM localhost:1/none:1\nENV N={number}\n"
        with pytest.raises(ImageError, match="cannot be pulled"):
            made.resolve(ImageSource(dockerfile=dockerfile(folder, text)))
    assert lines == ["pulling localhost:1/none:1 (first use)"]
    for source in folders(tmp_path, f"FROM {_BASE}\nRUN exit {secrets.randbelow(200) + 1}\n"):
        with pytest.raises(ImageError, match="does not build"):
            made.resolve(source)
    assert len(lines) == 2


# -- builds that take long


class SlowBuild:
    """A Dockerfile whose build goes on until it is let go."""

    def __init__(self, engine: DockerEngine, folder: Path, text: str = "") -> None:
        self._api = engine.api
        self._mark = secrets.token_hex(8)
        wait = f"RUN : {self._mark}; until [ -e /go ]; do sleep 0.05; done"
        self.source = ImageSource(dockerfile=dockerfile(folder, f"FROM {_BASE}\n{wait}\n{text}"))

    def containers(self) -> list[str]:
        """Return the containers in which it is built."""
        rows: list[dict[str, Any]] = self._api.containers()
        return [row["Id"] for row in rows if self._mark in row["Command"]]

    def let_go(self) -> None:
        """Let it end."""
        for container in self.containers():
            command = self._api.exec_create(container, ["touch", "/go"])
            self._api.exec_start(command["Id"])


def until(condition: Callable[[], object]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + _SOON
    while not condition():
        assert time.monotonic() < end, "it never came to it"
        time.sleep(0.02)


def makers() -> list[threading.Thread]:
    """Return the threads that make images."""
    return [thread for thread in threading.enumerate() if thread.name == "intercode-image"]


@pytest.fixture
def slow(docker_engine: DockerEngine, tmp_path: Path) -> Iterator[SlowBuild]:
    """Return a build that waits; it is let go when the test is over."""
    folder = tmp_path / "slow"
    folder.mkdir()
    made = SlowBuild(docker_engine, folder)
    yield made
    made.let_go()


@pytest.fixture
def provider(docker_engine: DockerEngine) -> Iterator[SandboxProvider]:
    """Return a provider on Docker."""
    made = SandboxProvider(SandboxSettings("docker"))
    yield made
    made.close()


def test_a_slow_build_keeps_nothing_else_from_being_built(
    docker_engine: DockerEngine, slow: SlowBuild, tmp_path: Path, provider: SandboxProvider
) -> None:
    same = tmp_path / "same"
    same.mkdir()
    assert slow.source.dockerfile is not None
    equal = ImageSource(dockerfile=dockerfile(same, slow.source.dockerfile.read_text()))
    others = [f"FROM {_BASE}\nENV OTHER={secrets.token_hex(4)}\n" for _ in range(2)]
    with ThreadPoolExecutor(8) as threads:
        waiting = [threads.submit(provider.image, source) for source in (slow.source, equal)]
        until(slow.containers)
        for number, text in enumerate(others):
            folder = tmp_path / f"other-{number}"
            folder.mkdir()
            source = ImageSource(dockerfile=dockerfile(folder, text))
            assert threads.submit(provider.image, source).result(_SOON)
        assert len(slow.containers()) == 1
        assert not any(image.done() for image in waiting)
        slow.let_go()
        assert len({image.result(_SOON) for image in waiting}) == 1


def test_a_build_is_waited_for_until_the_waiting_is_called_off(
    slow: SlowBuild, provider: SandboxProvider
) -> None:
    first, second = ImageWait("one", 1), ImageWait("two", 2)

    def wait_for(wait: ImageWait) -> str:
        with waiting_for_images(wait):
            return provider.image(slow.source)

    with ThreadPoolExecutor(2) as threads:
        given_up, kept = (threads.submit(wait_for, wait) for wait in (first, second))
        until(slow.containers)
        first.cancel()
        with pytest.raises(SandboxError, match="no longer waited for"):
            given_up.result(_SOON)
        assert not kept.done()
        with without_waiting("three"), pytest.raises(ImageNotReady):
            provider.image(slow.source)
        slow.let_go()
        name = kept.result(_SOON)
    with without_waiting("three"):
        assert provider.image(slow.source) == name


def test_builds_end_with_the_run(slow: SlowBuild, provider: SandboxProvider) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(provider.image, slow.source)
        until(slow.containers)
        provider.close()
        with pytest.raises(SandboxError, match="the run is over"):
            waiting.result(_SOON)
    until(lambda: not slow.containers())
    assert not makers()


def test_what_another_process_builds_is_not_waited_for_at_the_end(
    provider: SandboxProvider, tmp_path: Path
) -> None:
    name = f"localhost:1/{secrets.token_hex(4)}:1"
    source = ImageSource(dockerfile=dockerfile(tmp_path, f"FROM {name}\n"))
    with one_builder(name), ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(provider.image, source)
        until(makers)
        assert not waiting.done()
        provider.close()
        assert not makers()
        with pytest.raises(SandboxError, match="the run is over"):
            waiting.result(_SOON)


def test_one_episode_has_the_error_of_a_missing_image(
    provider: SandboxProvider, tmp_path: Path
) -> None:
    sources = folders(tmp_path, "FROM localhost:1/none:1\nCOPY task.toml /\n")
    for number, source in enumerate(sources):
        for _ in range(2):  # a second try has the error again
            with (
                waiting_for_images(ImageWait(f"task-{number}", number)),
                pytest.raises(ImageError) as raised,
            ):
                provider.image(source)
            if number:
                assert type(raised.value) is ImageMissing
                assert str(raised.value) == "image localhost:1/none:1 is missing: see task-0"
            else:
                assert type(raised.value) is ImageError
