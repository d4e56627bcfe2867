"""The verifier kit as it is made where this machine is not Linux: with the Python of a sandbox."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from pytest_intercode.core.task import ImageSource, Limits
from pytest_intercode.environments.swe import kit
from pytest_intercode.errors import FetchError
from pytest_intercode.sandboxes.docker.engine import DockerEngine
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from tests.support.alpine import make_image


@pytest.mark.slow
def test_the_kit_is_made_and_runs(
    docker_engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kit, "own_platform", lambda: None)
    lines: list[str] = []
    try:
        folder = kit.make_kit(lines.append)
        assert kit.add_set(("iniconfig==2.1.0",), lines.append)
    except FetchError as error:
        pytest.skip(str(error))
    assert folder == kit.kit_folder()
    assert "-linux-" in folder.name
    assert lines[0].startswith("copying the Python of a sandbox for linux/")
    assert kit.holds(("iniconfig==2.1.0",))
    image = make_image(docker_engine.api)  # without a Python, and with busybox's programs
    with contextlib.closing(SandboxProvider(SandboxSettings("docker"))) as provider:
        spec = SandboxSpec(
            provider.image(ImageSource(image=image)),
            Limits(memory=1024**3),
            readonly=((str(folder), kit.AT),),
        )
        with contextlib.closing(provider.acquire(spec)) as sandbox:
            script = "uv run --with iniconfig==2.1.0 python -c 'import iniconfig; print(6 * 7)'"
            execution = sandbox.run(kit.settings() + script, 120)
            assert execution.output == b"42\n", execution.output
            assert execution.status == 0
