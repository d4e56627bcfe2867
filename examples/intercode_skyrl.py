"""Rollouts for SkyRL (0.3) with any agent that is a program, on tasks of pytest-intercode.

``IntercodeGenerator`` is SkyRL's generator: an experiment returns it from ``get_generator``::

    class IntercodeExp(BasePPOExp):
        def get_generator(self, cfg, tokenizer, inference_engine_client):
            return IntercodeGenerator("command:python my_agent.py", inference_engine_client)

The agent sends OpenAI's chat completions to SkyRL's vLLM through our gateway, which keeps the token
ids and the log-probabilities. Nothing is tokenised again. If an agent rewrites its history, its
episode becomes several rows, so step-wise training has to be on
(``generator.step_wise_trajectories=true``). A row of the dataset names its task in ``task``;
``dataset`` writes such rows.
"""

import os
from collections.abc import Iterable, Sequence
from typing import Any

from skyrl.train.generators.base import (
    GeneratorInput,
    GeneratorInterface,
    GeneratorOutput,
    TrajectoryID,
)

import pytest_intercode
from pytest_intercode import (
    EpisodeRecord,
    SandboxProvider,
    SandboxSettings,
    Task,
    TokenSequence,
    token_sequences,
)

__all__ = ["IntercodeGenerator", "dataset", "generator_output"]

# Replaces an episode without tokens: it is masked, so that nothing is learnt from it.
_EMPTY = TokenSequence((0,), (0,), (0,), (0.0,), ())


def dataset(tasks: Iterable[Task]) -> list[dict[str, Any]]:
    """Return the rows of a dataset for SkyRL, which takes them as JSON or Parquet."""
    return [
        {
            "prompt": [{"role": "user", "content": task.query}],
            "env_class": "intercode",
            "task": task.id,
        }
        for task in tasks
    ]


class IntercodeGenerator(GeneratorInterface):
    """Plays each prompt of a batch as an episode.

    Args:
        agent: as ``--intercode-agent`` names it: ``command:CMDLINE``, ``opencode`` and so on.
        client: SkyRL's client of its inference engines.
        tasks: a bundled suite, a dataset or a path.
        sandbox: ``docker``, ``bubblewrap`` or ``auto``.
        options: further arguments of ``run_rollouts``, such as ``max_turns`` or ``timeout``.
    """

    def __init__(
        self, agent: str, client: Any, tasks: str = "bash", sandbox: str = "auto", **options: Any
    ) -> None:
        self._agent, self._client, self._options = agent, client, options
        self._tasks = {task.id: task for task in pytest_intercode.make(tasks).tasks.tasks}
        self._sandboxes = SandboxProvider(SandboxSettings(sandbox))

    def close(self) -> None:
        """End the sandboxes."""
        self._sandboxes.close()

    async def generate(self, input_batch: GeneratorInput) -> GeneratorOutput:
        """Play an episode for each prompt."""
        os.environ["OPENAI_BASE_URL"] = f"{self._client.get_endpoint_url().rstrip('/')}/v1"
        tasks = [self._tasks[extras["task"]] for extras in input_batch["env_extras"] or ()]
        options = {"concurrency": len(tasks), **self._options}
        async with pytest_intercode.run_rollouts(
            tasks, self._agent, tokens="vllm", ordered=True, provider=self._sandboxes, **options
        ) as stream:
            records = [record async for record in stream]
        trajectory_ids = input_batch["trajectory_ids"]
        if trajectory_ids is None:
            trajectory_ids = [TrajectoryID(str(number), 0) for number in range(len(tasks))]
        return generator_output(records, trajectory_ids)


def generator_output(
    records: Sequence[EpisodeRecord], trajectory_ids: Sequence[TrajectoryID]
) -> GeneratorOutput:
    """Return SkyRL's training data: a row for each sequence of tokens, episode by episode.

    The last row of an episode has its reward, from which the advantage of all its rows comes.

    Args:
        records: the episodes.
        trajectory_ids: SkyRL's ids of the episodes.
    """
    rows: list[tuple[TokenSequence, float, str, TrajectoryID, bool]] = []
    for record, identity in zip(records, trajectory_ids, strict=True):
        # A fault of the task or of the infrastructure says nothing about the model.
        sequences = token_sequences(record.model_calls) if record.graded else []
        sequences = sequences or [_EMPTY]
        for number, sequence in enumerate(sequences, 1):
            is_last = number == len(sequences)
            cut = (
                sequence.calls and record.model_calls[sequence.calls[-1]].finish_reason == "length"
            )
            reward = record.reward if is_last and record.graded else 0.0
            rows.append((sequence, reward, "length" if cut else "stop", identity, is_last))
    sequences = [row[0] for row in rows]
    logprobs = [list(sequence.logprobs) for sequence in sequences if sequence.logprobs is not None]
    return {
        "prompt_token_ids": [list(sequence.prompt_ids) for sequence in sequences],
        "response_ids": [list(sequence.response_ids) for sequence in sequences],
        "rewards": [row[1] for row in rows],
        "loss_masks": [list(sequence.loss_mask) for sequence in sequences],
        "stop_reasons": [row[2] for row in rows],
        "rollout_metrics": {
            "intercode/solved": sum(record.solved for record in records) / len(records),
            "intercode/graded": sum(record.graded for record in records) / len(records),
            "intercode/rows_per_episode": len(rows) / len(records),
        },
        "rollout_logprobs": logprobs if len(logprobs) == len(rows) else None,
        "trajectory_ids": [row[3] for row in rows],
        "trajectory_generation_times": [record.seconds for record in records],
        "rollout_expert_indices": None,
        "is_last_step": [row[4] for row in rows],
        "env_metrics": None,
        "pixel_values": None,
        "image_grid_thw": None,
    }
