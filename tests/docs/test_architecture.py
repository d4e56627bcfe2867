"""What docs/architecture.md shows of each protocol is typed, and works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import results

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```python (\S+)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE))
BACKEND = ROOT / "tests" / "support" / "extension" / "intercode_extension" / "bwrap.py"

SUITE = """\
env: number
tasks: [{id: seven, query: Which number?, gold: "7"}]
"""

# What the page says each of them is.
CLAIMS = """\
from bwrap import BwrapBackend
from direct_executor import DirectExecutor
from number_agent import NumberAgent
from number_environment import NumberEnvironment, NumberKind
from number_reward import reward

from pytest_intercode import (
    Backend,
    EnvironmentKind,
    RewardFunction,
    SandboxProvider,
    SandboxSettings,
    StepAgent,
)
from pytest_intercode.rollouts.executor import Executor
from pytest_intercode.rollouts.rollout import Services

agent: StepAgent = NumberAgent()
kind: EnvironmentKind = NumberKind(NumberEnvironment)
backend: Backend = BwrapBackend(SandboxSettings())
executor: Executor = DirectExecutor(Services(SandboxProvider()))
function = RewardFunction("number_reward:reward", reward)
"""

# Plays an episode with the agent, the environment and the executor of the page.
EPISODE = """\
from direct_executor import DirectExecutor
from number_agent import NumberAgent
from number_environment import NumberEnvironment

from pytest_intercode import SandboxProvider, Task
from pytest_intercode.agents.protocol import Agent
from pytest_intercode.rollouts.rollout import Services
from pytest_intercode.rollouts.spec import RolloutSpec

provider = SandboxProvider()
services = Services(
    provider,
    make_agent=lambda spec: Agent("step", act=NumberAgent().act),
    make_environment=lambda spec: NumberEnvironment(provider, max_turns=2),
)
executor = DirectExecutor(services)
tasks = [Task("seven", "Which number?", (gold,), "number", "s", "d") for gold in ("7", "8")]
records = [executor.submit(RolloutSpec(task)).recorded.result() for task in tasks]
assert [record.outcome for record in records] == ["solved", "out-of-budget"], records
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The page's files in a folder, with the metadata of a package that has the environment."""
    for name, text in {**FILES, "claims.py": CLAIMS, "episode.py": EPISODE}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "numbers.yaml").write_text(SUITE)
    metadata = tmp_path / "numbers-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: numbers\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[pytest_intercode.environments]\nnumber = number_environment:NumberEnvironment\n"
        "[pytest_intercode.sandboxes]\nbwrap = bwrap:BwrapBackend\n"
    )
    return tmp_path


def _run(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(project), str(ROOT)))
    result = subprocess.run(
        [sys.executable, *words],
        cwd=project,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result


def test_each_protocol_has_its_smallest_code() -> None:
    sections = re.findall(r"^### (\w+)$", TEXT, re.MULTILINE)
    assert sections == ["Agent", "EnvironmentKind", "Backend", "Executor", "Reward"]
    assert len(FILES) == len(sections)
    assert FILES["bwrap.py"] == BACKEND.read_text(), "a test of a whole run has this one, too"


@pytest.mark.slow
def test_it_is_typed(project: Path, pytestconfig: pytest.Config) -> None:
    kept = getattr(pytestconfig, "cache", None)  # what mypy knows of the package, for the next run
    cache = kept.mkdir("mypy") if kept is not None else project / ".mypy_cache"
    options = ("--strict", "--config-file=", f"--cache-dir={cache}")
    _run(project, "-m", "mypy", *options, *FILES, "claims.py", "episode.py")


def test_an_item(project: Path) -> None:
    options = ("--intercode-agent=number_agent.py:NumberAgent", "-p", "no:cacheprovider")
    assert "1 passed" in _run(project, "-m", "pytest", "numbers.yaml", *options).stdout


def test_a_reward_function(project: Path) -> None:
    options = ("--intercode-env=sql", "--intercode-limit=1", "-p", "no:cacheprovider")
    _run(
        project,
        *("-m", "pytest", "--intercode-agent=oracle", "--intercode-results=r.jsonl", *options),
    )
    [row] = results(project / "r.jsonl")
    function = "--reward=number_reward.py:reward"
    _run(project, "-m", "pytest_intercode", "rescore", "r.jsonl", function, "--output=again.jsonl")
    [rescored] = results(project / "again.jsonl")
    assert rescored["reward"] == 1 / len(row["turn_history"]["actions"])


def test_an_episode_of_the_executor(project: Path) -> None:
    _run(project, "episode.py")


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([a-z_]+/[a-z_./]*)`", TEXT))))
def test_a_folder_or_module_that_is_named_exists(name: str) -> None:
    assert any((root / name).exists() for root in (ROOT / "pytest_intercode", ROOT))
