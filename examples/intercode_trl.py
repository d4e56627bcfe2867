"""Trains a model with TRL's GRPO (1.16) on tasks of pytest-intercode.

    pip install pytest-intercode trl
    python examples/intercode_trl.py MODEL --env bash

``IntercodeRollouts`` is the ``rollout_func`` of a ``GRPOTrainer``. The model, its sampling and its
loss are TRL's; the episodes, with their sandboxes, budgets and grading, are ours. All episodes of a
generation step run at the same time, and the replies that they wait for are generated in batches.
Each reply of the model is one action, and what its execution printed is the next message to it.
Tokens that the model did not write are masked (``env_mask``), so that it is not trained on them.
"""

import argparse
import queue
import re
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

import pytest_intercode
from pytest_intercode import (
    AgentEnvironment,
    EpisodeRecord,
    SandboxProvider,
    SandboxSettings,
    Task,
    TaskView,
)

__all__ = ["IntercodeRollouts", "intercode_reward"]

_BLOCK = re.compile(r"```\w*\n(.*?)```", re.DOTALL)
_GATHER = 0.01  # seconds to wait for more requests, which are then answered together
_FIRST = """{query}

You act in a sandbox, in at most {turns} turns. Each of your replies is one {language} action, in a
block of code between lines of ```; you are then shown what it printed. When you are done, reply
with the word submit in such a block."""


def intercode_reward(intercode: list[float | None], **_: object) -> list[float | None]:
    """Return the rewards of the episodes; None for one that says nothing about the model."""
    return intercode


class IntercodeRollouts:
    """Plays the prompts of a generation step as episodes.

    Args:
        tasks: the tasks to play; their queries have to differ.
        sandbox: ``docker``, ``bubblewrap`` or ``auto``.
        max_turns: actions in an episode; None for each task's own number.
    """

    def __init__(
        self, tasks: Sequence[Task], *, sandbox: str = "auto", max_turns: int | None = None
    ) -> None:
        self._max_turns = max_turns
        self._sandboxes = SandboxProvider(SandboxSettings(sandbox))
        self._tasks = {self._first(task.view()): task for task in tasks}
        if len(self._tasks) < len(tasks):
            raise ValueError("two tasks have the same query, and TRL hands on nothing but that")

    def dataset(self) -> Dataset:
        """Return the prompts for a trainer."""
        return Dataset.from_dict(
            {"prompt": [[{"role": "user", "content": text}] for text in self._tasks]}
        )

    def close(self) -> None:
        """End the sandboxes."""
        self._sandboxes.close()

    def __call__(self, prompts: list[Any], trainer: GRPOTrainer) -> dict[str, Any]:
        """Play an episode for each prompt, in their order.

        Raises:
            EngineUnavailable: there is no engine for sandboxes.
            RuntimeError: an episode failed in this code, and not through the model's replies.
        """
        texts = [prompt[-1]["content"] for prompt in prompts]
        model = _Model(trainer)
        played = [_Trajectory(model.prompt(text)) for text in texts]

        def play(view: TaskView, env: AgentEnvironment) -> None:
            trajectory = played[int(view.id)]
            trajectory.begin()
            while not env.over:
                reply = model.reply(trajectory)
                if reply is None:  # no room for another one: grade what was done so far
                    return
                seen = env.step(_action(reply))[0]
                if not env.over:
                    model.show(trajectory, str(seen) or "(no output)")

        with (
            ThreadPoolExecutor(1) as threads,
            pytest_intercode.run_rollouts(
                [replace(self._tasks[text], id=str(place)) for place, text in enumerate(texts)],
                play,
                concurrency=len(texts),
                max_turns=self._max_turns,
                provider=self._sandboxes,
                ordered=True,
            ) as stream,
        ):
            records = threads.submit(list, stream)
            model.serve(records)
            return _fields(played, records.result())

    def _first(self, view: TaskView) -> str:
        turns = self._max_turns or view.max_turns
        return _FIRST.format(query=view.query, turns=turns, language=view.env)


@dataclass
class _Trajectory:
    """The tokens of an episode: the prompt, and the rest with a mask, 1 for the model's own."""

    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] | None = field(default_factory=list)

    def begin(self) -> None:
        """Begin, or begin again after a broken sandbox has ended the episode."""
        self.tokens, self.mask, self.logprobs = [], [], []

    def add(self, tokens: list[int], *, own: bool, logprobs: list[float] | None = None) -> None:
        """Add tokens; if those of the model have no log-probabilities, keep none at all."""
        self.tokens += tokens
        self.mask += [int(own)] * len(tokens)
        if own and logprobs is None:
            self.logprobs = None
        elif self.logprobs is not None:
            self.logprobs += logprobs if own and logprobs is not None else [0.0] * len(tokens)


class _Model:
    """The trainer's model: episodes ask it on their threads, and it replies on TRL's thread."""

    def __init__(self, trainer: GRPOTrainer) -> None:
        self._trainer = trainer
        self._tokenizer = trainer.processing_class
        limit = getattr(trainer.model.config, "max_position_embeddings", None)
        self._context = limit or 2**31
        self._asked: queue.Queue[tuple[_Trajectory, Future[str]]] = queue.Queue()
        self._broken: BaseException | None = None

    # -- on the episodes' threads

    def reply(self, trajectory: _Trajectory) -> str | None:
        """Wait for the model's reply; None if the completion has no room for one."""
        if self._room(trajectory) <= 0:
            return None
        future: Future[str] = Future()
        self._asked.put((trajectory, future))
        if self._broken is not None:
            self._refuse(self._broken)
        return future.result()

    def show(self, trajectory: _Trajectory, seen: str) -> None:
        """Add a message to the model, with the tokens that its template puts around it."""
        said = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "?"}]
        before = self._template(said, add_generation_prompt=False)
        after = self._template([*said, {"role": "user", "content": seen}])
        end = self._tokenizer.eos_token_id
        last = max((at for at, token in enumerate(before) if token == end), default=len(before) - 1)
        if trajectory.tokens[-1] != end:  # the reply was cut off
            last -= end in before
        trajectory.add(after[last + 1 :], own=False)

    def prompt(self, text: str) -> list[int]:
        """Return the tokens of a first message."""
        return self._template([{"role": "user", "content": text}])

    def _template(self, messages: list[dict[str, str]], **more: Any) -> list[int]:
        asked = {"add_generation_prompt": True, "tokenize": True, "return_dict": False, **more}
        return list(self._tokenizer.apply_chat_template(messages, **asked))

    def _room(self, trajectory: _Trajectory) -> int:
        used = len(trajectory.tokens)
        in_context = self._context - len(trajectory.prompt) - used
        return min(self._trainer.args.max_completion_length - used, in_context)

    # -- on TRL's thread

    def serve(self, episodes: Future[list[EpisodeRecord]]) -> None:
        """Generate replies to episodes until all of them have ended."""
        while not episodes.done():
            batch: list[tuple[_Trajectory, Future[str]]] = []
            try:
                while True:
                    batch.append(self._asked.get(timeout=_GATHER))
            except queue.Empty:
                pass
            if batch:
                self._generate(batch)

    def _generate(self, batch: list[tuple[_Trajectory, Future[str]]]) -> None:
        try:
            texts = [trajectory.prompt + trajectory.tokens for trajectory, _ in batch]
            made, logprobs = self._trainer._generate_single_turn(texts, None, {}, 1)
        except BaseException as error:  # episodes that wait would not end otherwise
            self._broken = error
            for _, future in batch:
                future.set_exception(error)
            self._refuse(error)
            raise
        for place, (trajectory, future) in enumerate(batch):
            room = self._room(trajectory)
            tokens = list(made[place])[:room]
            own = None if logprobs is None else list(logprobs[place])[:room]
            trajectory.add(tokens, own=True, logprobs=own)
            future.set_result(self._tokenizer.decode(tokens, skip_special_tokens=True))

    def _refuse(self, error: BaseException) -> None:
        """Raise an error in all episodes that wait."""
        while True:
            try:
                self._asked.get_nowait()[1].set_exception(error)
            except queue.Empty:
                return


def _fields(played: list[_Trajectory], records: list[EpisodeRecord]) -> dict[str, Any]:
    """Return the data of the episodes that TRL requires."""
    for record in records:
        if record.outcome == "agent-error":  # not the model's fault
            raise RuntimeError(f"{record.reason}\n{record.detail}")
    for each in played:
        if not each.tokens:  # the sandbox did not start, and TRL requires a token
            each.add(each.prompt[-1:], own=False)
    known = all(each.logprobs is not None for each in played)
    return {
        "prompt_ids": [each.prompt for each in played],
        "completion_ids": [each.tokens for each in played],
        "logprobs": [each.logprobs for each in played] if known else None,
        "env_mask": [each.mask for each in played],
        "intercode": [record.reward if record.graded else None for record in records],
    }


def _action(reply: str) -> str:
    """Return the last block of code in a reply, or the whole reply if there is none."""
    blocks = _BLOCK.findall(reply)
    return (blocks[-1] if blocks else reply).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a model with GRPO on tasks.")
    parser.add_argument("model", help="a model of Hugging Face's hub, or its folder")
    parser.add_argument("--env", default="bash")
    parser.add_argument("--dataset", help="a dataset or a suite in place of the bundled one")
    parser.add_argument("--sandbox", default="auto", help="docker, bubblewrap or auto")
    parser.add_argument("--max-turns", type=int)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--output", default="trained")
    options = parser.parse_args()
    tasks = pytest_intercode.make(options.env, dataset=options.dataset).tasks.tasks
    rollouts = IntercodeRollouts(tasks, sandbox=options.sandbox, max_turns=options.max_turns)
    trainer = GRPOTrainer(
        model=options.model,
        reward_funcs=intercode_reward,
        args=GRPOConfig(
            output_dir=options.output,
            max_steps=options.steps,
            logging_steps=1,
            use_cpu=not torch.accelerator.is_available(),
        ),
        train_dataset=rollouts.dataset(),
        rollout_func=rollouts,
    )
    try:
        trainer.train()
        trainer.save_model()
    finally:
        rollouts.close()


if __name__ == "__main__":
    main()
