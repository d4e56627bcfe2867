"""GPT-4's replay of NL2Bash under the paper profile, against InterCode's own chain of commands.

It runs only by name (``python -m benchmarks paper``), as it needs InterCode's data and recordings:
``INTERCODE_DATA`` and ``INTERCODE_RECORDINGS`` name the folders.

Ours are the first tasks of part 1 in their own pytest process, from the first item's setup to the
last one's teardown, including sandboxes. The chain is what InterCode 1.0.2 does for the same
actions, in its order, in two bare containers. Before an episode it does ``git reset``. For each
action it has an exec for the action and, to grade it, one for the reset of gold's side, one for
gold, one for ``git status`` on each side, and one on each side for the checksum of each path that
both created. Its containers are started, and their repositories created, before timing begins;
InterCode also waits for six seconds, and imports what it needs.

The notes have the limits of this machine. No profile can make the actions and gold themselves
faster: their time is that of their execs in the chain, less as many that run nothing. The other
limit is the time of the run's containers, as bare ones.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.bare import BareContainers, bare_containers
from benchmarks.machine import backends, needs
from benchmarks.measuring import Scale, Unavailable, in_turn, seconds
from benchmarks.runs import Folder, temporary_folder
from benchmarks.table import Bound, Part, against, duration
from pytest_intercode.core.task import Task
from pytest_intercode.environments.bash.paper import PaperBashEnvironment, split_action
from pytest_intercode.environments.bash.repository import IGNORED, IMAGE_AGE
from pytest_intercode.environments.paper import resolve_cd
from pytest_intercode.results.files import read_records
from pytest_intercode.rewards.bash_paper import parse_status
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.suites.catalogue import data_folder, dataset_tasks
from pytest_intercode.system.archives import build_archive

DATASET = "nl2bash-fs1"
BOUNDS = {"docker": 1 / 10, "bubblewrap": 1 / 20}
AT_A_TIME = 1, 4  # episodes; InterCode plays one
RESET = "git reset --hard; git clean -fd;"
STATUS = "git status --short;"


class Chain:
    """InterCode's two containers, and what it does in them."""

    def __init__(self, bare: BareContainers, agent: str, gold: str) -> None:
        self._bare = bare
        self._agent = agent
        self._gold = gold
        self.own = 0.0  # seconds of actions and gold since it was set to 0
        self.execs = 0  # execs of actions and gold since it was set to 0

    def play(self, task: Task, actions: Sequence[str]) -> None:
        """Play an episode, graded after each action."""
        self._shell(self._agent, RESET)
        directory = "/"
        for action in actions:
            target = resolve_cd(directory, action) if action.startswith("cd") else None
            status = self._own(
                self._agent,
                action if target is None else f"cd {target}",
                directory if target is None else "/",
            )
            directory = target if target is not None and status == 0 else directory
            self._grade(task)

    def _grade(self, task: Task) -> None:
        self._shell(self._gold, RESET)
        self._own(self._gold, ";".join(task.gold))
        sides = self._agent, self._gold
        agent, gold = (parse_status(self._shell(side, STATUS)) for side in sides)
        for path, code in set(agent) & set(gold):
            if code in ("A", "??", "C"):
                command = f"md5sum {path}" if "." in path else f"md5deep -r {path}"
                for side in sides:
                    self._bare.run(side, shlex.split(command))

    def _own(self, container: str, action: str, directory: str = "/") -> int | None:
        words = split_action(action)
        status: list[int] = []
        if words is not None:
            run = self._bare.run
            self.own += seconds(lambda: status.append(run(container, words, directory)[0]))
            self.execs += 1
        return status[0] if status else None

    def _shell(self, container: str, command: str) -> str:
        words = split_action(command)
        assert words is not None
        return self._bare.run(container, words)[1].decode()


def replay(
    folder: Folder, recording: Path, data: Path, count: int, backend: str, at_a_time: int
) -> float:
    """Play the recording; return the seconds from the first item to the last one's end."""
    results = folder.path / "results.jsonl"
    results.unlink(missing_ok=True)
    return folder.pytest(
        f"--intercode-dataset={DATASET}",
        f"--intercode-data={data}",
        f"--intercode-agent=replay:{recording}",
        "--intercode-profile=paper",
        f"--intercode-sandbox={backend}",
        f"--intercode-limit={count}",
        f"--intercode-concurrency={at_a_time}",
        f"--intercode-results={results}",
        failures=True,
    ).loop


def named(backend: str, at_a_time: int) -> str:
    """Return the name of a replay in rows."""
    return f"on {backend}, {at_a_time} at a time"


def actions_of(folder: Folder) -> Mapping[str, list[str]]:
    """Return the actions that the last replay took, by the ids of tasks."""
    records = read_records(folder.path / "results.jsonl")
    return {record.task.id: [turn.action for turn in record.turns] for record in records}


def made_ready(bare: BareContainers, container: str, task: Task) -> None:
    """Prepare a bare container like InterCode's image."""
    bare.put(container, build_archive(task, int(time.time()) - IMAGE_AGE))
    bare.exec_run(container, ["bash", "-c", f"printf '%s\\n' {IGNORED} >/.gitignore"])
    for command in (
        "git config --global user.email intercode@localhost",
        "git config --global user.name intercode",
        "git init -q",
        "git add -A",
        "git commit -q -m initial",
    ):
        bare.exec_run(container, command.split())


def measure(scale: Scale) -> Part:
    """Measure replays and the chain, in turn."""
    needs("docker")
    names = os.environ.get("INTERCODE_DATA"), os.environ.get("INTERCODE_RECORDINGS")
    if not all(names):
        raise Unavailable("INTERCODE_DATA and INTERCODE_RECORDINGS name no folders")
    data, recordings = (Path(name or "").resolve() for name in names)
    recording = recordings / "bash_fs1_gpt-4.json.gz"
    count = scale.pick(20, 2)
    data_source = data_folder(data, "INTERCODE_DATA")
    tasks = dataset_tasks(DATASET, data_source, DATASET)[:count]
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        bare = stack.enter_context(bare_containers())
        provider = stack.enter_context(
            contextlib.closing(SandboxProvider(SandboxSettings("docker")))
        )
        spec = PaperBashEnvironment.spec(tasks[0], provider)
        agent, gold = (stack.enter_context(bare.lent(spec)) for _ in range(2))
        for side in (agent, gold):
            made_ready(bare, side, tasks[0])
        chain = Chain(bare, agent, gold)
        works: dict[str, Callable[[], float]] = {
            named(backend, many): partial(replay, folder, recording, data, count, backend, many)
            for backend in backends()
            for many in AT_A_TIME
        }
        works[named("docker", 1)]()  # records the actions to take
        actions = actions_of(folder)

        def in_chain() -> float:
            chain.own, chain.execs = 0.0, 0
            return sum(seconds(partial(chain.play, task, actions[task.id])) for task in tasks)

        works["chain"] = in_chain
        works["own"] = lambda: chain.own - chain.execs * empty(bare, agent)
        works["containers"] = lambda: bare.cycles(2 * count, threads=4)
        times = in_turn(works, scale.pick(3, 1))
    part = Part("GPT-4's replay of NL2Bash under the paper profile, against InterCode's chain")
    steps = sum(map(len, actions.values()))
    for backend in backends():
        for many in AT_A_TIME:
            name, bound = named(backend, many), Bound("at most", BOUNDS[backend])
            title = f"{count} episodes, {steps} actions, {name}"
            row = against(title, times[name], "InterCode's execs", times["chain"], bound)
            part.rows.append(row)
    part.notes.append(
        "The limits of this machine: of the chain, the actions and gold take "
        f"{duration(max(0.0, times['own']))} by themselves; as many bare containers as ours take "
        f"{duration(times['containers'])}, four at a time."
    )
    return part


def empty(bare: BareContainers, container: str) -> float:
    """Return the seconds of an exec that runs nothing."""
    command = ["/bin/bash", "-c", "true"]
    return statistics.median(seconds(partial(bare.run, container, command)) for _ in range(20))
