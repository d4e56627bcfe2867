"""What an image declares beside its files: volumes, which are graded as all else, and checks."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_intercode.core.task import ImageSource
from pytest_intercode.sandboxes.attached import AttachedSandbox
from pytest_intercode.sandboxes.docker.engine import DockerEngine
from pytest_intercode.sandboxes.docker.images import DockerImages
from pytest_intercode.sandboxes.listing import ListingProbe
from pytest_intercode.sandboxes.overlay import OverlayProbe, Unreadable
from pytest_intercode.sandboxes.protocol import Entry, SandboxSpec
from pytest_intercode.sandboxes.reading import GradingLimits, Reading

_SOON = 30.0
_IMAGE = """\
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN mkdir -p /t/d /t/inner/sub && echo a >/t/a && echo b >/t/d/b && echo c >/t/inner/c
VOLUME /t /t/inner
HEALTHCHECK --interval=1s CMD touch /checked /t/checked
"""


@pytest.fixture
def sandbox(docker_engine: DockerEngine, tmp_path: Path) -> Iterator[AttachedSandbox]:
    path = tmp_path / "Dockerfile"
    path.write_text(_IMAGE)
    image = DockerImages(docker_engine.api).resolve(ImageSource(dockerfile=path))
    box = docker_engine.launch(SandboxSpec(image))
    yield box
    box.close()


def _walk(sandbox: AttachedSandbox) -> ListingProbe | OverlayProbe:
    try:
        return sandbox.layers()
    except Unreadable as why:
        pytest.skip(str(why))


def _listing(sandbox: AttachedSandbox) -> ListingProbe | OverlayProbe:
    return ListingProbe(sandbox.list_files, sandbox.outside, sandbox.volumes)


def _file(text: str) -> Entry:
    return Entry("f", 0o644, 0, 0, hashlib.sha256(text.encode()).hexdigest())


@pytest.mark.parametrize("make", [_walk, _listing])
def test_changes_in_volumes_are_seen(
    make: Callable[[AttachedSandbox], ListingProbe | OverlayProbe], sandbox: AttachedSandbox
) -> None:
    probe = make(sandbox)
    probe.mark()
    script = """
        cd /t; echo new >new; rm -r d; echo more >>a; chmod 700 .; mv inner/c inner/moved
        mkdir inner/sub/x; ln -s /etc/passwd inner/link; echo out >/out
    """
    assert sandbox.run(script, _SOON).status == 0
    changes = probe.changes()
    assert changes.entries == {
        "/out": _file("out\n"),
        "/t": Entry("d", 0o700, 0, 0),
        "/t/new": _file("new\n"),
        "/t/d": None,
        "/t/a": _file("a\nmore\n"),
        "/t/inner/c": None,
        "/t/inner/moved": _file("c\n"),
        "/t/inner/sub/x": Entry("d", 0o755, 0, 0),
        "/t/inner/link": Entry("l", 0o777, 0, 0, "/etc/passwd"),
    }
    reading = Reading(GradingLimits())
    assert sorted(probe.below(["/t"], reading)) == [
        *("/t", "/t/a", "/t/inner", "/t/inner/link", "/t/inner/moved", "/t/inner/sub"),
        *("/t/inner/sub/x", "/t/new"),
    ]
    assert probe.below(["/t/d", "/t/inner/sub"], reading) == ["/t/inner/sub", "/t/inner/sub/x"]
    at = ["/t", "/t/a", "/t/d/b", "/t/inner/moved", "/t/inner/c", "/t/inner/link/x"]
    found = probe.entries(at)
    assert found["/t"] == Entry("d", 0o700, 0, 0)
    assert [path for path in at if found[path] is None] == ["/t/d/b", "/t/inner/c", at[-1]]
    packed = probe.archive(["/t/a", "/t/inner/moved", "/t/d/b"], reading)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert archive.getnames() == ["t/a", "t/inner/moved"]
        member = archive.extractfile("t/inner/moved")
        assert member is not None
        assert member.read() == b"c\n"


def test_stamps_tell_volumes_apart(sandbox: AttachedSandbox) -> None:
    _walk(sandbox)
    sandbox.mark()
    # What changed within the tick before it is read equals nothing: a container is that young.
    time.sleep(0.05)
    before = sandbox.stamps()
    assert before is not None
    sandbox.run("echo new >/t/inner/new", _SOON)
    after = sandbox.stamps()
    assert after is not None
    assert {path for path in after if after[path] != before.get(path)} == {
        "/t/inner",
        "/t/inner/new",
    }


def test_a_health_check_of_the_image_does_not_run(sandbox: AttachedSandbox) -> None:
    said = sandbox.run("sleep 3; ls / /t", _SOON).output.decode()
    assert "checked" not in said


def test_volumes_go_with_their_sandbox(
    docker_engine: DockerEngine, sandbox: AttachedSandbox
) -> None:
    told = docker_engine.api.inspect_container(sandbox.name)
    volumes = [mount["Name"] for mount in told["Mounts"]]
    assert len(volumes) == 2
    sandbox.close()
    until = os.times().elapsed + _SOON
    while os.times().elapsed < until:
        there = {each["Name"] for each in docker_engine.api.volumes()["Volumes"] or ()}
        if there.isdisjoint(volumes):
            return
    pytest.fail(f"volumes are left: {there & set(volumes)}")
