"""examples/intercode_skyrl.py: what it hands on is what SkyRL's own validator takes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.gateway.test_programs import AGENT
from tests.support.model_server import Command, ModelServer, Request
from tests.support.token_ids import prompt_of

ROOT = Path(__file__).parents[2]
# SkyRL's definitions and its validator, from its own files. What trains is not installed: torch is
# there for annotations alone, and the packages' own modules, which import it, are passed by.
PLAYER = """
import ast, asyncio, importlib.util, json, sys, types

folder = importlib.util.find_spec("skyrl").submodule_search_locations[0]
for name, path in [
    ("skyrl.train", "train"),
    ("skyrl.train.generators", "train/generators"),
    ("skyrl.backends", "backends"),
    ("skyrl.backends.skyrl_train", "backends/skyrl_train"),
    ("skyrl.backends.skyrl_train.inference_servers", "backends/skyrl_train/inference_servers"),
]:
    package = sys.modules[name] = types.ModuleType(name)
    package.__path__ = [f"{folder}/{path}"]
sys.modules["torch"] = types.ModuleType("torch")
sys.modules["torch"].Tensor = object

import numpy
from loguru import logger
from skyrl.train.generators import base
from intercode_skyrl import IntercodeGenerator, dataset
import pytest_intercode

with open(f"{folder}/train/utils/trainer_utils.py") as file:
    tree = ast.parse(file.read())
names = ("validate_generator_output", "_validate_step_wise_fields")
tree.body = [node for node in tree.body if getattr(node, "name", "") in names]
assert len(tree.body) == len(names)
validator = {"np": numpy, "logger": logger, **vars(base)}
exec(compile(tree, "trainer_utils.py", "exec"), validator)


class Client:
    def get_endpoint_url(self):
        return sys.argv[2]


tasks = pytest_intercode.make("bash").tasks
rows = dataset([tasks.find("tools-executable"), tasks.find("access-log-server-errors")])
batch = {
    "prompts": [row["prompt"] for row in rows for _ in range(2)],
    "env_classes": [row["env_class"] for row in rows for _ in range(2)],
    "env_extras": [{"task": row["task"]} for row in rows for _ in range(2)],
    "sampling_params": None,
    "trajectory_ids": [base.TrajectoryID(row["task"], n) for row in rows for n in range(2)],
    "batch_metadata": None,
}
generator = IntercodeGenerator(f"command:{sys.executable} agent.py", Client(), sandbox=sys.argv[1])
output = asyncio.run(generator.generate(batch))
assert output.keys() == base.GeneratorOutput.__annotations__.keys()
validator["validate_generator_output"](4, output, step_wise=True)
output["trajectory_ids"] = [identity.to_string() for identity in output["trajectory_ids"]]
generator.close()
print(json.dumps(output))
"""
SOLVING = "find tools -type f -name '*.sh' -exec chmod 0755 {} +"


def _reply(request: Request) -> str | Command:
    """Solve one task; at the other, write what the server tokenises again in another way."""
    solves = "tools/" in request.body["messages"][0]["content"]
    return "done" if request.results else Command(SOLVING if solves else "echo HELLO")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_skyrl_takes_our_rows(quick_sandbox: str, tmp_path: Path) -> None:
    python = ROOT / ".venv-skyrl" / "bin" / "python"
    if not list(python.parents[1].glob("lib/python*/site-packages/skyrl")):
        pytest.skip("skyrl is not installed: scripts/test --all does it, for Python 3.11 and up")
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "player.py").write_text(PLAYER)
    with ModelServer(_reply, tokens="vllm") as server:
        done = subprocess.run(
            [str(python), "player.py", quick_sandbox.partition("=")[2], server.url],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{ROOT}/examples"},
            capture_output=True,
            text=True,
            timeout=280,
        )
    assert done.returncode == 0, done.stderr
    _check(json.loads(done.stdout.splitlines()[-1]), server)


def _check(output: dict[str, Any], server: ModelServer) -> None:
    """One row of each episode that is solved, and two of each whose history is another one."""
    solved, failed = "tools-executable", "access-log-server-errors"
    names = [f"{solved}_0", f"{solved}_1", *[f"{failed}_0"] * 2, *[f"{failed}_1"] * 2]
    assert output["trajectory_ids"] == names
    assert output["is_last_step"] == [True, True, False, True, False, True]
    assert output["rewards"] == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert output["stop_reasons"] == ["stop"] * 6
    assert output["rollout_metrics"]["intercode/rows_per_episode"] == 1.5
    prompts = [prompt_of(request.body) for request in server.requests]
    for row, ids in enumerate(output["prompt_token_ids"]):
        assert ids in prompts
        own = [
            value
            for value, mask in zip(
                output["response_ids"][row], output["loss_masks"][row], strict=True
            )
            if mask
        ]
        assert sum(output["rollout_logprobs"][row]) == pytest.approx(-sum(own) / 1e6)
