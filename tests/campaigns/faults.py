"""Faults by chance: runs of pytest that are disturbed once, at a random moment, and then resumed.

What has to hold after each fault: within ten seconds no container, process, mount, control group or
temporary file of the run is left; what was printed has no error of pytest's own; and the same
command with ``--intercode-resume`` completes the results file: each task exactly once, with the
reward of a run that nothing disturbed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import docker
import psutil

from pytest_intercode.results.files import read_records
from pytest_intercode.sandboxes.docker.engine import OWNER_LABEL
from tests.support.backends import is_keeper, mounts, processes_with
from tests.support.engine_proxy import EngineProxy

__all__ = ["FAULTS", "Disturbed", "Laboratory", "disturb"]

GONE = 10.0
"""Seconds in which everything of a run has to be gone."""

_PATIENCE = 90.0  # seconds that a disturbed run, or one that is resumed, may take
_PAUSE = 2.0  # seconds that what passes by itself lasts

SUITES = {
    "bash": """\
env: bash
defaults: {workdir: /work}
tasks:
""",
    "python": """\
env: python
tasks:
""",
}

# Every third task is solved, every third in part, every third not at all.
PLAYER = """\
import time


class Player:
    def reset(self, task):
        number = int(task.id.rpartition("-")[2])
        kind = number % 3
        if task.env == "bash":
            right = [f"echo {number} > out.txt", "echo done"]
            self.left = [right, [*right, "echo more > more.txt"], ["echo no"]][kind]
        else:
            wrong = "2" if kind == 1 else "None"
            self.left = [f"def f(n):\\n    return {'n + 1' if kind == 0 else wrong}"]
        self.left = [*self.left, "submit f" if task.env == "python" else "submit"]

    def act(self, observation):
        time.sleep(0.1)
        return self.left.pop(0)
"""

# The wall clock of pytest's processes can be set an hour ahead.
CLOCK = """\
import time
from pathlib import Path

_now, _jump = time.time, Path(__file__).with_name("jump")
time.time = lambda: _now() + 3600 * _jump.exists()
"""


def _write_project(folder: Path) -> None:
    bash = [
        f"  - {{id: bash-{n}, query: Write {n}., gold: [echo {n} > out.txt, echo done]}}"
        for n in range(9)
    ]
    tests = "[{arguments: [1], result: 2}, {arguments: [5], result: 6}]"
    python = [
        f"  - {{id: python-{n}, query: Add one., entry: f, tests: {tests}, "
        'gold: "def f(n): return n + 1"}'
        for n in range(3)
    ]
    for env, rows in (("bash", bash), ("python", python)):
        (folder / f"{env}.yaml").write_text(SUITES[env] + "\n".join(rows) + "\n")
    (folder / "player.py").write_text(PLAYER)
    (folder / "conftest.py").write_text(CLOCK)
    (folder / "pytest.ini").write_text("[pytest]\n")


@dataclass(frozen=True)
class Setting:
    """How a run is made: backend, episodes at a time, xdist's processes."""

    backend: str
    concurrency: int
    workers: int

    @property
    def options(self) -> list[str]:
        """The options of the command line that say so."""
        options = [f"--intercode-sandbox={self.backend}"]
        options += [f"--intercode-concurrency={self.concurrency}"]
        return [*options, "-n", str(self.workers)] if self.workers else options


@dataclass
class Scene:
    """A run that goes on, and what a fault may touch of it."""

    setting: Setting
    folder: Path
    process: psutil.Popen
    proxy: EngineProxy | None
    random: random.Random

    def find(self, matches: Callable[[psutil.Process], bool]) -> psutil.Process | None:
        """Return one of the run's processes, by chance; None if there is none now."""
        processes = []
        with contextlib.suppress(psutil.Error):
            for child in self.process.children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if matches(child):
                        processes.append(child)
        return self.random.choice(processes) if processes else None

    def container(self) -> str | None:
        """Return one of the run's containers, by chance."""
        containers = _containers(self.pids)
        return self.random.choice(containers) if containers else None

    @property
    def pids(self) -> set[int]:
        """The run's own processes."""
        with contextlib.suppress(psutil.Error):
            return {
                self.process.pid,
                *(child.pid for child in self.process.children(recursive=True)),
            }
        return {self.process.pid}


Fault = Callable[[Scene], bool]
FAULTS: dict[str, Fault] = {}
"""By name: makes a fault and returns whether it could; blocks until what passes has passed."""


def _has(word: str) -> Callable[[psutil.Process], bool]:
    return lambda process: any(word in argument for argument in process.cmdline())


_ROLES: dict[str, Callable[[psutil.Process], bool] | None] = {
    "pytest": None,
    "worker": _has("exec(eval(sys.stdin.readline()))"),
    "starter": _has("class Starter"),
    "reaper": _has("docker.reaper"),
    "keeper": is_keeper,
}


def _signalling(role: str, number: signal.Signals) -> Fault:
    def fault(scene: Scene) -> bool:
        matches = _ROLES[role]
        target = scene.process if matches is None else scene.find(matches)
        if target is None:
            return False
        try:
            target.send_signal(number)
            if number == signal.SIGSTOP:
                time.sleep(_PAUSE)
                target.send_signal(signal.SIGCONT)
        except psutil.Error:
            return False
        return True

    return fault


for _role in _ROLES:
    _signals = [signal.SIGKILL, signal.SIGSTOP]
    if _role == "pytest":
        _signals += [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]
    FAULTS |= {f"{_number.name} of {_role}": _signalling(_role, _number) for _number in _signals}


def _on_container(action: Callable[[docker.APIClient, str], object]) -> Fault:
    def fault(scene: Scene) -> bool:
        name = scene.container() if scene.setting.backend == "docker" else None
        if name is None:
            return False
        try:
            action(docker.APIClient(), name)
        except docker.errors.APIError:
            return False
        return True

    return fault


def _pause(api: docker.APIClient, name: str) -> None:
    api.pause(name)
    time.sleep(_PAUSE)
    with contextlib.suppress(docker.errors.APIError):
        api.unpause(name)


FAULTS |= {
    "docker kill": _on_container(lambda api, name: api.kill(name)),
    "docker rm -f": _on_container(lambda api, name: api.remove_container(name, force=True)),
    "docker pause": _on_container(_pause),
}


def _cut(scene: Scene) -> bool:
    if scene.proxy is not None:
        scene.proxy.cut(_PAUSE)
    return scene.proxy is not None


def _stall(scene: Scene) -> bool:
    if scene.proxy is not None:
        scene.proxy.stall(_PAUSE)
    return scene.proxy is not None


def _filling(name: str) -> Fault:
    def fault(scene: Scene) -> bool:
        path = scene.folder / name / "filler"
        with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
            while file.write(bytes(65536)):
                pass
        with contextlib.suppress(OSError), path.open("ab", buffering=0) as file:
            while file.write(b"x"):
                pass
        time.sleep(_PAUSE)
        path.unlink()
        return True

    return fault


def _jump(scene: Scene) -> bool:
    (scene.folder / "jump").touch()
    return True


def _unwritable(scene: Scene) -> bool:
    path = scene.folder / "results/r.jsonl"
    with contextlib.suppress(OSError):
        path.rename(path.with_name("elsewhere"))
        return True
    return False


FAULTS |= {
    "lost socket": _cut,
    "stalled engine": _stall,
    "full TMPDIR": _filling("tmp"),
    "full disk of the results": _filling("results"),
    "the clock jumps an hour": _jump,
    "results file renamed": _unwritable,
}
FEW_DESCRIPTORS = "64 descriptors"
"""A fault that a run has from its start."""


@dataclass
class Disturbed:
    """What a disturbed run came to.

    Attributes:
        fault: what was done to it, and to how it was made.
        after: seconds from its start to the fault.
        infrastructure_errors: episodes that ended as infrastructure errors in the disturbed run.
        problems: what did not hold; empty if all did.
    """

    fault: str
    after: float
    infrastructure_errors: int = 0
    problems: list[str] = field(default_factory=list)


Rewards = dict[str, list[tuple[str, float]]]


def rewards(path: Path) -> Rewards:
    """Return outcome and reward of each graded row, by task."""
    rewards_by_task: Rewards = {}
    for record in read_records(path, _ignore) if path.exists() else ():
        if record.graded:
            rewards_by_task.setdefault(record.task.id, []).append((record.outcome, record.reward))
    return rewards_by_task


@dataclass
class Laboratory:
    """Where runs are disturbed.

    Attributes:
        folder: what is written is below.
        random: makes every choice.
        expected: the rewards of a run that nothing disturbs.
    """

    folder: Path
    random: random.Random
    expected: Rewards = field(default_factory=dict)
    _count: int = 0

    def measure(self, setting: Setting) -> float:
        """Run undisturbed once, and return the seconds; the rewards are those of all others."""
        with self._project() as folder:
            began = time.monotonic()
            output = _finish(_start(folder, setting, None))
            seconds = time.monotonic() - began
            measured = rewards(folder / "results/r.jsonl")
        self.expected = self.expected or measured
        assert measured == self.expected, output
        assert len(measured) == 12, output
        assert len({reward for [(_, reward)] in measured.values()}) > 2, measured
        return seconds

    @contextlib.contextmanager
    def _project(self) -> Iterator[Path]:
        """Make a folder whose results and temporary files lie on small disks of their own."""
        self._count += 1
        folder = self.folder / f"run{self._count}"
        folder.mkdir()
        _write_project(folder)
        mounted = []
        for name, size in (("results", "1m"), ("tmp", "64m")):
            (folder / name).mkdir()
            if os.geteuid() == 0:
                options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs"]
                subprocess.run(["mount", *options, str(folder / name)], check=True)
                mounted.append(folder / name)
        try:
            yield folder
        finally:
            for path in mounted:
                subprocess.run(["umount", "--lazy", str(path)], check=True)
            shutil.rmtree(folder, ignore_errors=True)


def _start(
    folder: Path, setting: Setting, proxy: EngineProxy | None, *options: str, few: bool = False
) -> psutil.Popen:
    command = [
        *(sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"),
        *("bash.yaml", "python.yaml", "--intercode-agent=player.py:Player"),
        *("--intercode-results=results/r.jsonl", *setting.options, *options),
    ]
    variables = {**os.environ, "TMPDIR": str(folder / "tmp")}
    if proxy is not None:
        variables["DOCKER_HOST"] = proxy.url
    with (folder / "printed").open("wb") as printed:
        return psutil.Popen(
            command,
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
            if few
            else None,
        )


def _finish(process: psutil.Popen) -> str:
    """Wait for a run's end; return what is wrong with it."""
    try:
        process.wait(_PATIENCE)
    except psutil.TimeoutExpired:
        for member in (*process.children(recursive=True), process):
            with contextlib.suppress(psutil.Error):
                member.kill()
        process.wait()
        return f"it did not end within {_PATIENCE:g} s"
    return ""


def _containers(pids: set[int]) -> list[str]:
    rows = docker.APIClient().containers(all=True, filters={"label": OWNER_LABEL})
    owners = {str(pid) for pid in pids}
    return [
        row["Id"][:12]
        for row in rows
        if owners & set(re.findall(r"\d+", row["Labels"][OWNER_LABEL]))
        and row["State"] != "removing"
    ]


def disturb(laboratory: Laboratory, setting: Setting, name: str, after: float) -> Disturbed | None:
    """Disturb a run once, look for what is left of it, and resume it.

    Args:
        laboratory: where.
        setting: how the run is made.
        name: the fault.
        after: seconds from the run's start to the fault.

    Returns:
        What it came to; None if the run was over before, or has nothing that the fault is of.
    """
    disturbed = Disturbed(
        f"{name} ({setting.backend}, {setting.concurrency}, {setting.workers})", after
    )
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(laboratory._project())
        proxy = None
        if name in ("lost socket", "stalled engine") and setting.backend == "docker":
            proxy = stack.enter_context(EngineProxy(folder / "engine.sock"))
        mounted = mounts()
        process = _start(folder, setting, proxy, few=name == FEW_DESCRIPTORS)
        scene = Scene(setting, folder, process, proxy, laboratory.random)
        time.sleep(after)
        pids = scene.pids
        done = name == FEW_DESCRIPTORS
        while not done and process.poll() is None:
            done = FAULTS[name](scene)  # what it is of may come later
            time.sleep(0 if done else 0.05)
        pids |= scene.pids
        problem = _finish(process)
        if not done:
            return None
        disturbed.problems.extend(filter(None, [problem]))
        disturbed.problems.extend(_left(folder, pids, mounted))
        disturbed.problems.extend(_errors(folder))
        path = folder / "results/r.jsonl"
        if not path.exists() and (folder / "results/elsewhere").exists():
            (folder / "results/elsewhere").rename(path)
        disturbed.problems.extend(_whole_rows(path))
        disturbed.infrastructure_errors = _infrastructure_errors(path)
        (folder / "jump").unlink(missing_ok=True)
        problem = _finish(_start(folder, setting, None, "--intercode-resume"))
        disturbed.problems.extend(
            f"resumed: {copied}" for copied in (problem, *_errors(folder)) if copied
        )
        if rewards(path) != laboratory.expected:
            disturbed.problems.append(f"other rewards: {_differences(path, laboratory.expected)}")
        if disturbed.problems:
            kept_folder = laboratory.folder / f"kept-{laboratory._count}"
            kept_folder.mkdir()
            for copied in (path, folder / "printed"):
                if copied.exists():
                    shutil.copy(copied, kept_folder)
    return disturbed


def _differences(path: Path, expected: Rewards) -> dict[str, object]:
    actual = rewards(path)
    names = actual.keys() | expected.keys()
    return {n: actual.get(n) for n in sorted(names) if actual.get(n) != expected.get(n)}


def _ignore(_: str) -> None:
    """Take a last row that is truncated for what it is: of a killed run."""


def _infrastructure_errors(path: Path) -> int:
    records = read_records(path, _ignore) if path.exists() else ()
    return sum(record.outcome == "infrastructure-error" for record in records)


def _left(folder: Path, pids: set[int], mounted: set[str]) -> list[str]:
    deadline = time.monotonic() + GONE
    while True:
        lines = [f"process {pid}" for pid in processes_with(str(folder))]
        lines += [f"container {name}" for name in _containers(pids)]
        lines += [f"mount {line}" for line in mounts() - mounted if str(folder) in line]
        # pytest's own folder of temporary files stays, as it does without us.
        lines += [f"file {f.name}" for f in (folder / "tmp").iterdir() if "pytest-of" not in f.name]
        lines += [
            f"control group {name}"
            for _, names, _ in os.walk("/sys/fs/cgroup")
            for name in names
            if name.startswith("pytest-intercode.") and any(f".{pid}." in name for pid in pids)
        ]
        if not lines or time.monotonic() > deadline:
            return [f"left behind: {', '.join(lines)}"] if lines else []
        time.sleep(0.1)


def _errors(folder: Path) -> list[str]:
    # pytest and its other plugins may fail as they like: a full disk is an INTERNALERROR there.
    printed = (folder / "printed").read_text(errors="replace")
    if re.search(r'File ".*/pytest_intercode/', printed):
        lines = [line for line in printed.splitlines() if line.strip()]
        return [f"it ended in an error of ours: {lines[-1][:200]}"]
    return []


def _whole_rows(path: Path) -> list[str]:
    """The file ends at a whole row, unless the process that wrote it was killed in the middle."""
    if not path.exists():
        return []
    *lines, _ = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            json.loads(line)
        except ValueError:
            return [f"row {number} is truncated"]
    return []
