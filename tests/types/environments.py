"""An environment of a user."""

from __future__ import annotations

from pytest_intercode import (
    Environment,
    Observation,
    Reward,
    SandboxProvider,
    SandboxSpec,
    Task,
    register_environment,
)


@register_environment
class Echo(Environment):
    name = "echo"

    @classmethod
    def sandboxes(cls, task: Task, provider: SandboxProvider) -> list[SandboxSpec]:
        return []

    def start(self, task: Task) -> None:
        self.actions: list[str] = []

    def execute(self, action: str) -> Observation:
        self.actions.append(action)
        return Observation(action, status=0)

    def grade(self, answer: str | None) -> Reward:
        return Reward(float(bool(self.actions)), {"acted": 1.0})

    def stop(self) -> None:
        self.actions.clear()

    def interrupt(self) -> None:
        pass
