"""``--intercode-cluster``: rollouts on the nodes of a Ray cluster, begun before their items' turns.

What holds of ``--intercode-concurrency`` holds here: items in order, each with its own output and
duration. Items that need what lives in this process run in it, one at a time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

import pytest

from pytest_intercode.core.text import one_line, pluralize
from pytest_intercode.errors import AgentLoadError, ConfigurationError
from pytest_intercode.plugin.concurrency import ConcurrentExecution
from pytest_intercode.plugin.run import Run
from pytest_intercode.rollouts.cluster.agents import why_not_on_nodes, with_agent_files
from pytest_intercode.rollouts.cluster.executor import ClusterExecutor, ClusterHandle
from pytest_intercode.rollouts.cluster.files import Shelf
from pytest_intercode.rollouts.cluster.leases import limited_kinds
from pytest_intercode.rollouts.cluster.output import log_record
from pytest_intercode.rollouts.cluster.settings import NodeSettings
from pytest_intercode.rollouts.rollout import Services, default_environment
from pytest_intercode.rollouts.spec import SandboxSettings

__all__ = ["ClusterExecution", "check_cluster"]


def check_cluster(run: Run) -> None:
    """Refuse what a cluster cannot keep, before anything is started.

    Raises:
        ConfigurationError: an option or the agent does not go together with a cluster.
    """
    settings = run.settings
    asked = f"--intercode-cluster={settings.cluster}"
    if getattr(run.config.option, "dist", "no") != "no":
        raise ConfigurationError(
            f"{asked}: the nodes of the cluster take the place of xdist's workers; leave out -n"
        )
    if settings.audit:
        raise ConfigurationError(f"{asked}: an audit runs on one machine; leave the option out")
    if settings.gateway.record or settings.gateway.replay:
        raise ConfigurationError(
            f"{asked}: each node has a gateway of its own, which neither records nor replays; "
            "leave out --intercode-gateway-record and --intercode-gateway-replay"
        )
    why = why_not_on_nodes(settings.agent or "")
    if why:
        raise AgentLoadError(
            f"--intercode-agent={settings.agent}: {why}; leave --intercode-cluster out"
        )
    for name in settings.cluster_env:
        if name not in os.environ:
            raise ConfigurationError(f"--intercode-cluster-env={name}: there is no such variable")


class ClusterExecution(ConcurrentExecution):
    """Runs rollouts on nodes; also a pytest plugin.

    Raises:
        ConfigurationError: the cluster cannot be used.
    """

    _executor: ClusterExecutor

    def __init__(self, run: Run) -> None:
        self._began = time.monotonic()
        super().__init__(run, run.settings.requested_concurrency)
        try:
            self.backend = self._executor.wait_until_ready()
            self.nodes = self._executor.nodes_at_work
            self._began = time.monotonic()
        except BaseException as error:
            self._executor.close()
            if isinstance(error, ConfigurationError):
                raise ConfigurationError(f"--intercode-cluster: {error}") from None
            raise

    def _make_executor(self) -> ClusterExecutor:
        # Imports Ray.
        from pytest_intercode.rollouts.cluster.ray_transport import RayTransport

        run, shelf = self._run, Shelf()
        settings = _node_settings(run, shelf)
        assert run.settings.cluster is not None
        transport = RayTransport(run.settings.cluster, insecure=run.settings.cluster_insecure)
        try:
            return ClusterExecutor(
                transport,
                settings,
                self,
                self._begin_next,
                concurrency=self._concurrency,
                run_budget=run.budget.budget,
                shelf=shelf,
                stand_in=lambda spec: default_environment(spec, run.provider),
                patience=run.settings.cluster_wait,
            )
        except BaseException:
            transport.close()
            raise

    def _inline_services(self) -> Services:
        return replace(super()._inline_services(), run_budget=self._executor.own_budget)

    # -- what the executor notifies of, on its own thread

    def printed(self, handle: ClusterHandle, pieces: Iterable[Any]) -> None:
        """Keep what a rollout printed for its item's turn."""
        output = self._of[handle].output
        for piece in pieces:
            output.phase, stream, text, *_ = piece
            record = log_record(piece)
            if record is not None:
                output.log(record)
            else:
                output.write(stream, text)

    def said(self, line: str) -> None:
        """Show a line for the user when the main thread next looks."""
        self._run.lines.append(line)

    # -- what pytest calls

    def pytest_report_collectionfinish(self, items: list[pytest.Item]) -> list[str]:
        """Say what does not run on nodes."""
        here = sum(not self._order.may_begin_early(item) for item in items)
        if not here:
            return []
        need = "needs" if here == 1 else "need"
        return [f"intercode: {pluralize(here, 'item')} {need} this process, and run in it in turn"]

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write a line for each node."""
        seconds = max(0.001, time.monotonic() - self._began)
        for name, counts in sorted(self._executor.counts.items()):
            words = [
                pluralize(counts.done, "episode"),
                f"{60 * counts.done / seconds:.1f} a minute",
            ]
            if counts.lost:
                words.append(f"{counts.lost} lost")
            if counts.left_out:
                words.append(f"no more work: {counts.left_out}")
            terminalreporter.write_line(one_line(f"node {name}: {', '.join(words)}"))

    def pytest_unconfigure(self) -> None:
        """Leave the cluster."""
        try:
            self._executor.close()
        finally:
            super().pytest_unconfigure()


def _node_settings(run: Run, shelf: Shelf) -> NodeSettings:
    """Return what nodes are told, with what the agent needs there.

    Raises:
        ConfigurationError: the agent's folder cannot be sent.
    """
    settings = run.settings
    gateway = settings.gateway
    made = NodeSettings(
        agent=settings.agent or "",
        agent_arguments=settings.agent_arguments,
        agent_folder=settings.agent_folder,
        sandbox=SandboxSettings(
            settings.backend,
            settings.rootfs,
            settings.base_images,
            settings.runtime,
            settings.registry,
        ),
        variables={name: os.environ[name] for name in settings.cluster_env},
        gateway={
            "models": gateway.models,
            "prices": {model: asdict(price) for model, price in gateway.prices.items()},
            "hosted_tools": gateway.hosted_tools,
            "allowed": gateway.allowed,
            "programs": gateway.programs,
        },
        limited=limited_kinds(settings.run_limits),
        network=bool(settings.network),
    )
    return with_agent_files(made, shelf, f"--intercode-agent={made.agent}")
