"""Streams of rollouts on a real Ray cluster of two nodes: new weights, a lost process, the end."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.support.ray_cluster import PYTHON, RayCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

POLICY = '''
import pytest_intercode


class Policy:
    """Logs its weights; sleeps in its sandbox if it is to."""

    def __init__(self, style, weights, sleep=0):
        self.said = f"{style} {weights.read_text()} {weights.name}"
        self.sleep = sleep

    def run(self, task, env):
        pytest_intercode.log(self.said)
        env.spend(input_tokens=90, output_tokens=4)
        env.step(f"sleep {self.sleep}")
        env.submit()
'''
TRAINER = """
import itertools, json, sys, threading
from pathlib import Path
import pytest_intercode

weights = Path("weights.txt")
weights.write_text("one")


def told(record, **more):
    row = {"version": record.parameters_version, "log": record.turns[0].log, "host": record.host}
    row |= {"tokens": record.usage.tokens, "attempts": len(record.attempts), "item": record.item}
    print(json.dumps({**row, "outcome": record.outcome, **more}), flush=True)


def wait_for(what):
    print(json.dumps({"part": what}), flush=True)
    sys.stdin.readline()


with pytest_intercode.Cluster(sys.argv[1], sandbox="bubblewrap") as cluster:

    def stream(tasks, **more):
        return pytest_intercode.run_rollouts(
            tasks,
            "agents/policy.py:Policy",
            agent_arguments={"style": "s"},
            parameters={"weights": weights, "sleep": more.pop("sleep", 0)},
            concurrency=4,
            cluster=cluster,
            **more,
        )

    with stream("bash", n=8, buffer=0) as records:
        for record in itertools.islice(records, 4):
            told(record, part="before")
        weights.write_text("two")
        records.set_parameters({"weights": weights, "sleep": 0}, version=20)
        for record in itertools.islice(records, 8):
            told(record, part="after")
    tasks = pytest_intercode.make("bash").tasks.tasks[:8]
    with stream(tasks, sleep=1, ordered=True) as records:
        for record in records:
            told(record, part="lost")
            if record.item == 1:
                wait_for("kill")
    with stream("bash", sleep=300, timeout=400, action_timeout=350) as records:
        taken = threading.Thread(target=lambda: next(records, None))
        taken.start()
        wait_for("sleeping")
    taken.join()
    print(json.dumps({"part": "left", "done": sum(c.done for c in cluster.counts.values())}))
"""


def test_a_trainer_on_two_nodes(cluster: RayCluster, tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents/policy.py").write_text(POLICY)
    (tmp_path / "train.py").write_text(TRAINER)
    rows = []
    with (
        (tmp_path / "errors").open("w") as errors,
        subprocess.Popen(
            [str(PYTHON), "train.py", cluster.address],
            cwd=tmp_path,
            env={**os.environ, **cluster.variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as trainer,
    ):
        assert trainer.stdin is not None
        assert trainer.stdout is not None
        for line in trainer.stdout:
            row = json.loads(line)
            if row["part"] == "kill":
                cluster.players()[0].kill()
            elif row["part"] == "sleeping":
                until(lambda: len(sleeping(cluster)) >= 4)
            else:
                rows.append(row)
                continue
            trainer.stdin.write("\n")
            trainer.stdin.flush()
    assert (trainer.returncode, (tmp_path / "errors").read_text()) == (0, ""), rows
    part = {
        name: [row for row in rows if row["part"] == name]
        for name in ("before", "after", "lost", "left")
    }
    assert {(row["version"], row["log"]) for row in part["before"]} == {(1, "s one weights.txt")}
    seen = [(row["version"], row["log"]) for row in part["after"]]
    assert set(seen) <= {(1, "s one weights.txt"), (20, "s two weights.txt")}
    assert seen.count((1, "s one weights.txt")) <= 4, "but for what had begun"
    assert {row["tokens"] for row in part["before"] + part["after"]} == {94}
    assert len({row["host"] for row in part["before"] + part["after"]}) == 2
    assert [row["item"] for row in part["lost"]] == list(range(8))
    assert any(row["attempts"] for row in part["lost"]), "its process was killed under it"
    assert not any(row["outcome"] == "infrastructure-error" for row in rows[:-1])
    assert len(part["left"]) == 1
    until(lambda: not sleeping(cluster))


def sleeping(cluster: RayCluster) -> list[psutil.Process]:
    """Return what sleeps in sandboxes of the nodes."""
    found = []
    for each in cluster.below():
        with contextlib.suppress(psutil.Error):
            if each.name() == "sleep":
                found.append(each)
    return found


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)
