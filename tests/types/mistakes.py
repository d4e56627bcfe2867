"""What mypy is to refuse."""

from __future__ import annotations

from pytest_intercode import AgentEnvironment, AgentLike, LoopAgent, StepAgent, make


class Number:
    def act(self, observation: str) -> int:
        return 1

    def run(self, task: str, env: AgentEnvironment) -> None: ...


step: StepAgent = Number()  # type: ignore[assignment]
loop: LoopAgent = Number()  # type: ignore[assignment]
none: AgentLike = 3  # type: ignore[assignment]
make("bash", profile="papr")  # type: ignore[arg-type]
