"""The objects of ATIF (Agent Trajectory Interchange Format) up to 1.7, as its validator takes them.

Written from Harbor's RFC 0001, ``rfcs/0001-trajectory-format.md``. A key that is not named here is
an error at every level; own data goes into ``extra``. What is built from these classes is valid.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

__all__ = [
    "Agent",
    "FinalMetrics",
    "Metrics",
    "Observation",
    "ObservationResult",
    "Step",
    "ToolCall",
    "Trajectory",
    "problems",
]


class _Object(BaseModel):
    # Some names begin with model_, which pydantic keeps for itself unless this says otherwise.
    model_config = ConfigDict(extra="forbid", protected_namespaces=())


def _iso(value: str) -> str:
    datetime.fromisoformat(value.replace("Z", "+00:00"))
    return value


_Timestamp = Annotated[str, AfterValidator(_iso)]
_Extra = dict[str, Any] | None


class ImageSource(_Object):
    """Where an image is."""

    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    path: str


class ContentPart(_Object):
    """A part of a content: a text, or an image."""

    type: Literal["text", "image"]
    text: str | None = None
    source: ImageSource | None = None

    @model_validator(mode="after")
    def _has_what_its_type_says(self) -> ContentPart:
        required, excluded = ("text", "source") if self.type == "text" else ("source", "text")
        if getattr(self, required) is None or getattr(self, excluded) is not None:
            raise ValueError(f"a part of type {self.type} has {required}, and no {excluded}")
        return self


_Content = str | list[ContentPart]


class SubagentReference(_Object):
    """Another trajectory, that of an agent which this one called."""

    trajectory_id: str | None = None
    trajectory_path: str | None = None
    session_id: str | None = None
    extra: _Extra = None

    @model_validator(mode="after")
    def _names_one(self) -> SubagentReference:
        if self.trajectory_id is None and self.trajectory_path is None:
            raise ValueError("trajectory_id or trajectory_path is needed")
        return self


class ToolCall(_Object):
    """A call of a tool."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: _Extra = None


class ObservationResult(_Object):
    """What a call came to, or what the environment said by itself."""

    source_call_id: str | None = None
    content: _Content | None = None
    subagent_trajectory_ref: list[SubagentReference] | None = None
    extra: _Extra = None


class Observation(_Object):
    """What was seen after a step."""

    results: list[ObservationResult]


class Metrics(_Object):
    """What a step used up; cached tokens are a part of those of the prompt."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    extra: _Extra = None


class Step(_Object):
    """A step: a message, and what an agent called, saw and used up with it."""

    step_id: int = Field(ge=1)
    source: Literal["system", "user", "agent"]
    message: _Content
    timestamp: _Timestamp | None = None
    model_name: str | None = None
    reasoning_effort: str | float | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    llm_call_count: int | None = Field(default=None, ge=0)
    is_copied_context: bool | None = None
    extra: _Extra = None

    @model_validator(mode="after")
    def _has_what_its_source_may(self) -> Step:
        if self.source != "agent":
            for name in _OF_AGENTS:
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} is an agent's, and the source is {self.source}")
        elif self.llm_call_count == 0:
            for name in ("metrics", "reasoning_content"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} with no call of a model")
        return self


_OF_AGENTS = ("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics")


class Agent(_Object):
    """The agent."""

    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None
    extra: _Extra = None


class FinalMetrics(_Object):
    """What all steps used up together."""

    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    total_steps: int | None = Field(default=None, ge=0)
    extra: _Extra = None


class Trajectory(_Object):
    """What one agent did, from its task on."""

    schema_version: Literal[
        "ATIF-v1.0",
        "ATIF-v1.1",
        "ATIF-v1.2",
        "ATIF-v1.3",
        "ATIF-v1.4",
        "ATIF-v1.5",
        "ATIF-v1.6",
        "ATIF-v1.7",
    ] = "ATIF-v1.7"
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: Agent
    steps: list[Step] = Field(min_length=1)
    notes: str | None = None
    final_metrics: FinalMetrics | None = None
    continued_trajectory_ref: str | None = None
    subagent_trajectories: list[Trajectory] | None = None
    extra: _Extra = None

    @model_validator(mode="after")
    def _is_in_order(self) -> Trajectory:
        for number, step in enumerate(self.steps, 1):
            if step.step_id != number:
                raise ValueError(f"step_id {step.step_id} instead of {number}")
            calls = {call.tool_call_id for call in step.tool_calls or ()}
            for result in step.observation.results if step.observation else ():
                if result.source_call_id is not None and result.source_call_id not in calls:
                    raise ValueError(f"step {number} calls no {result.source_call_id!r}")
        names = [trajectory.trajectory_id for trajectory in self.subagent_trajectories or ()]
        if None in names or len(names) != len(set(names)):
            raise ValueError("each of subagent_trajectories needs a trajectory_id of its own")
        return self


def problems(document: object) -> list[str]:
    """Return what keeps a document from being a trajectory, a line each; nothing if it is one."""
    try:
        Trajectory.model_validate(document)
    except ValidationError as error:
        return [
            f"{'.'.join(map(str, problem['loc'])) or 'trajectory'}: {problem['msg']}"
            for problem in error.errors(include_url=False, include_input=False)
        ]
    return []
