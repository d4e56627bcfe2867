"""Images of Dockerfiles that are not ours: their base images, their text, and what stands in."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_intercode.core.task import ImageSource
from pytest_intercode.errors import ImageError
from pytest_intercode.sandboxes.docker.engine import DockerEngine
from pytest_intercode.sandboxes.docker.images import Images, copied_modes, replaced_bases
from pytest_intercode.suites.harbor.dockerfile import bases

_BASE = "debian:bookworm-slim"


def test_base_images_of_from_lines() -> None:
    text = "FROM a AS x\n from --platform=p b:1\nFROM x\nFROM scratch\nFROM ${V}\nRUN echo FROM no"
    assert bases(text) == ["a", "b:1"]
    assert replaced_bases(text, {"b:1": "c", "x": "x", "no": "yes"}) == text.replace("b:1", "c")


def images(engine: DockerEngine, **replacements: str) -> Images:
    return Images(engine.api, {name.replace("_", ":"): to for name, to in replacements.items()})


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
