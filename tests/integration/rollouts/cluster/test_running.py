"""Runs on a real Ray cluster of two nodes on this machine: what users see is as without one."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ADDOPTS, AGENTS, SUITE
from tests.support.ray_cluster import PYTHON, RayCluster, linked_packages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_WHEN_AND_WHERE = {"seconds", "turn_seconds", "turn_agent_seconds", "phases", "host"}
OWN = """\
import pytest

@pytest.fixture
def mine():
    return 1

@pytest.mark.intercode(suite="suite.yaml", ids=["prints"])
def test_mine(mine, intercode_episode):
    assert intercode_episode.turns
"""
SLOW = '''
import os, sys, time, logging, beside

class Slow:
    """Says much, slowly."""

    def reset(self, task):
        self.id = task.id
        self.left = ["echo a", "echo b", "submit"]
        print("begins", task.id)
        print("complains", task.id, file=sys.stderr)

    def act(self, observation):
        logging.getLogger("slow").warning("acts on %s", self.id)
        time.sleep(beside.PAUSE)
        return self.left.pop(0)


class Variables:
    """Needs a variable."""

    def act(self, observation):
        print("KEPT" if "WANTED" in os.environ else "MISSING", "SECRET" in os.environ)
        return "submit"


class Large:
    """Says more than a record may have."""

    def run(self, task, env):
        for _ in range(9):
            env.think("x" * 1_000_000 * 40)
            env.step("true")


class Deadly:
    """Ends its process when it has taken a turn."""

    def run(self, task, env):
        env.step("echo hi")
        time.sleep(0.5)
        os._exit(3)
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "suite.yaml").write_text(SUITE)
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents/agents.py").write_text(AGENTS)
    (tmp_path / "agents/slow.py").write_text(SLOW)
    (tmp_path / "agents/beside.py").write_text("PAUSE = 0.2\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def _timeless(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        row["node_id"]: {name: row[name] for name in row if name not in _WHEN_AND_WHERE}
        for row in rows
    }


def test_the_bundled_suites_have_the_rows_that_they_have_inline(
    cluster: RayCluster, folder: Path
) -> None:
    asked = ("--intercode-env=sql,bash,python,ctf", "--intercode-agent=oracle", "-q")
    run = cluster.run(folder, *asked, "--intercode-results=run.jsonl", "--intercode-concurrency=6")
    assert run.process.returncode == 0, run.said
    subprocess.run(
        [
            *(PYTHON, "-m", "pytest", *asked, "--intercode-results=inline.jsonl"),
            *("-p", "no:cacheprovider", *ADDOPTS.split(), "--intercode-sandbox=bubblewrap"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    inline = _timeless(run.rows("inline.jsonl"))
    assert len(inline) > 200
    assert _timeless(run.rows()) == inline
    assert len({row["host"] for row in run.rows()}) == 2
    # What takes less than a millisecond, as the start of a database may, is left out.
    assert all("agent" in row["phases"] for row in run.rows())
    assert {"start", "tests"} <= {name for row in run.rows() for name in row["phases"]}


def test_items_are_in_order_with_their_own_output(cluster: RayCluster, folder: Path) -> None:
    run = cluster.run(
        folder, "suite.yaml", "-v", "--intercode-agent=agents/slow.py:Slow", "--junitxml=j.xml"
    )
    assert run.process.returncode == 1, run.said
    at = [run.said.index(f"::test_solves[{name}] FAILED") for name in ("prints", "writes", "both")]
    assert at == sorted(at)
    for name in ("prints", "writes", "both"):
        part = run.said.partition(f"_ test_solves[{name}] _")[2].partition("intercode trajectory")[
            0
        ]
        assert f"begins {name}" in part
        assert f"complains {name}" in part
        assert part.count(f"WARNING  slow:slow.py:14 acts on {name}") == 3, part
    assert f"node {_host()}-" in run.said
    assert "episodes, " in run.said


def test_several_agents_play_on_the_nodes(cluster: RayCluster, folder: Path) -> None:
    agents = ("--intercode-agent=oracle", "--intercode-agent=agents/slow.py:Slow")
    run = cluster.run(folder, "suite.yaml", *agents, "--intercode-results=run.jsonl")
    assert run.process.returncode == 1, run.said
    rows = {(row["task_id"], row["agent"]): row["outcome"] for row in run.rows()}
    tasks = ("prints", "writes", "both")
    outcomes = {"oracle": "solved", "agents/slow.py:Slow": "failed"}
    assert rows == {(task, agent): outcomes[agent] for task in tasks for agent in outcomes}
    assert all(row["host"] for row in run.rows())


def _host() -> str:
    return subprocess.run(["uname", "-n"], capture_output=True, text=True).stdout.strip()


def test_x_begins_nothing_more(cluster: RayCluster, folder: Path) -> None:
    run = cluster.run(
        folder,
        *("suite.yaml", "-x", "--intercode-repeat=10", "--intercode-concurrency=2"),
        *("--intercode-agent=agents/slow.py:Slow", "--intercode-results=run.jsonl"),
    )
    assert run.process.returncode == 1, run.said
    assert "stopping after 1 failures" in run.said
    assert len(run.rows()) < 6
    assert not cluster.sandboxes()


def test_ctrl_c_ends_at_once_and_resume_goes_on(cluster: RayCluster, folder: Path) -> None:
    asked = (
        *("suite.yaml", "--intercode-agent=agents/slow.py:Slow", "--intercode-repeat=8"),
        *("--intercode-results=run.jsonl", "--intercode-resume", "--intercode-concurrency=4"),
    )
    run = cluster.start(folder, *asked)
    run.until(lambda: len(run.rows()) >= 4)
    run.process.send_signal(signal.SIGINT)
    assert run.wait(30) == 2, run.said
    assert "KeyboardInterrupt" in run.said
    assert not cluster.sandboxes()
    before = run.rows()
    assert len(before) < 24
    run = cluster.run(folder, *asked)
    assert f"{len(before)} reused from the resumed run" in run.said.replace("episodes ", "")
    names = [row["node_id"] for row in run.rows()]
    assert len(names) == len(set(names)) == 24
    assert run.rows()[: len(before)] == before


def test_the_runs_budget_is_kept(cluster: RayCluster, folder: Path) -> None:
    (folder / "test_own.py").write_text(OWN)  # its items run in the driver's process
    run = cluster.run(
        folder,
        *("test_own.py", "suite.yaml", "--intercode-agent=agents/slow.py:Slow"),
        *("--intercode-repeat=8", "--intercode-results=run.jsonl", "--intercode-concurrency=8"),
        "--intercode-run-max-turns=31",
    )
    assert "the run's 31 turns are used up" in run.said
    assert sum(row["summary"]["turns_taken"] for row in run.rows()) == 31
    assert len({row.get("host") for row in run.rows()}) == 3
    for row in run.rows():
        assert row["outcome"] in ("failed", "solved") or "31 turns" in row["reason"], row


def test_nodes_have_the_variables_that_are_named_and_no_others(
    cluster: RayCluster, folder: Path
) -> None:
    asked = ("suite.yaml", "-k", "prints", "--intercode-agent=agents/slow.py:Variables")
    variables = {"WANTED": "xyzzy-1", "SECRET": "xyzzy-2"}
    run = cluster.run(folder, *asked, **variables)
    assert "MISSING False" in run.said
    run = cluster.run(folder, *asked, "--intercode-cluster-env=WANTED", **variables)
    assert "KEPT False" in run.said
    assert "xyzzy" not in run.said
    logs = subprocess.run(
        ["grep", "-rl", "xyzzy-1", f"{cluster._folder}"], capture_output=True, text=True
    )
    assert logs.stdout == ""
    run = cluster.run(folder, *asked, "--intercode-cluster-env=NOT_THERE")
    assert "--intercode-cluster-env=NOT_THERE: there is no such variable" in run.said


def test_files_of_tasks_and_recordings_travel(cluster: RayCluster, folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data/note").write_text("in the archive\n")
    (folder / "files.yaml").write_text(
        "env: bash\ntasks:\n  - {id: read, query: Print the note., gold: cat /d/note, "
        "archive: {path: data, at: /d}}\n"
    )
    asked = ("files.yaml", "--intercode-results=run.jsonl")
    run = cluster.run(folder, *asked, "--intercode-agent=oracle")
    assert run.process.returncode == 0, run.said
    assert run.rows()[0]["turn_history"]["observations"] == ["in the archive\n"]
    (folder / "run.jsonl").rename(folder / "old.jsonl")
    run = cluster.run(folder, *asked, "--intercode-agent=replay:old.jsonl")
    assert run.process.returncode == 0, run.said
    assert run.rows()[0]["agent"] == "replay:old.jsonl"


def test_programs_travel_with_their_folder(cluster: RayCluster, folder: Path) -> None:
    (folder / "agent.py").write_text(
        "import json, sys\nprint(json.dumps({'action': 'echo hello'}))\n"
        "sys.stdin.readline(); sys.stdin.readline()\nprint(json.dumps({'action': 'submit'}))\n"
    )
    run = cluster.run(
        folder, "suite.yaml", "-k", "prints", "--intercode-agent=command:python3 agent.py"
    )
    assert run.process.returncode == 0, run.said


def test_what_needs_this_process_runs_in_it(cluster: RayCluster, folder: Path) -> None:
    (folder / "conftest.py").write_text(
        "class Mine:\n    def act(self, observation):\n        return 'submit'\n\n"
        "def pytest_intercode_make_agent(config, task):\n    return Mine()\n"
    )
    run = cluster.run(folder, "suite.yaml", "--intercode-results=run.jsonl")
    assert "3 items need this process, and run in it one after the other" in run.said
    assert len(run.rows()) == 3


def test_a_record_that_is_too_large_is_its_agents_fault(cluster: RayCluster, folder: Path) -> None:
    run = cluster.run(
        folder,
        *("suite.yaml", "-k", "prints", "--intercode-agent=agents/slow.py:Large"),
        "--intercode-results=run.jsonl",
    )
    (row,) = run.rows()
    assert row["outcome"] in ("agent-error", "failed"), row
    assert len(json.dumps(row)) < 40_000_000


def test_an_agent_that_ends_its_process_gains_nothing(cluster: RayCluster, folder: Path) -> None:
    run = cluster.run(
        folder,
        *("suite.yaml", "-k", "prints", "--intercode-agent=agents/slow.py:Deadly"),
        *("--intercode-results=run.jsonl", "--intercode-max-turns=5"),
    )
    (row,) = run.rows()
    assert row["outcome"] == "agent-error", run.said
    assert "the process that it ran in ended under it 3 times" in row["reason"]
    assert len(row["attempts"]) == 3


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("-n", "2"), "the nodes of the cluster replace xdist's workers"),
        (("--intercode-agent=human",), "the agent human uses this terminal"),
        (("--intercode-agent=agents/none.py:A",), "there is no file"),
        (("--intercode-network", "--intercode-agent=oracle"), "would share the node's network"),
    ],
)
def test_what_a_cluster_cannot_keep_is_one_line(
    cluster: RayCluster,
    folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
    asked: tuple[str, ...],
    said: str,
) -> None:
    packages = linked_packages(tmp_path_factory.mktemp("packages"), "pytest-xdist")
    run = cluster.run(folder, "suite.yaml", *asked, PYTHONPATH=str(packages))
    assert run.process.returncode == 4, run.said
    assert said in run.said
    assert "Traceback" not in run.said
    assert len([line for line in run.said.splitlines() if "ERROR" in line]) == 1


def test_a_node_with_other_versions_is_refused_in_one_line(
    cluster: RayCluster, folder: Path
) -> None:
    """The driver pretends to be of another version; the nodes are what they are."""
    (folder / "other.py").write_text(
        "from pytest_intercode.rollouts.cluster import nodes\n"
        "own = nodes.versions()\n"
        "nodes.versions = lambda: {**own, 'Python': '3.9.1', 'Ray': '2.0.0'}\n"
    )
    run = cluster.run(
        folder, "-p", "other", "suite.yaml", "--intercode-agent=oracle", PYTHONPATH=str(folder)
    )
    assert run.process.returncode == 4, run.said
    (line,) = (line for line in run.said.splitlines() if "ERROR" in line)
    assert line.count(f"node {_host()}-") == 2, line
    assert line.count(", here 3.9.1, Ray ") == line.count(", here 2.0.0") == 2, line
    assert "Traceback" not in run.said


@pytest.mark.parametrize(
    ("address", "variables", "said"),
    [
        ("127.0.0.1:1", {}, "no Ray cluster answers at 127.0.0.1:1: Connection refused"),
        ("127.0.0.1:1", {"RAY_AUTH_MODE": ""}, "RAY_AUTH_MODE=token"),
        ("auto", {"RAY_ADDRESS": "ray://127.0.0.1:1"}, "use ray job submit"),
        ("local:none", {}, "local:N is needed"),
        ("somewhere", {}, "auto, HOST:PORT or local:N is needed"),
    ],
)
def test_a_cluster_that_is_not_there_is_one_line(
    cluster: RayCluster, folder: Path, address: str, variables: dict[str, str], said: str
) -> None:
    asked = ("suite.yaml", "--intercode-agent=oracle", f"--intercode-cluster={address}")
    run = cluster.run(folder, *asked, **variables)
    assert run.process.returncode == 4, run.said
    assert said in run.said
    assert "Traceback" not in run.said
