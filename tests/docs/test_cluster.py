"""The commands of docs/cluster.md run as they are shown: on Ray, on this machine.

``auto`` is a cluster of the tests, and the model is one on loopback. What starts nodes by hand runs
in namespaces of its own, so that ports and folders are free and all of it ends with the test.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ADDOPTS
from tests.docs.shell import run
from tests.docs.test_commands import AGENT, COMMAND, ROOT
from tests.support.chat_server import ChatServer, Request
from tests.support.ray_cluster import PYTHON, RayCluster, linked_packages, needs_ray

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PAGE = (ROOT / "docs/cluster.md").read_text(encoding="utf-8")
OPTIONS = f"{ADDOPTS} --intercode-limit=2 --intercode-sandbox=bubblewrap"
# What stands for the reader's own: a registry, a head that takes jobs, and `...`.
THEIRS = ("registry.example.org", "pytest ...")
COMMANDS = [
    each.partition("   #")[0].strip()
    for each in COMMAND.findall(PAGE)
    if not any(part in each for part in THEIRS)
]
"""Commands of pytest that need no more than a cluster."""


def _answer(request: Request) -> str:
    return "Action: submit"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs_ray()
    return linked_packages(tmp_path_factory.mktemp("packages"), "openai")


@pytest.fixture(scope="module")
def cluster(packages: Path) -> Iterator[RayCluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(packages))
        made = RayCluster(2)
    yield made
    made.close()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "my_agent.py").write_text(AGENT)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def test_the_page_has_commands_to_run() -> None:
    assert len(COMMANDS) == 2
    assert sum("local:2" in each for each in COMMANDS) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page(
    command: str, cluster: RayCluster, packages: Path, project: Path
) -> None:
    with ChatServer(_answer) as server:
        options = OPTIONS
        if "react" in command:
            options += f" --intercode-agent-arg=base_url={server.url}"
        done = run(
            f"{command} --intercode-results=run.jsonl",
            project,
            options,
            PATH=f"{PYTHON.parent}:/usr/bin:/bin",
            PYTHONPATH=str(packages),
            RAY_ADDRESS=cluster.address,
            OPENAI_API_KEY="sk-of-the-reader",
            **cluster.variables,
        )
        said = done.stdout + done.stderr
        assert done.returncode == 1, said  # these agents solve nothing
        assert len(server.requests) == 2 * ("react" in command), said
    rows = [json.loads(line) for line in (project / "run.jsonl").read_text().splitlines()]
    assert [row["outcome"] for row in rows] == ["failed", "failed"], said
    assert all(row["host"] for row in rows)
    assert "node " in said


def test_nodes_that_are_started_by_hand(project: Path) -> None:
    needs_ray()
    own = (
        "unshare",
        "--net",
        "--mount",
        "--ipc",
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
    )
    if subprocess.run([*own, "true"], capture_output=True, check=False).returncode:
        pytest.skip("namespaces of one's own need root")
    lines = [line.strip() for line in PAGE.splitlines() if line.startswith("    ray start")]
    token = next(line.strip() for line in PAGE.splitlines() if "RAY_AUTH_MODE=" in line)
    command = next(each for each in COMMAND.findall(PAGE) if each.startswith("pytest ..."))
    ours = "--intercode-agent=my_agent.py:Agent --intercode-env=sql --intercode-results=run.jsonl"
    script = [
        *("set -e", "mkdir -p /tmp/ray", "mount -t tmpfs none /tmp/ray", "ip link set lo up"),
        *("export RAY_memory_monitor_refresh_ms=0", token),
        # Ray's dashboard is not in the environment, and the machine is small.
        f"{lines[0].partition('#')[0]} --include-dashboard=false --num-cpus=1",
        f"{lines[1].partition('#')[0].replace('FIRST', '127.0.0.1')} --num-cpus=1",
        command.partition("#")[0].replace("...", ours),
    ]
    done = run(
        f"{shlex.join(own)} bash -c {shlex.quote(chr(10).join(script))}",
        project,
        OPTIONS,
        PATH=f"{PYTHON.parent}:/usr/sbin:/usr/bin:/sbin:/bin",
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert said.count("node ") >= 2, said
    assert (project / "run.jsonl").read_text().count("\n") == 2
