"""60 oracle episodes, with two sandboxes each, against 60 bare container cycles one by one.

A bare cycle creates, starts, kills and removes a container of the same image with the same limits,
and nothing else. It is measured twice: with the network mode ``none``, as most would write it, and
with networking disabled, as our sandboxes are started, which takes half the time.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from benchmarks.measuring import seconds, show
from pytest_intercode.agents.oracle import make_oracle
from pytest_intercode.environments.base import Environment
from pytest_intercode.environments.bash import BashEnvironment
from pytest_intercode.episode import run_episode
from pytest_intercode.sandboxes.docker.container import host_config
from pytest_intercode.sandboxes.docker.engine import connect
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.suites.loader import load_suite
from pytest_intercode.suites.task import Task

EPISODES = 60
ROUNDS = 3
AHEAD = 2


def bare_cycles(api: Any, spec: SandboxSpec, count: int, disabled: bool = False) -> None:
    for _ in range(count):
        config = host_config(api, spec)
        config["AutoRemove"] = False
        created = api.create_container(
            spec.image, ["sleep", "1000"], host_config=config, network_disabled=disabled
        )
        api.start(created["Id"])
        api.kill(created["Id"])
        api.remove_container(created["Id"], force=True)


def oracle_episodes(
    provider: SandboxProvider, tasks: list[Task], kind: type[Environment] = BashEnvironment
) -> None:
    environment = kind(provider)
    for at, task in enumerate(tasks):
        for started in (0, 1):
            upcoming = tasks[at + started : at + started + AHEAD]
            provider.expect(spec for each in upcoming for spec in kind.sandboxes(each, provider))
            if not started:
                first, _ = environment.reset(task=task)
        episode = run_episode(make_oracle(task), environment, first)
        environment.close()
        assert episode.solved, episode.headline


def main() -> None:
    provider = SandboxProvider()
    api = connect()
    suite = load_suite(Path(__file__).parents[1] / "tasks" / "bash.yaml")
    tasks = list(suite.tasks[:EPISODES])
    spec = BashEnvironment.sandboxes(tasks[0], provider)[0]
    bare_cycles(api, spec, 3)
    oracle_episodes(provider, tasks[:3])
    bare, fast, ours = [], [], []
    for _ in range(ROUNDS):
        bare.append(seconds(lambda: bare_cycles(api, spec, EPISODES)))
        ours.append(seconds(lambda: oracle_episodes(provider, tasks)))
        fast.append(seconds(lambda: bare_cycles(api, spec, EPISODES, disabled=True)))
    provider.close()
    reference = statistics.median(bare)
    show(f"{EPISODES} bare container cycles (reference)", reference)
    show("the same, with networking disabled", statistics.median(fast), reference)
    show(
        f"{EPISODES} oracle episodes, {2 * EPISODES} sandboxes", statistics.median(ours), reference
    )
    rounds = zip(ours, bare, fast, strict=True)
    print("rounds: " + ", ".join(f"{o / b:.2f} ({o / f:.2f})" for o, b, f in rounds))
