"""Which backend a run has, and what is said where there is none."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import docker
import pytest

from pytest_intercode.cli import main
from pytest_intercode.core.task import ImageSource
from pytest_intercode.errors import ConfigurationError, EngineUnavailable, ImageError
from pytest_intercode.sandboxes.bubblewrap import process
from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
from pytest_intercode.sandboxes.bubblewrap.images import Systems
from pytest_intercode.sandboxes.choice import Choice, choose
from pytest_intercode.sandboxes.docker.engine import DockerEngine
from pytest_intercode.sandboxes.protocol import HOST, SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.system.files import bundled_folder

NOWHERE = "unix:///nowhere"
LABEL = f"docker (DOCKER_HOST={NOWHERE})"
DOCKERFILES = bundled_folder("dockerfiles")


def chosen(backend: str = "auto") -> Choice:
    return choose(SandboxSettings(backend))[1]


def test_what_is_asked_for_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", NOWHERE)
    assert str(chosen("docker")) == LABEL
    assert str(chosen("bubblewrap")) == "bubblewrap"


@pytest.mark.usefixtures("bubblewrap")
def test_auto_without_docker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", NOWHERE)
    assert str(chosen()) == f"bubblewrap (no Docker engine answers at {NOWHERE})"


@pytest.mark.usefixtures("needs_docker")
def test_auto_with_docker() -> None:
    assert str(chosen()) == "docker"


def test_auto_without_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", NOWHERE)
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert str(chosen()) == (
        f"{LABEL} (no Docker engine answers at {NOWHERE}, and bubblewrap is not installed)"
    )
    with pytest.raises(EngineUnavailable, match="bubblewrap is not installed: `apt-get install"):
        Bubblewrap(root=False)
    provider = SandboxProvider()
    with pytest.raises(EngineUnavailable) as raised:
        provider.acquire(SandboxSpec("none"))
    for word in ("docs.docker.com", "apt-get install bubblewrap", "--intercode-sandbox=bubblewrap"):
        assert word in str(raised.value)
    assert "scripts/" not in str(raised.value)  # they are in the repository alone


@pytest.mark.parametrize(
    ("version", "old"), [("0.4.1", True), ("0.5.0", False), ("0.11.0", False), ("1.0", False)]
)
def test_a_bubblewrap_that_is_too_old_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, old: bool
) -> None:
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\necho bubblewrap {version}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("DOCKER_HOST", NOWHERE)
    if not old:
        assert process.find_program() == str(program)
        assert chosen().backend == "bubblewrap"
        return
    with pytest.raises(EngineUnavailable, match=r"^bubblewrap 0\.4 is too old: 0\.5 or newer is "):
        Bubblewrap(root=False)
    assert str(chosen()) == (
        f"{LABEL} (no Docker engine answers at {NOWHERE}, and bubblewrap 0.4 is too old)"
    )


@pytest.mark.parametrize(
    ("setting", "value", "hint"),
    [
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces=10000"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ],
)
def test_settings_that_forbid_it_are_named(
    tmp_path: Path, setting: str, value: str, hint: str
) -> None:
    path = tmp_path / setting
    path.parent.mkdir()
    path.write_text(f"{value}\n")
    assert process.find_forbidding_setting(tmp_path).endswith(f"is {value}: `sysctl -w {hint}`")
    path.write_text(f"{1 - int(value)}\n")
    assert process.find_forbidding_setting(tmp_path) == ""


@pytest.mark.usefixtures("small_suite", "bubblewrap")
def test_header_and_run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", NOWHERE)
    result = pytester.runpytest("suite.yaml", "--intercode-agent=oracle")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        [
            "intercode: agent oracle, profile strict, "
            f"sandbox bubblewrap (no Docker engine answers at {NOWHERE})"
        ]
    )


@pytest.mark.usefixtures("small_suite")
def test_wrong_backend(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("suite.yaml", "--intercode-sandbox=bubblwrap")
    result.stderr.fnmatch_lines(
        [
            "ERROR: --intercode-sandbox=bubblwrap: allowed are auto, docker, bubblewrap, "
            "kubernetes. Did you mean 'bubblewrap'?"
        ]
    )


def test_root_file_system_is_for_bubblewrap(tmp_path: Path) -> None:
    provider = SandboxProvider(SandboxSettings(rootfs=tmp_path))
    assert str(provider.choice) == "bubblewrap (--intercode-rootfs is given)"
    provider.close()


@pytest.mark.usefixtures("small_suite")
def test_no_root_file_system(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("suite.yaml", "--intercode-rootfs=nowhere")
    result.stderr.fnmatch_lines(["ERROR: --intercode-rootfs=*/nowhere: there is no such folder"])


def test_image_of_a_root_file_system(tmp_path: Path) -> None:
    for name in ("bash", "python"):
        Path(tmp_path, name, "usr/bin").mkdir(parents=True)
        Path(tmp_path, name, "usr/bin/bash").touch()
    bash = ImageSource(dockerfile=DOCKERFILES / "bash.Dockerfile")
    assert Systems(DOCKERFILES, tmp_path).resolve(bash) == str(tmp_path / "bash")
    assert Systems(DOCKERFILES, tmp_path / "python").resolve(bash) == str(tmp_path / "python")
    with pytest.raises(ImageError, match="neither it nor ctf in it is an unpacked root file"):
        Systems(DOCKERFILES, tmp_path).resolve(
            ImageSource(dockerfile=DOCKERFILES / "ctf.Dockerfile")
        )


def test_image_of_the_host(tmp_path: Path) -> None:
    said: list[str] = []
    systems = Systems(DOCKERFILES, progress=said.append)
    bash = ImageSource(dockerfile=DOCKERFILES / "bash.Dockerfile")
    assert [systems.resolve(bash) for _ in range(2)] == [HOST] * 2
    assert len(said) <= 1  # what this machine lacks is told once
    own = tmp_path / "Dockerfile"
    for text in ("FROM debian\n", "ARG BASE=debian:bookworm-slim\nFROM ${BASE}\n"):
        own.write_text(text)
        assert systems.resolve(ImageSource(dockerfile=own)) == HOST
    own.write_text("FROM debian\nRUN touch /made\n")
    for source in (ImageSource(image="mine:1"), ImageSource(dockerfile=own)):
        with pytest.raises(ImageError, match="is made by Docker; for bubblewrap, unpack"):
            systems.resolve(source)


MYSQL = """\
env: sql
defaults:
  database: {engine: mysql, name: shop, script: shop.sql}
tasks:
  - {id: looks, query: Name all items., gold: SELECT name FROM item ORDER BY id}
  - {id: writes, query: Raise all prices by 1., gold: UPDATE item SET price = price + 1}
"""
SHOP = """\
CREATE DATABASE shop; USE shop;
CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20), price INT);
INSERT INTO item VALUES (1, 'pen', 2), (2, 'ink', 3);
"""


@pytest.mark.usefixtures("bubblewrap")
def test_mysql(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(pytester.path / "cache"))
    pytester.path.joinpath("suite.yaml").write_text(MYSQL)
    pytester.path.joinpath("shop.sql").write_text(SHOP)
    result = pytester.runpytest(
        "suite.yaml", "--intercode-agent=oracle", "--intercode-sandbox=bubblewrap"
    )
    if any(shutil.which(name, path="/usr/sbin:/usr/bin") for name in ("mariadbd", "mysqld")):
        result.assert_outcomes(passed=2)
    else:
        result.assert_outcomes(errors=2)
        line = "*the engine mysql need a server, but this machine has none: apt-get install *"
        result.stdout.fnmatch_lines([line])


# -- Docker's runtimes


@pytest.mark.usefixtures("small_suite", "needs_docker")
def test_a_runtime_that_the_engine_does_not_know(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest(
        "suite.yaml", "--intercode-runtime=runk", "--intercode-agent=oracle"
    )
    line = "ERROR: --intercode-runtime=runk: the Docker engine has no such runtime. "
    result.stderr.fnmatch_lines(
        [f"{line}*Available: *runc*. To add others, edit its daemon.json, *"]
    )
    assert main(["audit", "bash", "--limit=1", "--runtime=runk"]) == 2


def test_commands_check_hosts_before_anything_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = "--docker-host=unix:///nowhere"
    assert main(["audit", "bash", "--limit=1", host]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"{host}: no Docker engine answers there: No such file or directory" in said


@pytest.mark.usefixtures("small_suite")
def test_runtimes_are_dockers(pytester: pytest.Pytester) -> None:
    given = ("suite.yaml", "--intercode-agent=oracle", "--intercode-runtime=runc")
    result = pytester.runpytest(*given, "--intercode-sandbox=bubblewrap")
    reason = "bubblewrap has no runtimes, only docker and kubernetes do; remove it"
    result.stderr.fnmatch_lines([f"ERROR: --intercode-runtime=runc: {reason}"])
    result = pytester.runpytest(*given, f"--intercode-rootfs={pytester.path}")
    result.stderr.fnmatch_lines(["ERROR: --intercode-runtime: a runtime needs Docker, *"])


def test_labels_of_nodes_are_refused_as_they_are_written() -> None:
    settings = SandboxSettings("docker", kube_nodes={"pool": "agents", "disk": "ssd"})
    with pytest.raises(ConfigurationError) as raised:
        SandboxProvider(settings).check({"kube_nodes": "--intercode-kube-node"})
    assert str(raised.value) == (
        "--intercode-kube-node=pool=agents,disk=ssd: docker has no nodes, only kubernetes does; "
        "remove it, or use --intercode-sandbox=kubernetes"
    )


@pytest.mark.usefixtures("small_suite", "needs_docker")
def test_a_run_with_a_runtime(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest(
        "suite.yaml", "--intercode-agent=oracle", "--intercode-runtime=runc", "-k", "writes"
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["intercode: *, sandbox docker, runtime runc"])


def test_a_runtime_where_no_engine_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", NOWHERE)
    provider = SandboxProvider(SandboxSettings(runtime="runsc"))
    assert str(provider.choice) == f"{LABEL}, runtime runsc"
    provider.check({"runtime": "--intercode-runtime"})  # that is what the first episode meets
    with pytest.raises(EngineUnavailable, match="no Docker engine answers"):
        provider.image(ImageSource(image="debian"))
    provider.close()


@pytest.mark.usefixtures("needs_docker")
def test_an_engine_that_sets_no_limits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so of itself, and of a container nothing."""
    truth = docker.APIClient.info
    limits = {"MemoryLimit": False, "PidsLimit": False}
    monkeypatch.setattr(docker.APIClient, "info", lambda api: truth(api) | limits)
    with pytest.raises(
        EngineUnavailable, match="does not limit memory and processes, like a rootl"
    ):
        DockerEngine()
