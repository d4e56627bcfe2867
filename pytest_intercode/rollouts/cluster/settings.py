"""What all rollouts of a run have in common on every node: plain data, sent once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_intercode.rollouts.cluster.files import Parcel
from pytest_intercode.sandboxes.settings import SandboxSettings

__all__ = ["NodeSettings"]


@dataclass(frozen=True)
class NodeSettings:
    """What a node is told before its first rollout.

    Attributes:
        agent: the agent as ``--intercode-agent`` names it.
        agent_arguments: what it is made with.
        agent_folder: where its relative paths are looked for on the driver.
        agent_file: the file that the agent replays, if it does.
        agent_parcel: the folder that it lives in; None for one that every node has by itself.
        agent_below: where that folder is, below ``agent_folder``.
        sandbox: where sandboxes come from.
        variables: environment variables of the driver that nodes are to have; no text shows them.
        gateway: how programs reach models: the fields of the gateway's settings that are no keys.
        limited: which of the run's turns, tokens and cost are limited; the driver counts them.
        seconds: what is left of the run's time; None for no limit.
        network: sandboxes reach the network.
    """

    agent: str = ""
    agent_arguments: Mapping[str, str] = field(default_factory=dict)
    agent_folder: Path | None = None
    agent_file: tuple[Path, Parcel] | None = None
    agent_parcel: Parcel | None = None
    agent_below: str = ""
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    gateway: Mapping[str, Any] | None = None
    limited: Sequence[str] = ()
    seconds: float | None = None
    network: bool = False

    def to_fields(self) -> dict[str, Any]:
        """Return it as JSON values."""
        fields = {**vars(self), "sandbox": self.sandbox.to_fields()}
        fields["agent_folder"] = _text(self.agent_folder)
        if self.agent_file is not None:
            fields["agent_file"] = [str(self.agent_file[0]), list(self.agent_file[1])]
        return fields

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> NodeSettings:
        """Return what :meth:`to_fields` wrote."""
        file = fields["agent_file"]
        folder, parcel = fields["agent_folder"], fields["agent_parcel"]
        return cls(
            **{
                **fields,
                "agent_folder": None if folder is None else Path(folder),
                "agent_file": None if file is None else (Path(file[0]), Parcel(*file[1])),
                "agent_parcel": None if parcel is None else Parcel(*parcel),
                "sandbox": SandboxSettings.from_fields(fields["sandbox"]),
            }
        )


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
