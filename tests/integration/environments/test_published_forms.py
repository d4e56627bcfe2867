"""Forms in which tasks are published: gold solves each, an idle agent none, or they are skipped."""

from __future__ import annotations

import http.server
import shutil
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from ipaddress import ip_network
from pathlib import Path

import docker
import pip
import pytest

from pytest_intercode.cli import main
from pytest_intercode.environments.swe.kit import add_set, make_kit
from pytest_intercode.errors import FetchError
from pytest_intercode.sandboxes.portable import copy_python
from tests.support.task_folders import BASE, write_harbor, write_terminal_bench

pytestmark = pytest.mark.usefixtures("needs_docker")

IDLE = """\
class Idle:
    def act(self, observation):
        return "submit"
"""
MINE = "echo 'VALUE = 1' >/app/mine.py"
UV = "curl -LsSf https://astral.sh/uv/0.9.5/install.sh | sh\nsource $HOME/.local/bin/env\n"
TEST = "import mine\n\n\ndef test_value():\n    assert mine.VALUE == 1\n"
PYTEST = "python -m pytest /tests/test_outputs.py -rA"
JUDGE = """\
# /// script
# requires-python = ">=3.10"
# dependencies = [
#   "iniconfig",  # which pytest needs, too
# ]
# ///
import sys

sys.path.append("/app")
import iniconfig
import mine

assert mine.VALUE == 1
assert "packages" not in sys.argv
"""


def play(pytester: pytest.Pytester, folder: Path, *options: str) -> pytest.RunResult:
    """Play a folder of tasks with gold, and see that it is solved only by it."""
    pytester.makepyfile(agents=IDLE)
    given = (f"--intercode-dataset={folder}", "--intercode-sandbox=docker", "-rs", *options)
    idle = pytester.runpytest_subprocess("--intercode-agent=agents.py:Idle", *given)
    result = pytester.runpytest_subprocess("--intercode-agent=oracle", "--strict-markers", *given)
    played, failed = result.parseoutcomes(), idle.parseoutcomes()
    assert failed.get("failed", 0) == played.get("passed", 0), idle.outlines
    assert not failed.get("passed"), idle.outlines
    return result


# -- without anything from elsewhere


@pytest.mark.slow
def test_odd_tasks_are_played_and_keep_none_from_being_played(pytester: pytest.Pytester) -> None:
    folder = pytester.path / "set"
    solves = partial(write_harbor, tests="test -s /app/mine.py", solution=MINE)
    solves(folder / "tags", toml='version = "0.0"\n[metadata]\ntags = ["3d", "_x", "network", 7]')
    solves(folder / "none", toml="[metadata]\ntags = ['not', '__', 'skip', 'intercode']")
    solves(folder / "volumes", files={"environment/docker-compose.yaml": "volumes: {data: {}}\n"})
    sidecar = f"services: {{cache: {{image: '{BASE}'}}}}\n"
    solves(folder / "sidecar", files={"environment/docker-compose.yaml": sidecar})
    result = play(pytester, folder)
    result.assert_outcomes(passed=4)
    dataset = f"--intercode-dataset={folder}"
    for mark in ("3d", "x", "network"):
        words = ("--collect-only", "--intercode-agent=oracle", dataset, "-m", mark)
        pytester.runpytest_subprocess(*words).stdout.fnmatch_lines("*1/4 tests collected*")


@pytest.mark.slow
def test_a_published_base_image_may_be_mapped(pytester: pytest.Pytester) -> None:
    name = "ghcr.io/laude-institute/t-bench/python-3-13:20250620"
    folder = pytester.path / "set"
    write_harbor(
        folder / "published",
        tests="test -s mine.py",
        solution="echo x >mine.py",
        dockerfile=f"FROM {name}\nRUN touch here\n",
    )
    mapped = f"{name}={BASE}"
    play(pytester, folder, "--intercode-base-image", mapped).assert_outcomes(passed=1)
    plain = f"python:3.13-slim-bookworm={BASE}"
    play(pytester, folder, "--intercode-base-image", plain).assert_outcomes(passed=1)
    missing = "python:3.13-slim-bookworm=no.invalid/none:1"
    result = play(pytester, folder, "--intercode-base-image", missing)
    result.stdout.fnmatch_lines([f"*no.invalid/none:1*{name}*"])


def test_a_published_base_image_is_used_if_it_is_there(
    pytester: pytest.Pytester, docker_api: docker.APIClient
) -> None:
    name = "t-bench/ubuntu-24-04"
    folder = pytester.path / "set"
    write_harbor(
        folder / "published",
        tests="test -s mine.py",
        solution="echo x >mine.py",
        dockerfile=f"FROM {name}:of-a-test\n",
    )
    docker_api.tag(BASE, name, "of-a-test")
    try:
        play(pytester, folder).assert_outcomes(passed=1)
    finally:
        docker_api.remove_image(f"{name}:of-a-test")


# -- the network


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def index(tmp_path: Path, docker_api: docker.APIClient) -> Iterator[str]:
    """Serve a package index with one package to containers; return its host and port."""
    folder = tmp_path / "served/simple/sample"
    folder.mkdir(parents=True)
    wheel = folder / "sample-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("sample.py", "VALUE = 1\n")
        info = "sample-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: sample\nVersion: 1.0\n")
        tag = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{info}/WHEEL", tag)
        archive.writestr(f"{info}/RECORD", "")
    (folder / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    config = docker_api.inspect_network("bridge")["IPAM"]["Config"][0]
    bridge = config.get("Gateway") or str(ip_network(config["Subnet"])[1])
    served = partial(Quiet, directory=str(tmp_path / "served"))
    try:
        made = http.server.ThreadingHTTPServer((bridge, 0), served)
    except OSError as error:
        pytest.skip(f"the engine's bridge is not this machine's: {error}")
    with made as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"{bridge}:{server.server_address[1]}"
        server.shutdown()
        thread.join()


_NO = 'network_mode = "no-network"\n'
# What each task says, and whether its agent and its tests then have the network of the run.
_POLICIES = {
    "public": ("", True, True),
    "old-name": ("[environment]\nallow_internet = false\n", False, False),
    "none": (f"[environment]\n{_NO}", False, False),
    "agent": (f"[agent]\n{_NO}", False, True),
    "verifier": (f"[verifier]\n{_NO}", True, False),
    "allowlist": (
        '[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["host.invalid"]\n',
        *(False, True),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("override", [False, True])
def test_what_a_task_says_of_its_network_holds(
    override: bool, index: str, pytester: pytest.Pytester
) -> None:
    folder = pytester.path / "set"
    look = f"timeout 10 bash -c ': <>/dev/tcp/{index.replace(':', '/')}' 2>/dev/null; echo $? >"
    for name, (toml, agent, verifier) in _POLICIES.items():
        expected = [str(int(not (reached or override))) for reached in (agent, verifier)]
        write_harbor(
            folder / name,
            toml=toml,
            solution=f"{look}/app/agent",
            tests=f'{look}/tmp/tests; [ "$(cat /app/agent /tmp/tests | xargs)" = "{expected[0]} '
            f'{expected[1]}" ]',
        )
    options = ["--intercode-network", *(["--intercode-override-network"] if override else [])]
    play(pytester, folder, *options).assert_outcomes(passed=len(_POLICIES))


@pytest.mark.slow  # as it brings a Python and pip of its own
def test_tests_with_the_network_are_played_as_published(
    index: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(pytester.path / "caches"))  # where no kit is
    folder = pytester.path / "set"
    host = index.partition(":")[0]
    write_harbor(
        folder / "installs",
        solution=MINE,
        tests="set -e; trap 'test $? = 0' EXIT; test ! -e /opt/verifier-kit\n"
        f"pip install -q --trusted-host {host} -i http://{index}/simple -t /tmp/got sample==1.0\n"
        "PYTHONPATH=/tmp/got:/app /opt/python/bin/python3 -c 'import mine, sample; "
        "assert mine.VALUE == sample.VALUE'",
        dockerfile=f"FROM {BASE}\nWORKDIR /app\nCOPY python /opt/python\nCOPY pip /opt/pip/pip\n"
        "RUN printf '#!/bin/sh\\nPYTHONPATH=/opt/pip exec /opt/python/bin/python3 -m pip \"$@\"' "
        ">/usr/local/bin/pip && chmod 755 /usr/local/bin/pip\n",
    )
    copy_python(folder / "installs/environment/python", "/opt/python")
    shutil.copytree(Path(pip.__file__).parent, folder / "installs/environment/pip")
    play(pytester, folder, "--intercode-network").assert_outcomes(passed=1)
    for options in ((), ("--intercode-network", "--intercode-kit=always")):
        result = play(pytester, folder, *options)
        result.assert_outcomes(skipped=1)
        result.stdout.fnmatch_lines([f"*add them with: pytest-intercode kit --dataset {folder}"])
    alone = pytester.runpytest_subprocess(  # what it installs is not there
        *(f"--intercode-dataset={folder}", "--intercode-agent=oracle", "--intercode-kit=never"),
        "--intercode-sandbox=docker",
    )
    alone.assert_outcomes(errors=1)
    alone.stdout.fnmatch_lines(["task error: *gold cannot be verified*"])


# -- the verifier kit


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make a kit that has pytest and what it needs."""
    folder = tmp_path_factory.mktemp("kit")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        try:
            make_kit(lambda line: None)
            add_set(("pytest==8.4.1",), lambda line: None)
        except FetchError as error:
            pytest.skip(str(error))
        yield folder


_HARBOR = {
    "path": f"{UV}export PYTHONPATH=/app\nuvx -p 3.13 -w pytest==8.4.1 pytest /tests/test_o*.py",
    "script": f"{UV}uv run /tests/judge.py 2>&1 | tee /tmp/log; (exit ${{PIPESTATUS[0]}})",
    "input": f"{UV}cat /tests/judge.py | uv run -",
    "written": f'{UV}cat >judge.py <<"EOF"\n{JUDGE}EOF\nuv run judge.py',
    "project": f"{UV}uv init\nuv add pytest==8.4.1\nuv run pytest /tests/test_outputs.py -rA",
    "module": f"{UV}uv run --with pytest==8.4.1 {PYTEST}\nuv run -w pytest==8.4.1 -m pytest /tests",
    "environment": f"{UV}uv venv .tests\nsource .tests/bin/activate\nuv pip install pytest==8.4.1\n"
    f"{PYTEST}",
    "system": f"{UV}uv pip install --system pytest==8.4.1 2>/dev/null\n{PYTEST}",
    "listed": f"pip3 install -qr /tests/requirements.txt >/dev/null 2>&1 || exit 1\n{PYTEST}",
    "venv": "python3 -m venv /tmp/v && . /tmp/v/bin/activate && pip install pytest==8.4.1 "
    f"2>/dev/null && {PYTEST} && /tmp/v/bin/pytest /tests/test_outputs.py",
    "planted": f"{UV}uv add pytest==8.4.1\npip install pytest==8.4.1\n"
    "uv run pytest /tests/test_outputs.py && . .venv/bin/activate && pytest /tests/test_outputs.py",
    "tool": f"{UV}uv tool install pytest==8.4.1\npytest /tests/test_outputs.py",
}

# What an agent leaves where the stand-ins have their environments is none of theirs.
_PLANTED = """\
for at in /tmp/.verifier-kit /app/.venv; do
  mkdir -p $at/bin; echo /tmp/evil-1-py3-none-any.whl >$at/requirements.txt
  ln -s /bin/true $at/bin/pytest
  mkdir $at/bin/activate
done
"""


@pytest.mark.slow
@pytest.mark.usefixtures("kit")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("path", "script"), id="quick"),
        pytest.param(tuple(_HARBOR), marks=pytest.mark.slow, id="all"),
    ],
)
def test_tests_install_as_they_are_published(
    names: tuple[str, ...], pytester: pytest.Pytester
) -> None:
    folder = pytester.path / "set"
    files = {
        "tests/test_outputs.py": TEST,
        "tests/judge.py": JUDGE,
        "tests/requirements.txt": "pytest==8.4.1  # and nothing else\n",
    }
    for name in names:
        # Only where it is what is played is it in PYTHONPATH: elsewhere pytest finds it so.
        found = {**files, "tests/conftest.py": "import sys\n\nsys.path.append('/app')\n"}
        given = files if name == "path" else found
        solution = f"{MINE}; {_PLANTED}" if name == "planted" else MINE
        write_harbor(folder / name, tests=_HARBOR[name], solution=solution, files=given)
    setup = "#!/bin/bash\napt-get update\napt-get install -y curl\n"
    write_terminal_bench(
        folder / "old-template",
        tests='source "$TEST_DIR/setup-uv-pytest.sh"\nbash "$TEST_DIR/run-uv-pytest.sh"',
        solution=MINE,
        files={
            "tests/setup-uv-pytest.sh": f"{setup}{UV}uv init\nuv add pytest==8.4.1\n",
            "tests/run-uv-pytest.sh": "uv run pytest $TEST_DIR/test_outputs.py -rA\n",
            "tests/test_outputs.py": f"import sys\n\nsys.path.append('/app')\n{TEST}",
        },
    )
    assert main(["kit", "--dataset", str(folder)]) == 0
    assert main(["check", str(folder)]) == 0
    play(pytester, folder).assert_outcomes(passed=len(names) + 1)
