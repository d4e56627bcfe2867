"""What the user asked for: the values of all options, typed and checked once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.core.record import ShardRecord
from pytest_intercode.core.task import Task
from pytest_intercode.core.usage import Budget, RunLimits
from pytest_intercode.environments.registry import environments_with
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.plugin.options import FailUnder, folder_of, read_options
from pytest_intercode.rollouts.spec import DEFAULT_TIMEOUT
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.suites.catalogue import data_folder
from pytest_intercode.suites.selection import SelectionSettings

if TYPE_CHECKING:
    import pytest

    from pytest_intercode.core.turn import Feedback, Profile
    from pytest_intercode.results.durations import Durations

__all__ = ["Settings"]


@dataclass(frozen=True, kw_only=True)
class Settings(SelectionSettings):
    """The options of a run; :class:`SelectionSettings` has those that select its tasks.

    Where no comment says otherwise, a field is the value of the option with its name, and None
    means that it is not given.
    """

    agent: str | None
    agent_arguments: Mapping[str, str]
    agent_folder: Path  # where relative paths and modules of the agent are looked for
    profile: Profile
    feedback: Feedback | None  # None for the one that the agent is made for
    max_turns: int | None
    timeout: float | None  # of an episode; see episode_timeout
    action_timeout: float | None
    budget: Budget  # of an episode
    run_limits: RunLimits  # of the whole run
    concurrency: int  # in this process, or in those of xdist
    cluster: str | None
    cluster_concurrency: int | None  # on all nodes; None for as many as there is room for
    cluster_env: tuple[str, ...]
    cluster_wait: float
    cluster_insecure: bool
    results: Path | None
    predictions: Path | None
    resume: bool
    baseline: Path | None
    gate: str
    fail_under: FailUnder | None
    html: Path | None
    run_name: str | None
    audit: bool
    sandbox: SandboxSettings
    durations_digest: str  # of the file that durations come from; empty for none
    gateway: GatewaySettings

    @classmethod
    def of(cls, config: pytest.Config) -> Settings:
        """Read and check the options.

        Raises:
            ConfigurationError: a value is wrong, or two options do not go together.
        """
        values = read_options(config)
        take = values.pop
        every = environments_with(values["profile"])
        environments = [
            name for value in take("env") for name in (every if value == "all" else (value,))
        ]
        record, replay = take("gateway_record"), take("gateway_replay")
        gateway = GatewaySettings.of_environment(
            models=take("gateway_model"),
            prices=take("gateway_price"),
            hosted_tools=take("gateway_hosted_tools"),
            allowed=take("gateway_allow"),
            record=record,
            replay=replay,
            programs=bool(take("gateway") or record or replay),
        )
        concurrency, cluster = take("concurrency"), values["cluster"]
        durations = _durations(take("durations"))
        repeat = take("repeat")
        repeat = 1 if values["audit"] else repeat
        return cls(
            agent_arguments=take("agent_arg"),
            agent_folder=folder_of(config, "agent"),
            environments=tuple(dict.fromkeys(environments)),
            datasets=take("dataset"),
            dataset_folder=folder_of(config, "dataset"),
            data=data_folder(take("data"), "--intercode-data"),
            budget=Budget(tokens=take("max_tokens"), cost=take("max_cost")),
            run_limits=RunLimits(
                turns=take("run_max_turns"),
                tokens=take("run_max_tokens"),
                cost=take("run_max_cost"),
                seconds=take("run_timeout"),
            ),
            concurrency=1 if cluster else concurrency or 1,
            cluster_concurrency=concurrency,
            repeat=repeat,
            gate=take("gate") or ("verdict" if repeat > 1 else "tasks"),
            sandbox=SandboxSettings(
                backend=take("sandbox"),
                rootfs=take("rootfs"),
                runtime=take("runtime"),
                docker_hosts=take("docker_host"),
                registry=take("registry"),
                base_images=take("base_image"),
                verbosity=config.get_verbosity(),
            ),
            durations=None if durations is None else durations.seconds,
            durations_digest="" if durations is None else durations.digest,
            gateway=gateway,
            **values,
        )

    def shard_record(self, items: int | None) -> ShardRecord | None:
        """Return what records say of the part of the run that is run here; None for no parts.

        Args:
            items: how many items the part has, if that is known.
        """
        if self.shard is None:
            return None
        common: dict[str, object] = {
            "env": ",".join(self.environments),
            "dataset": ",".join(Path(name).name for name in self.datasets),
            "feedback": self.feedback,
            "max-turns": self.max_turns,
            "max-tokens": self.budget.tokens,
            "max-cost": self.budget.cost,
            "timeout": self.timeout,
            "action-timeout": self.action_timeout,
            "limit": self.limit,
            "repeat": self.repeat if self.repeat > 1 else None,
            "network": self.network or None,
            "override-network": self.override_network or None,
            "allow-host": ",".join(self.allow_host),
            "verifier": self.verifier if self.verifier != "fresh" else None,
            "kit": self.kit if self.kit != "auto" else None,
        }
        options = {name: str(value) for name, value in common.items() if value}
        return ShardRecord(*self.shard, items, self.durations_digest, options)

    def episode_timeout(self, task: Task, *, at_terminal: bool = False) -> float | None:
        """Return the seconds that an episode has, or None for no limit.

        The option or its ini value comes first, then the task's own number, then 600 seconds.

        Args:
            task: the task of the episode.
            at_terminal: the agent is a person, who has no limit unless one is given.
        """
        return self.timeout or task.timeout or (None if at_terminal else DEFAULT_TIMEOUT)


def _durations(path: Path | None) -> Durations | None:
    if path is None:
        return None
    from pytest_intercode.results.durations import read_durations

    try:
        state = path.stat()
        return _read_once(read_durations, path, state.st_mtime_ns, state.st_size)
    except OSError as error:
        raise ConfigurationError(f"--intercode-durations={path}: {error.strerror}") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"--intercode-durations={error}") from None


@lru_cache(maxsize=1)
def _read_once(
    read: Callable[[Path], Durations], path: Path, modified: int, size: int
) -> Durations:
    """Read a file that may be long once, though settings are asked for several times."""
    return read(path)
