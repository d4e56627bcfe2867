"""Bundles for another platform than this machine's: which programs are in them, and that they run.

Packages are files of ours where that will do, so that npm and pip need no network.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.agents.installed import bundle
from pytest_intercode.agents.installed.bundle import find_bundle
from pytest_intercode.agents.installed.recipe import Recipe, load_recipe
from pytest_intercode.agents.loader import load_agent
from pytest_intercode.core.platforms import Platform
from pytest_intercode.core.task import ImageSource, Limits
from pytest_intercode.errors import AgentLoadError, FetchError
from pytest_intercode.sandboxes.portable import (
    LinuxPython,
    download_wheels,
    install_npm_packages,
    install_wheels,
    own_platform,
)
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.sandboxes.workshop import Workshop
from tests.support.alpine import make_image

_MACHINES = {0x3E: "x86_64", 0xB7: "aarch64"}  # of ELF
_ARM64 = Platform("arm64")
_PYTHON = LinuxPython(_ARM64, "3.11.2", "2.36")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _machine(path: Path) -> str:
    head = path.read_bytes()[:20]
    assert head[:4] == b"\x7fELF", path
    return _MACHINES[int.from_bytes(head[18:20], "little")]


# -- npm


def _package(folder: Path, name: str, **about: Any) -> str:
    """Write a package of npm; return how it is named."""
    path = folder / f"{name}-1.0.0.tgz"
    text = json.dumps({"name": name, "version": "1.0.0", **about}).encode()
    with tarfile.open(path, "w:gz") as archive:
        for member_name, content in {"package.json": text, "program": name.encode()}.items():
            member = tarfile.TarInfo(f"package/{member_name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return f"file:{path}"


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """A recipe whose program is one package for each platform, as those of codex and claude are."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    kinds = {
        "linux-x64": {"os": ["linux"], "cpu": ["x64"], "libc": ["glibc"]},
        "linux-x64-musl": {"os": ["linux"], "cpu": ["x64"], "libc": ["musl"]},
        "linux-arm64": {"os": ["linux"], "cpu": ["arm64"], "libc": ["glibc"]},
        "linux-arm64-musl": {"os": ["linux"], "cpu": ["arm64"], "libc": ["musl"]},
        "darwin-arm64": {"os": ["darwin"], "cpu": ["arm64"]},
    }
    parts = {f"mine-{kind}": _package(tmp_path, f"mine-{kind}", **kinds[kind]) for kind in kinds}
    whole = _package(tmp_path, "mine", optionalDependencies=parts)
    return Recipe(npm=[whole], program="node_modules/mine-linux-*/program", command=["{program}"])


def _make(recipe: Recipe, platform: str | None) -> tuple[Path, list[str], list[str]]:
    """Return the bundle, the packages in it, and what was said."""
    lines: list[str] = []
    settings = SandboxSettings(platform=platform)
    folder, _ = find_bundle("mine", recipe, Path.cwd(), "--option", lines.append, settings)
    names = sorted(path.name for path in (folder / "node_modules").iterdir() if path.is_dir())
    return folder, names, lines


@pytest.mark.parametrize("platform", ["linux/amd64", "linux/arm64"])
def test_npm_installs_for_the_platform(platform: str, recipe: Recipe) -> None:
    folder, names, [line] = _make(recipe, platform)
    assert names == ["mine", f"mine-linux-{'x64' if 'amd' in platform else 'arm64'}"]
    is_own = str(own_platform()) == platform
    assert f" for the agent mine{'' if is_own else f' for {platform}'}, once;" in line
    second_result = _make(recipe, platform)
    assert second_result == (folder, names, [])


@pytest.mark.slow
def test_a_bundle_is_for_one_platform(recipe: Recipe) -> None:
    assert _make(recipe, "linux/amd64")[0] != _make(recipe, "linux/arm64")[0]


def test_a_platform_without_a_program_is_one_line(recipe: Recipe) -> None:
    with pytest.raises(
        AgentLoadError,
        match=r"^--option: file:\S+ was installed, but has no program node_modules/mine-linux-\*/"
        r"program for linux/s390x: for another .*, npm 10 or newer .*; npm leaves "
        r"out those that it cannot get$",
    ):
        _make(recipe, "linux/s390x")


def test_an_agent_is_installed_for_what_the_engine_is(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is installed where no engine says it."""
    pytest.importorskip("aiohttp")
    recipe_file = tmp_path / "mine.yaml"
    recipe_file.write_text(json.dumps(recipe.model_dump()))
    name, lines = f"installed:{recipe_file}", list[str]()
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/socket")
    with pytest.raises(
        AgentLoadError,
        match=r"platform of the sandboxes, for which it is installed, is not known: ",
    ):
        load_agent(name, {}, tmp_path, progress=lines.append, sandbox=SandboxSettings("docker"))
    assert lines == []
    sandbox = SandboxSettings("docker", platform="linux/arm64")
    load_agent(name, {}, tmp_path, progress=lines.append, sandbox=sandbox).close()
    assert " for linux/arm64, once;" in lines[0]


# -- pip


def _wheel(folder: Path, name: str, tag: str, requires: tuple[str, ...] = ()) -> None:
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    metadata += "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-{tag}.whl", "w") as archive:
        archive.writestr(f"{name}.py", f"TAG = {tag!r}\n")
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.mark.slow
def test_pip_installs_for_the_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wheels and conditions are read as by the Python that they are for, whatever this one is."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    conditions = (
        "arm; platform_machine == 'aarch64' and sys_platform == 'linux'",
        "no_such_package; platform_machine == 'x86_64' or platform_system == 'Darwin'",
        "no_such_package; python_version != '3.11' or python_full_version < '3.11.2'",
    )
    _wheel(wheels, "whole", "py3-none-any", conditions)
    _wheel(wheels, "arm", "cp311-cp311-manylinux_2_17_aarch64.manylinux2014_aarch64")
    _wheel(wheels, "arm", "cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64")
    _wheel(wheels, "newer", "cp311-cp311-manylinux_2_39_aarch64")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    target = tmp_path / "site"
    install_wheels("the test", ["whole"], target, _PYTHON)
    assert "aarch64" in (target / "arm.py").read_text()
    downloaded = tmp_path / "downloaded"
    download_wheels("the test", ["whole"], downloaded, _PYTHON)
    assert sorted(path.name.split("-")[0] for path in downloaded.iterdir()) == ["arm", "whole"]
    with pytest.raises(FetchError, match=r"^the test: pip install failed: .*newer"):
        install_wheels("the test", ["newer"], tmp_path / "none", _PYTHON)


@pytest.mark.slow
def test_published_packages_are_for_the_platform(tmp_path: Path) -> None:
    try:
        install_wheels("the test", ["markupsafe==3.0.2", "sqlalchemy==2.0.40"], tmp_path, _PYTHON)
    except FetchError as error:
        pytest.skip(str(error))
    libraries = list(tmp_path.rglob("*.so"))
    assert libraries
    assert {_machine(path) for path in libraries} == {"aarch64"}
    assert (tmp_path / "greenlet").is_dir()  # which SQLAlchemy needs on aarch64


@pytest.mark.slow
@pytest.mark.parametrize("name", ["codex", "claude"])
def test_published_agents_are_for_the_platform(name: str) -> None:
    short_name, recipe, folder = load_recipe(name, Path.cwd(), "--option")
    settings = SandboxSettings(platform="linux/arm64")
    try:
        bundle_folder, _ = find_bundle(short_name, recipe, folder, "--option", print, settings)
    except AgentLoadError as error:
        if "no program" in str(error):
            raise
        pytest.skip(str(error))
    [program] = bundle_folder.glob(recipe.program)
    assert _machine(program) == "aarch64"


# -- Python and Node.js of a sandbox


@pytest.fixture(
    scope="module", params=[pytest.param("docker", marks=pytest.mark.slow), "bubblewrap"]
)
def settings(request: pytest.FixtureRequest) -> SandboxSettings:
    request.getfixturevalue("docker_engine" if request.param == "docker" else "bubblewrap")
    return SandboxSettings(request.param)


_PROGRAM = """\
import ctypes, decimal, hashlib, json, sqlite3, ssl, sys
print(json.dumps([sys.version_info[:2], sys.prefix, len(hashlib.sha256(b"").hexdigest())]))
"""


def test_the_python_of_a_sandbox_runs_in_others(
    settings: SandboxSettings, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Also where there is no other Python and another C library, or none."""
    platform = own_platform()
    assert platform is not None
    place = "/opt/python"
    (tmp_path / "python.part").mkdir()  # of one that was interrupted
    with Workshop(settings, platform, "the test") as workshop:
        python = workshop.copy_python(tmp_path / "python", place, ["curl"])
    assert python.platform == platform
    assert tuple(map(int, python.glibc.split("."))) >= (2, 28)
    if settings.backend == "docker":
        image = make_image(request.getfixturevalue("docker_engine").api)
        source = ImageSource(image=image)
    else:
        source = ImageSource(dockerfile=Path(__file__).parents[3] / "dockerfiles/bash.Dockerfile")
    with contextlib.closing(SandboxProvider(settings)) as provider:
        spec = SandboxSpec(
            provider.image(source),
            Limits(memory=1024**3),
            readonly=((str(tmp_path / "python"), place),),
        )
        with contextlib.closing(provider.acquire(spec)) as sandbox:
            execution = sandbox.run(f"{place}/bin/python3 -c '{_PROGRAM}'", 60)
            assert execution.status == 0, execution.output
            version, prefix, length = json.loads(execution.output)
            assert version == [int(part) for part in python.version.split(".")[:2]]
            assert (prefix, length) == (place, 64)
            library = f"{place}/lib/ld.so --library-path {place}/lib"
            curl = sandbox.run(f"{library} {place}/bin/curl --version", 60)
            assert curl.output.startswith(b"curl "), curl.output


@pytest.mark.slow
def test_node_of_npm_runs_in_sandboxes(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for another platform, on this one, whose sandboxes can run it here."""
    docker_engine = request.getfixturevalue("docker_engine")
    monkeypatch.setattr(bundle, "own_platform", lambda: None)
    source = _package(tmp_path, "mine")
    recipe = Recipe(npm=[source], node=True, program="node_modules/mine/program", command=["x"])
    settings = SandboxSettings("docker")
    try:
        bundle_folder, _ = find_bundle("mine", recipe, tmp_path, "--option", print, settings)
    except AgentLoadError as error:
        pytest.skip(str(error))
    with contextlib.closing(SandboxProvider(settings)) as provider:
        image = make_image(docker_engine.api)
        place = bundle.BUNDLE_FOLDER
        spec = SandboxSpec(image, Limits(memory=1024**3), readonly=((str(bundle_folder), place),))
        with contextlib.closing(provider.acquire(spec)) as sandbox:
            execution = sandbox.run(f"{place}/node/bin/node -p 'process.arch + 6 * 7'", 60)
    assert execution.output in (b"x6442\n", b"arm6442\n"), execution.output


def test_what_fails_in_a_workshop_is_one_line(tmp_path: Path) -> None:
    settings = SandboxSettings("bubblewrap")
    with (
        Workshop(settings, Platform("s390x"), "the test") as workshop,
        pytest.raises(FetchError, match=r"^the test: programs for linux/s390x: .*bubblewrap runs "),
    ):
        workshop.copy_python(tmp_path / "python", "/opt/python")


def test_npm_is_told_the_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a stand-in for npm that writes down its arguments."""
    log = tmp_path / "log"
    program = tmp_path / "npm"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{log}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    install_npm_packages("the test", ["a@1"], tmp_path, Platform("386"))
    words = log.read_text().split()
    assert {"--os=linux", "--cpu=ia32", "--libc=glibc", "--ignore-scripts"} < set(words)
    install_npm_packages("the test", ["a@1"], tmp_path)
    assert not any(word.startswith(("--os", "--cpu", "--libc")) for word in log.read_text().split())
