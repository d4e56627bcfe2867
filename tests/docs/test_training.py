"""What docs/training.md shows runs as it is shown, and the example that it names learns."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_intercode import SandboxProvider, SandboxSettings
from pytest_intercode.rollouts import stream
from tests.support.model_server import ModelServer, Request, Spent, Step
from tests.support.ray_cluster import PYTHON as RAY_PYTHON
from tests.support.ray_cluster import needs_ray

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def sandboxes(quick_sandbox: str) -> Iterator[SandboxProvider]:
    provider = SandboxProvider(SandboxSettings(quick_sandbox.partition("=")[2]))
    yield provider
    provider.close()


def run(block: str, sandboxes: SandboxProvider, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run a block of the page with sandboxes of the tests; return the lines that it prints."""
    monkeypatch.setattr(stream, "shared_provider", lambda: sandboxes)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(block, "training.md", "exec"), {})
    return printed.getvalue().splitlines()


def test_batches_of_an_endless_list(
    sandboxes: SandboxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [line.split() for line in run(PYTHON[0], sandboxes, monkeypatch)]
    assert [line[0] for line in lines] == ["0"] * 8 + ["1"] * 8
    assert {line[2] for line in lines} == {"1", "2", "3", "4"}
    assert {line[4] for line in lines} == {"94"}
    assert len({line[1] for line in lines}) >= 16 // 4


def test_what_travels_with_a_turn(
    sandboxes: SandboxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(PYTHON[1], sandboxes, monkeypatch) == ["[5, 7]"]


def test_async_for(sandboxes: SandboxProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = run(PYTHON[2], sandboxes, monkeypatch)
    assert lines
    assert {line.split()[1] for line in lines} == {"1.0"}
    assert len(PYTHON) == 5


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_on_a_cluster(tmp_path: Path) -> None:
    """On a real Ray cluster of two nodes, which is started and ended by the block itself."""
    needs_ray()
    (tmp_path / "policy.py").write_text(PYTHON[3])
    (tmp_path / "train.py").write_text(PYTHON[4])
    done = subprocess.run(
        [str(RAY_PYTHON), "train.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == ["1"] * 8 + ["2"] * 8
    assert len({line[1] for line in lines}) == 2, "both nodes played"
    assert "1.0" in {line[2] for line in lines}


@pytest.mark.slow
def test_the_example_learns(quick_sandbox: str, tmp_path: Path) -> None:
    """From what the tasks alone reward; as the page says, and the same with the same seed."""
    [command] = COMMANDS
    backend = quick_sandbox.partition("=")[2]
    command = command.replace("examples/", f"{ROOT}/examples/").replace("bubblewrap", backend)
    path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-ec", command],
        cwd=tmp_path,
        env={**os.environ, **path, "PYTHONWARNINGS": "error", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert (done.returncode, done.stderr) == (0, "")
    *steps, trained = done.stdout.splitlines()
    rewards = [float(line.rpartition(" ")[2]) for line in steps]
    assert len(rewards) == 12
    assert rewards[0] == 0.062
    assert sum(rewards[-3:]) / 3 >= 0.9
    assert trained == "trained: mean reward 1.000, 8 of 8 solved"


# -- verifiers

# What a harness is there: it asks the model once for each turn, in its own process.
HARNESS = """
import httpx
import verifiers.v1 as vf

__all__ = ["AskingHarness"]


class AskingHarness(vf.Harness[vf.HarnessConfig]):
    SUPPORTS_RESUME = APPENDS_SYSTEM_PROMPT = True
    NEEDS_CONTAINER = EXECUTES_CODE = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        said = [{"role": each.role, "content": each.content} for each in data.prompt]
        async with httpx.AsyncClient(timeout=60) as client:
            answer = await client.post(
                f"{endpoint}/chat/completions",
                headers={"Authorization": f"Bearer {secret}"},
                json={"model": ctx.model, "messages": said},
            )
        return vf.ProgramResult(0 if answer.is_success else 1, "", answer.text)
"""
PLAYER = """
import asyncio, json, sys
import verifiers.v1 as vf

async def main(url, sandbox, *ids):
    config = vf.resolve_env_config({
        "taskset": {"id": "intercode-verifiers", "sandbox": sandbox, "max_turns": 3},
        "player": {"harness": {"id": "asking-harness"}},
    })
    env = vf.load_environment(config)
    ctx = vf.ModelContext("scripted", vf.EvalClientConfig(base_url=url, api_key_var="KEY"))
    async with env.serving():
        tasks = list(env.taskset.include(ids=list(ids)))
        slots = [slot for task in tasks for slot in env.slots(task, 2)]
        episodes = await asyncio.gather(*(env.run_slot(slot, ctx) for slot in slots))
    for episode in episodes:
        [trace] = episode.traces
        told = {"task": episode.task.data.id, "ok": episode.ok, "reward": trace.reward}
        told |= {"errors": [each.message for each in episode.errors]}
        told |= {"turns": trace.num_turns, "tokens": trace.usage and trace.usage.total_tokens}
        print(json.dumps({**told, **trace.info.get("intercode", {})}))

asyncio.run(main(*sys.argv[1:]))
"""
# The smallest model that can learn: its words are four commands, and its weights are random.
TRL = """
import json, sys
import torch
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer
import pytest_intercode
from intercode_trl import IntercodeRollouts, intercode_reward

SOLVING = "find tools -type f -name '*.sh' -exec chmod 0755 {} +"
WORDS = ["<pad>", "<end>", "<other>", "<user>", "<model>", SOLVING, "ls", "pwd", "submit"]
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(models.WordLevel({w: n for n, w in enumerate(WORDS)}, "<other>")),
    pad_token="<pad>",
    eos_token="<end>",
    unk_token="<other>",
    padding_side="left",
    additional_special_tokens=["<user>", "<model>"],
)
tokenizer.chat_template = (
    "{% for m in messages %}{{ '<user>' if m['role'] == 'user' else '<model>' }}{{ m['content'] }}"
    "<end>{% endfor %}{% if add_generation_prompt %}<model>{% endif %}"
)
torch.manual_seed(1)
config = LlamaConfig(
    vocab_size=len(WORDS),
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=2,
    max_position_embeddings=64,
    pad_token_id=0,
    eos_token_id=1,
)
task = pytest_intercode.make("bash").tasks.find("tools-executable")
rollouts = IntercodeRollouts([task], sandbox=sys.argv[1], max_turns=2)
played = []


def noted(prompts, trainer):
    played.append(rollouts(prompts, trainer))
    return played[-1]


trainer = GRPOTrainer(
    model=LlamaForCausalLM(config),
    reward_funcs=intercode_reward,
    args=GRPOConfig(
        output_dir="trained",
        max_steps=12,
        per_device_train_batch_size=8,
        num_generations=8,
        max_completion_length=12,
        generation_kwargs={"max_new_tokens": 1},
        learning_rate=0.05,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        seed=1,
        disable_tqdm=True,
    ),
    train_dataset=rollouts.dataset(),
    rollout_func=noted,
    processing_class=tokenizer,
)
trainer.train()
rollouts.close()
logged = [each["reward"] for each in trainer.state.log_history if "reward" in each]
for step, reward in zip(played, logged, strict=True):
    names = ("prompt_ids", "completion_ids")
    prompts, completions = ([[WORDS[t] for t in ids] for ids in step[name]] for name in names)
    more = {"masks": step["env_mask"], "rewards": step["intercode"], "logged": reward}
    print("step:", json.dumps({"prompts": prompts, "completions": completions, **more}))
"""
SOLVES = "find tools -type f -name '*.sh' -exec chmod 0755 {} +"
REPLIES = {
    "tools/": ["```bash\nfind tools -type f -name '*.sh' -exec chmod 0755 {} +\n```", "submit"],
    "access.log": ["ls", "Let me see.\n```\ncat access.log\n```", "echo 0", "never asked for"],
}


def _reply(request: Request) -> Step:
    messages = request.body["messages"]
    [said] = [replies for word, replies in REPLIES.items() if word in messages[0]["content"]]
    done = sum(each["role"] == "assistant" for each in messages)
    return Step(said[done], spent=Spent(100, 10, 0))


@pytest.mark.slow
def test_verifiers_plays_our_tasks(quick_sandbox: str, tmp_path: Path) -> None:
    """The package itself, with a model on loopback: a task that is solved, and one that is not."""
    python = ROOT / ".venv-verifiers" / "bin" / "python"
    if not list(python.parents[1].glob("lib/python*/site-packages/verifiers")):
        pytest.skip(
            "verifiers is not installed: scripts/test --all does it, for Python 3.11 and up"
        )
    (tmp_path / "asking_harness.py").write_text(HARNESS)
    (tmp_path / "player.py").write_text(PLAYER)
    with ModelServer(_reply) as model:
        done = subprocess.run(
            [
                *(str(python), "player.py", f"{model.url}/v1", quick_sandbox.partition("=")[2]),
                *("access-log-server-errors", "tools-executable"),
            ],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{ROOT}/examples:{tmp_path}", "KEY": "none"},
            capture_output=True,
            text=True,
            timeout=280,
        )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    failed = {"task": "access-log-server-errors", "reward": 0.0, "outcome": "out-of-budget"}
    solved = {"task": "tools-executable", "reward": 1.0, "outcome": "solved"}
    for row, wanted in zip(found, (failed, failed, solved, solved), strict=True):
        turns = 3 if wanted is failed else 2
        wanted = {**wanted, "ok": True, "errors": [], "turns": turns, "tokens": 110 * turns}
        assert wanted.items() <= row.items(), row
    assert "never asked for" not in done.stdout + done.stderr


@pytest.mark.slow
def test_trl_trains_on_our_tasks(quick_sandbox: str, tmp_path: Path) -> None:
    """The package itself, on a processor: twelve steps of eight episodes of two turns."""
    python = ROOT / ".venv-trl" / "bin" / "python"
    if not list(python.parents[1].glob("lib/python*/site-packages/torch/version.py")):
        pytest.skip("trl is not installed: scripts/test --all tries, for Python 3.11 and up")
    (tmp_path / "train.py").write_text(TRL)
    offline = {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
    done = subprocess.run(
        [str(python), "train.py", quick_sandbox.partition("=")[2]],
        cwd=tmp_path,
        env={**os.environ, **offline, "PYTHONPATH": f"{ROOT}/examples"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    steps = [
        json.loads(line.removeprefix("step: "))
        for line in done.stdout.splitlines()
        if line.startswith("step: ")
    ]
    assert len(steps) == 12
    shown = ["<user>", "<other>", "<end>", "<model>"]
    several = 0
    for step in steps:
        assert step["logged"] == pytest.approx(sum(step["rewards"]) / 8)
        for prompt, tokens, mask, reward in zip(
            step["prompts"], step["completions"], step["masks"], step["rewards"], strict=True
        ):
            assert prompt == shown
            others = [token for token, own in zip(tokens, mask, strict=True) if not own]
            assert others in ([], shown, ["<end>", *shown]), "one message to the model at most"
            several += bool(others)
            acted = [token for token, own in zip(tokens, mask, strict=True) if own]
            assert (reward == 1.0) == (SOLVES in acted), acted
    assert several, "episodes of two turns"
    rewards = [step["logged"] for step in steps]
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.3, rewards
