"""What Podman gets in another form than Docker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.errors import EngineUnavailable
from pytest_intercode.sandboxes import seccomp
from pytest_intercode.sandboxes.docker.podman import Podman, is_podman

FACTS: dict[str, Any] = {"BuildahVersion": "1.28.2", "DefaultRuntime": "crun", "CgroupVersion": "2"}
CONFIG: dict[str, Any] = {
    "SecurityOpt": ["no-new-privileges", f"seccomp={seccomp.profile()}"],
    "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
    "PidsLimit": 256,
}


def test_the_filter_is_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert is_podman(FACTS)
    assert not is_podman({"DefaultRuntime": "runc"})
    podman = Podman(FACTS)
    adapted = podman.adapted(CONFIG)
    privileges, filtered = adapted.pop("SecurityOpt")
    assert privileges == "no-new-privileges"
    path = Path(filtered.removeprefix("seccomp="))
    assert json.loads(path.read_text()) == json.loads(seccomp.profile())
    assert list(path.parent.iterdir()) == [path]
    assert Podman(FACTS).adapted(CONFIG)["SecurityOpt"] == [privileges, filtered]
    assert [limit["Name"] for limit in adapted.pop("Ulimits")] == ["core", "nofile", "nproc"]
    assert adapted == {"PidsLimit": 256}
    assert podman.runtime == "crun"


def test_what_is_mounted_without_a_size_is_masked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    adapted = Podman(FACTS | {"CgroupVersion": "1"}).adapted(CONFIG)
    assert adapted["SecurityOpt"][2:] == ["mask=/sys/fs/cgroup"]


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(EngineUnavailable, match="is needed for Podman: Not a directory"):
        Podman(FACTS)
