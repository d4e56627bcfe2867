"""What the user asked for: the values of all options, and what follows from them."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_intercode.agents.choice import AgentChoice, choose_agents
from pytest_intercode.core.permissions import Permissions
from pytest_intercode.core.rates import check_repetition
from pytest_intercode.core.record import ShardRecord
from pytest_intercode.core.secrets import MIN_SECRET
from pytest_intercode.core.task import Task
from pytest_intercode.core.usage import Budget, RunLimits
from pytest_intercode.environments.registry import environments_with
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.gateway.prices import with_shipped_prices
from pytest_intercode.gateway.settings import GatewaySettings, is_secret
from pytest_intercode.options.table import OPTIONS, Options
from pytest_intercode.plugin.options import folder_of, on_command_line, read_options
from pytest_intercode.results.format import shown_arguments
from pytest_intercode.rollouts.spec import DEFAULT_TIMEOUT
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.suites.catalogue import DataFolder, data_folder
from pytest_intercode.system.files import statistics_path

if TYPE_CHECKING:
    from pytest_intercode.options.option import Option
    from pytest_intercode.results.durations import Durations

__all__ = ["Settings"]

_SETTINGS = pytest.StashKey["Settings"]()


class Settings(Options):
    """The options of a run, and what follows from them.

    Attributes:
        agent_folder: where relative paths and modules of the agent are looked for.
        dataset_folder: where relative paths of datasets start.
        repeat_forced: whether the number of tries is given on the command line.
        pass_rate_forced: whether the pass rate is given there.
    """

    agent_folder: Path
    dataset_folder: Path
    repeat_forced: bool
    pass_rate_forced: bool

    @classmethod
    def of(cls, config: pytest.Config) -> Settings:
        """Return the options, read and checked the first time.

        Raises:
            ConfigurationError: a value is wrong, or two options do not go together.
        """
        if _SETTINGS in config.stash:
            return config.stash[_SETTINGS]
        folders = {f"{name}_folder": folder_of(config, name) for name in ("agent", "dataset")}
        forced = {
            f"{name}_forced": on_command_line(config, name) for name in ("repeat", "pass_rate")
        }
        settings = cls(read_options(config) | folders | forced)
        # Computed now, so that mistakes are reported early.
        _ = settings.agents, settings.gateway, settings.durations, settings.data
        config.stash[_SETTINGS] = settings
        return settings

    @cached_property
    def agents(self) -> tuple[AgentChoice, ...]:
        """The agents of the run, each with its arguments; none where no agent is named."""
        return choose_agents(self.requested_agents, self.agent_arguments)

    @cached_property
    def environments(self) -> tuple[str, ...]:
        """The environments of ``--intercode-env``, with the names that ``all`` means."""
        bundled = environments_with(self.profile)
        names = [
            name
            for value in self.requested_environments
            for name in (bundled if value == "all" else (value,))
        ]
        return tuple(dict.fromkeys(names))

    @cached_property
    def data(self) -> DataFolder | None:
        """The folder of InterCode's data, or None."""
        return data_folder(self.data_path, "--intercode-data")

    @cached_property
    def durations(self) -> Durations | None:
        """How long tasks took in an earlier run, or None."""
        path = self.durations_path
        if path is None:
            return None
        from pytest_intercode.results.durations import read_durations

        try:
            return read_durations(path)
        except OSError as error:
            raise ConfigurationError(f"--intercode-durations={path}: {error.strerror}") from None
        except ConfigurationError as error:
            raise ConfigurationError(f"--intercode-durations={error}") from None

    @cached_property
    def gateway(self) -> GatewaySettings:
        """How programs reach models."""
        try:
            prices = with_shipped_prices(self.gateway_prices)
        except ValueError as error:
            raise ConfigurationError(f"--intercode-gateway-price: {error}") from None
        return GatewaySettings.of_environment(
            models=self.gateway_models,
            prices=prices,
            hosted_tools=self.gateway_hosted_tools,
            allowed=self.gateway_allowed,
            logins=self.gateway_logins,
            record=self.gateway_record,
            replay=self.gateway_replay,
            offline=self.record == "none",
            hidden=tuple(self._given_keys()),
            programs=bool(
                self.gateway_programs or self.gateway_record or self.gateway_replay or self.tokens
            ),
            tokens=self.tokens,
        )

    def _given_keys(self) -> Iterator[str]:
        """Yield keys that agents and tasks are given, which are kept out of what a run writes."""
        for name in self.pass_env:
            value = os.environ.get(name, "")
            if len(value) >= MIN_SECRET and not value.startswith(("/", ".")):
                yield value
        for agent in self.agents:
            shown_values = shown_arguments(agent.arguments)
            for name, value in agent.arguments.items():
                if shown_values[name] != value and is_secret(value):
                    yield value

    @property
    def secrets(self) -> tuple[str, ...]:
        """The keys that this run knows, which are kept out of all that it writes."""
        return (*self.gateway.secrets, *self.gateway.hidden)

    @property
    def sandbox(self) -> SandboxSettings:
        """Where sandboxes come from."""
        return SandboxSettings(
            backend=self.backend,
            rootfs=self.rootfs,
            base_images=self.base_images,
            runtime=self.runtime,
            registry=self.registry,
            platform=self.platform,
            docker_hosts=self.docker_hosts,
            kube_context=self.kube_context,
            kube_namespace=self.kube_namespace,
            kube_pull_secrets=self.kube_pull_secrets,
            kube_nodes=self.kube_nodes,
        )

    @property
    def checked_sandbox_options(self) -> dict[str, str]:
        """The options for those fields of ``sandbox`` that are checked before a run, by field."""
        options: list[Option[Any]] = [
            *(Options.runtime, Options.rootfs, Options.docker_hosts, Options.platform),
            *(Options.kube_context, Options.kube_namespace, Options.kube_pull_secrets),
            Options.kube_nodes,
        ]
        if not self.cluster:  # otherwise its nodes use the registry
            options.append(Options.registry)
        return {option.attribute: f"--intercode-{option.name}" for option in options}

    @property
    def outputs(self) -> tuple[Path, ...]:
        """The files that the run writes, which are hidden from the agents of project tests."""
        outputs = (self.results, self.predictions, self.html, self.gateway_record, self.otel)
        paths = [path for path in outputs if isinstance(path, Path)]
        if self.results is not None:
            paths.append(statistics_path(self.results))
        for path in tuple(paths):  # earlier files are kept under such names
            paths += path.parent.glob(f"{glob.escape(path.name)}.*")
        return tuple(paths)

    @property
    def repeat(self) -> int:
        """How many tries each task gets; an audit needs one."""
        return 1 if self.audit else self.requested_repeat

    def tries_at(self, own: int | None) -> int:
        """Return how many tries a task gets.

        The command line comes first, then its mark or its suite, then the ini value.

        Args:
            own: the number from its mark or its suite; None for none.
        """
        return self.repeat if self.audit or self.repeat_forced or own is None else own

    def pass_rate_of(self, own: float | None) -> float | None:
        """Return the share of a task's tries that must be solved; None where each counts alone.

        Args:
            own: the share from its mark or its suite; None for none.
        """
        if self.audit:
            return None
        return self.requested_pass_rate if self.pass_rate_forced or own is None else own

    def repetition(
        self,
        mark: str,
        arguments: Mapping[str, Any],
        *,
        own_tries: int | None = None,
        own_rate: float | None = None,
    ) -> tuple[int, float | None]:
        """Return how many tries a test with a mark gets, and the share that must pass, if any.

        Args:
            mark: the mark, for messages.
            arguments: the mark's arguments; ``repeat`` and ``pass_rate`` count.
            own_tries: the number of tries from its suite, if the mark gives none.
            own_rate: the share from its suite, likewise.

        Raises:
            ConfigurationError: an argument is not a valid number.
        """
        check_repetition(mark, arguments.get("repeat"), arguments.get("pass_rate"))
        tries = self.tries_at(arguments.get("repeat", own_tries))
        if "pass_rate" in arguments and tries == 1 and not (self.repeat_forced or self.audit):
            raise ConfigurationError(
                f"{mark}(pass_rate={arguments['pass_rate']}): a pass rate needs several tries; "
                "give their number, too, such as repeat=5"
            )
        return tries, self.pass_rate_of(arguments.get("pass_rate", own_rate))

    @property
    def concurrency(self) -> int:
        """How many episodes run at a time in this process, or in those of xdist."""
        return 1 if self.cluster else self.requested_concurrency or 1

    @property
    def budget(self) -> Budget:
        """What an episode may use up."""
        return Budget(tokens=self.max_tokens, cost=self.max_cost)

    @property
    def run_limits(self) -> RunLimits:
        """What all episodes together may use up."""
        return RunLimits(
            turns=self.run_max_turns,
            tokens=self.run_max_tokens,
            cost=self.run_max_cost,
            seconds=self.run_timeout,
        )

    @property
    def permissions(self) -> Permissions:
        """What suites may use of this machine."""
        return Permissions(
            paths=self.allow_path,
            variables=self.pass_env,
            network=self.network,
            hosts=self.allow_host,
        )

    def shard_record(self, items: int | None) -> ShardRecord | None:
        """Return what records say about this part of the run; None if it is not divided.

        Args:
            items: how many items the part has, if that is known.
        """
        if self.shard is None:
            return None
        values = vars(self) | {
            # A record names its own agent, but not the other agents that play the task.
            "requested_agents": [choice.label for choice in self.agents[1:] and self.agents],
            "requested_environments": self.environments,
            "datasets": [Path(name).name for name in self.datasets],
            "requested_repeat": self.repeat,
        }
        options = {}
        for option in (option for option in OPTIONS if option.same_in_parts):
            value = values[option.attribute]
            text = ",".join(value) if isinstance(value, (tuple, list)) else str(value or "")
            if text not in ("", option.default):
                options[option.name] = text
        digest = "" if self.durations is None else self.durations.digest
        return ShardRecord(*self.shard, items, digest, options)

    def episode_timeout(self, task: Task, *, at_terminal: bool = False) -> float | None:
        """Return the seconds that an episode has, or None for no limit.

        The option or its ini value comes first, then the task's own number, then 600 seconds.

        Args:
            task: the task of the episode.
            at_terminal: the agent is a person, who has no limit unless one is given.
        """
        return self.timeout or task.timeout or (None if at_terminal else DEFAULT_TIMEOUT)
