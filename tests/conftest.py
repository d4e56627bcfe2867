"""What several kinds of tests share: Docker or a reason to skip, a small suite, agents to test."""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.metadata
import json
import os
import pkgutil
import signal
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
import pytest

import pytest_intercode
from pytest_intercode.errors import EngineUnavailable
from pytest_intercode.sandboxes.docker.engine import connect
from pytest_intercode.suites.catalogue import default_data
from tests.support.thinning import ALL, THINNED, ThinnedTests

if TYPE_CHECKING:
    from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap

with contextlib.suppress(ImportError):  # scripts/demo has no Hypothesis
    from hypothesis import settings

    # No test measures time: on a busy machine an example takes as long as it takes.
    settings.register_profile("intercode", deadline=None, max_examples=100 if ALL else 30)
    settings.load_profile("intercode")

SUITE = """\
env: bash
defaults:
  workdir: /work
tasks:
  - id: prints
    query: Print the word hello.
    gold: echo hello
    hardness: easy
    tags: [text]
  - id: writes
    query: Write the word hi to out.txt.
    gold: echo hi > out.txt
    hardness: hard
    tags: [files]
  - id: both
    query: Write the word hi to out.txt, then print the word done.
    gold: ["echo hi > out.txt", "echo done"]
    hardness: hard
    tags: [files, text]
"""

AGENTS = '''\
"""Agents for the small suite."""
import time

COMMANDS = {
    "prints": ["echo hello"],
    "writes": ["echo hi > out.txt"],
    "both": ["echo hi > out.txt", "echo done"],
}


class Solver:
    """Solves every task of the small suite."""

    def reset(self, task):
        self.left = [*COMMANDS[task.id], "submit"]

    def act(self, observation):
        return self.left.pop(0)


class Idle:
    """Gives up at once."""

    def act(self, observation):
        return "submit"


class OnlyPrints(Solver):
    """Fails whatever is not called prints."""

    def reset(self, task):
        super().reset(task)
        if task.id != "prints":
            self.left = ["submit"]
'''

# An environment that needs no sandbox, for what is the plugin's own part and no backend's.
PRETEND = """\
import pytest
from pytest_intercode.environments.base import Environment
from pytest_intercode.core.turn import Observation
from pytest_intercode.core.reward import Reward


class Pretend(Environment):
    name, profile = "bash", "strict"

    @classmethod
    def sandboxes(cls, task, provider):
        return []

    def start(self, task):
        self.last = None

    def execute(self, action):
        self.last = action
        return Observation("")

    def grade(self, answer):
        solved = self.last == self.task.gold[-1]
        return Reward(float(solved), {}, "" if solved else "not what gold does")

    def stop(self):
        pass

    def interrupt(self):
        pass


def pytest_intercode_make_environment(config, task):
    settings = config.getoption("intercode_max_turns")
    return Pretend(None, max_turns=int(settings) if settings else None)
"""


# The last two are for systems other than Linux, with psutil, which scripts/demo does without.
_NOT_IMPORTED = {"human", "inside", "mcp", "portable_supervisor", "process_tree"}


def _import_what_runs_use() -> None:
    """Import what a run of the plugin does.

    pytester forgets what a run inside this process imported, and the next would import it again,
    which is two thirds of its time. What runs in sandboxes, and what has clients of its own, is
    left out.
    """
    for folder in ("agents", "environments", "plugin", "results", "rollouts"):
        package = f"pytest_intercode.{folder}"
        path = str(Path(pytest_intercode.__file__).with_name(folder))
        for module in pkgutil.walk_packages([path], f"{package}."):
            if not _NOT_IMPORTED & set(module.name.split(".")):
                importlib.import_module(module.name)
    # With what a client imports when it is made: of two copies of its transport, one does not
    # know the other's errors.
    with contextlib.suppress(ModuleNotFoundError):  # scripts/demo does without it
        importlib.import_module("openai").AsyncOpenAI(api_key="none")


_import_what_runs_use()


def _keep_metadata() -> None:
    """Read once in a process what is installed next to the project.

    pytest and pluggy read the metadata of all that is installed whenever they start, which is a
    third of a run inside this process. What a test installs lies elsewhere and is read as always.
    """
    installed = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib")})

    def kept(read: Callable[[Any], Any]) -> property:
        values: dict[str, Any] = {}

        def value(distribution: Any) -> Any:
            folder = str(getattr(distribution, "_path", ""))  # no public name says where it lies
            if not folder.startswith(installed):
                return read(distribution)
            if folder not in values:
                values[folder] = read(distribution)
            return values[folder]

        return property(value)

    for name in ("entry_points", "files", "metadata"):
        reader = vars(importlib.metadata.Distribution)[name].fget
        setattr(importlib.metadata.Distribution, name, kept(reader))


_keep_metadata()
# A collection of garbage would look at all of these modules, which takes a fifth of the time. And
# ten thousand items are little garbage, for which it would run 1,600 times.
gc.freeze()
gc.set_threshold(10_000, 20, 100)

# What runs of the tests have no use for, and takes a third of the time that pytest takes to start.
ADDOPTS = " ".join(
    f"-p no:{plugin}" for plugin in ("hypothesispytest", "rerunfailures", "recording", "anyio")
)


def pytest_configure() -> None:
    """Let Ctrl-C reach the processes that tests start, also where all of it is in the background.

    A shell that is not interactive has what it starts in the background ignore SIGINT and SIGQUIT,
    and a process inherits that. A handler is not inherited: it becomes the default.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let no test wait for ever, and mark those that are left to ``scripts/test --all``.

    Tests that may take longer have a mark that says so. pytest loads this file for scripts/demo,
    too, where pytest-timeout is not installed.
    """
    thinned_tests = ThinnedTests(THINNED.read_text("utf-8"))
    for item in items:
        if thinned_tests.line_of(item.nodeid) is not None:
            item.add_marker(pytest.mark.slow)
    for item in items if config.pluginmanager.hasplugin("timeout") else ():
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))
    if config.args == config.getini("testpaths"):  # all are here
        lines = thinned_tests.unmatched(item.nodeid for item in items)
        if lines:
            raise pytest.UsageError(f"tests/thinned.txt: there is no test of: {', '.join(lines)}")


def pytest_collection_finish() -> None:
    """Have collections of garbage leave the items out, too, which stay until the end."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The data folder of whoever runs the tests is not to be found by them."""
    monkeypatch.delenv("INTERCODE_DATA", raising=False)
    if default_data().is_dir():
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "caches"))


# -- the reference data: they are large, not ours, and not part of the project


def _reference_folder(variable: str) -> Path:
    value = os.environ.get(variable)
    if not value:
        pytest.skip(f"{variable} names no folder with the reference data")
    path = Path(value)
    if not path.is_dir():
        pytest.fail(f"{variable}={value} is not a folder")
    return path


@pytest.fixture(scope="session")
def data() -> Path:
    return _reference_folder("INTERCODE_DATA")


@pytest.fixture(scope="session")
def reference() -> Path:
    return _reference_folder("INTERCODE_REFERENCE")


@pytest.fixture(scope="session")
def recordings() -> Path:
    return _reference_folder("INTERCODE_RECORDINGS")


@pytest.fixture(scope="session")
def samples() -> Path:
    """Published rows, logs and verdicts, computed by the tools that they belong to."""
    return _reference_folder("INTERCODE_SAMPLES")


# -- backends, and projects to run


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project of its own.

    Runs go without the plugins that import hypothesis for each summary, and that leave a thread
    and a socket behind for each run.
    """
    monkeypatch.setenv("PYTEST_ADDOPTS", ADDOPTS)
    return pytester


@pytest.fixture(scope="session")
def docker_api() -> Iterator[docker.APIClient]:
    """A client of the engine; the test is skipped where there is none."""
    try:
        link = connect()
    except EngineUnavailable as reason:
        pytest.skip(str(reason))
    yield link.api
    link.close()


@pytest.fixture
def needs_docker(docker_api: docker.APIClient) -> None:
    """Skip the test where no Docker engine answers."""


def make_bubblewrap() -> Bubblewrap:
    """Make an engine with sandboxes of this machine's own programs.

    Raises:
        EngineUnavailable: there can be none here.
    """
    try:
        from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
    except ImportError as error:  # another system than Linux
        raise EngineUnavailable(str(error)) from None
    return Bubblewrap()


@pytest.fixture(scope="session")
def bubblewrap() -> Iterator[Bubblewrap]:
    """Return an engine with sandboxes of this machine's own programs."""
    try:
        engine = make_bubblewrap()
    except EngineUnavailable as unavailable:
        pytest.skip(str(unavailable))
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def quick_sandbox() -> str:
    """Return the option that makes a run quick: bubblewrap, or Docker where there is none of it.

    For tests of what is the same on both. A test is skipped where there is neither.
    """
    try:
        make_bubblewrap().close()
    except EngineUnavailable as reason:
        try:
            connect().close()
        except EngineUnavailable as other:
            pytest.skip(f"{reason}; {other}")
        return "--intercode-sandbox=docker"
    return "--intercode-sandbox=bubblewrap"


@pytest.fixture
def needs_sandboxes(
    pytester: pytest.Pytester, quick_sandbox: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs need sandboxes, and no matter whose: they take the quick ones."""
    monkeypatch.setenv("PYTEST_ADDOPTS", f"{ADDOPTS} {quick_sandbox}")


@pytest.fixture
def small_suite(pytester: pytest.Pytester) -> Path:
    """Three tasks in ``suite.yaml``, and ``agents.py``."""
    path = pytester.path / "suite.yaml"
    path.write_text(SUITE)
    (pytester.path / "agents.py").write_text(AGENTS)
    return path


@pytest.fixture
def pretend(pytester: pytest.Pytester, small_suite: Path) -> Path:
    """The small suite in an environment that needs no sandbox."""
    (pytester.path / "conftest.py").write_text(PRETEND)
    return small_suite


def results(path: Path) -> list[dict[str, Any]]:
    """Read a results file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def owned_by(api: docker.APIClient, pids: set[int]) -> list[str]:
    """Return the sandboxes, running or not, that the given processes own."""
    rows = api.containers(all=True, filters={"label": "pytest-intercode.owner"})
    owners = {row["Id"]: row["Labels"]["pytest-intercode.owner"] for row in rows}
    return [row for row, owner in owners.items() if int(owner.split(" ")[2]) in pids]


def wait_until_gone(
    api: docker.APIClient, pids: set[int], seconds: float = 30.0, but: Iterable[str] = ()
) -> list[str]:
    """Wait for the last sandbox of the given processes; describe those that stay, but for some."""
    deadline = time.monotonic() + seconds
    while left := set(owned_by(api, pids)).difference(but):
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    else:
        return []
    rows = api.containers(all=True)
    return [
        f"{r['Id'][:12]} {r['State']} {r['Status']} {r['Image']}" for r in rows if r["Id"] in left
    ]


# Appended to a conftest: which processes ran, so that their sandboxes can be told from others'.
PIDS = """
import os


def pytest_sessionstart(session):
    with open("pids", "a") as file:
        print(os.getpid(), file=file)
"""


def pids_of(folder: Path) -> set[int]:
    """Return the processes that a run with ``PIDS`` in its conftest had."""
    return {int(line) for line in (folder / "pids").read_text().split()}
