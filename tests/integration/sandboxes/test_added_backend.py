"""A backend of another package: installed, found by its name, and tested by the contract."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.sandboxes import choice
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from tests.support.site_folder import install

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "backend-podman"
CONTRACT = """\
from pytest_intercode.testing import SandboxContract


class TestPodman(SandboxContract):
    backend = "podman"
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that the example is installed in."""
    return install(EXAMPLE, tmp_path_factory.mktemp("installed"))


@pytest.fixture
def added(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(installed))
    choice._entry_points.cache_clear()
    yield
    choice._entry_points.cache_clear()


def test_the_example_is_short() -> None:
    assert len(EXAMPLE.joinpath("intercode_podman.py").read_text().splitlines()) <= 250


@pytest.mark.usefixtures("added")
def test_a_backend_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choice.backend_names() == ("auto", "docker", "bubblewrap", "kubernetes", "podman")
    backend, chosen = choice.choose(SandboxSettings("podman", runtime="crun"))
    assert (backend.name, str(chosen)) == ("podman", "podman, runtime crun")
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert backend.problem() == "podman is not installed: apt-get install podman"
    with pytest.raises(ConfigurationError, match=r"^--x=a:1: podman has no images, only docker"):
        SandboxProvider(SandboxSettings("podman", registry="a:1")).check({"registry": "--x"})
    with pytest.raises(ConfigurationError, match=r"^--x=/r: podman has no root file system, only"):
        SandboxProvider(SandboxSettings("podman", rootfs=Path("/r"))).check({"rootfs": "--x"})


@pytest.mark.usefixtures("small_suite", "added")
def test_an_unknown_name_lists_all(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("suite.yaml", "--intercode-sandbox=podmann")
    result.stderr.fnmatch_lines(
        [
            "ERROR: --intercode-sandbox=podmann: allowed are auto, docker, bubblewrap, "
            "kubernetes, podman. "
            "Did you mean 'podman'?"
        ]
    )


def test_a_package_that_cannot_be_loaded(
    tmp_path: Path, added: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "intercode_podman", None)
    with pytest.raises(ConfigurationError, match=r"'podman' .* cannot be loaded: ") as raised:
        choice.make_backend("podman", SandboxSettings())
    assert "\n" not in str(raised.value)


@pytest.mark.usefixtures("small_suite", "added")
@pytest.mark.parametrize("arguments", [(), ("-n1",)])
def test_a_run_on_a_package_that_cannot_be_loaded(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "intercode_podman", None)
    result = pytester.runpytest("suite.yaml", "--intercode-sandbox=podman", *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    output = result.stdout.str() + result.stderr.str()
    assert "INTERNALERROR" not in output
    assert "Traceback" not in output
    result.stderr.re_match_lines([r"ERROR: the sandbox backend 'podman' .* cannot be loaded: .*"])


MISTAKES = """
from pytest_intercode.sandboxes.protocol import Execution
from pytest_intercode.testing import BackendUnderTest, SandboxContract
import pytest


class Sandbox:
    starters = 1

    def launch(self, spec):
        return self

    def run(self, action, timeout):
        return Execution(b"wrong", 5, "", 0, "/", "itself", False, 0.1)

    def close(self):
        pass


class TestUnnamed(SandboxContract):
    pass


class TestMissing(SandboxContract):
    backend = "podmann"


class TestWrong(SandboxContract):
    @pytest.fixture
    def under_test(self):
        return BackendUnderTest(Sandbox(), "image")
"""


def test_a_failing_contract_says_what_is_wrong(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MISTAKES)
    result = pytester.runpytest_subprocess("-k", "test_input_is_empty", "-n0")
    result.assert_outcomes(failed=1, errors=2)
    result.stdout.fnmatch_lines(
        [
            'TestUnnamed does not name its backend: give it `backend = "NAME"`',
            "the backend 'podmann' does not start: * 'podmann' is not installed; allowed are *",
            "E * assert 'wrong' == *",
        ]
    )
    result.stdout.no_fnmatch_line("*/choice.py*")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_example_keeps_the_contract(installed: Path, tmp_path: Path, bash_image: str) -> None:
    if os.geteuid() or not shutil.which("podman") or not shutil.which("runc"):
        pytest.skip("needs root, podman and runc")
    storage, engine = tmp_path / "storage.conf", tmp_path / "containers.conf"
    storage.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{tmp_path}/g"\nrunroot = "{tmp_path}/r"\n'
    )
    engine.write_text('[engine]\ncgroup_manager = "cgroupfs"\n')
    settings = {"CONTAINERS_STORAGE_CONF": str(storage), "CONTAINERS_CONF": str(engine)}
    path = os.pathsep.join((str(installed), str(ROOT)))
    environment = {**os.environ, **settings, "PYTHONPATH": path}
    with subprocess.Popen(["docker", "save", bash_image], stdout=subprocess.PIPE) as save:
        subprocess.run(["podman", "load", "-q"], stdin=save.stdout, check=True, env=environment)
    test = tmp_path / "test_podman.py"
    test.write_text(
        f"from pytest_intercode import ImageSource, SandboxSettings\n{CONTRACT}"
        f'    image = ImageSource(image="localhost/{bash_image}")\n'
        '    settings = SandboxSettings(runtime="runc")\n'
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", str(test)]
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    subprocess.run(["podman", "system", "reset", "--force"], check=False, env=environment)
    assert result.returncode == 0, result.stdout[-4000:]
    assert " passed" in result.stdout
    assert "skipped" not in result.stdout


def test_what_would_harm_the_machine_is_skipped(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MISTAKES)
    result = pytester.runpytest_subprocess("-k", "TestWrong and (bomb or everything)", "-n0", "-rs")
    result.assert_outcomes(skipped=4)
    result.stdout.fnmatch_lines(["SKIPPED * a fork bomb would take the whole machine: *"])
