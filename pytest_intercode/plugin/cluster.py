"""``--intercode-cluster``: rollouts on the nodes of a Ray cluster, begun before their items' turns.

As with ``--intercode-concurrency``, items are reported in order, each with its own output and
duration. Items that need something that only this process has run in it, one at a time.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from typing import Any

import pytest

from pytest_intercode.agents.choice import AgentChoice
from pytest_intercode.core.text import one_line, pluralize
from pytest_intercode.errors import AgentLoadError, ConfigurationError
from pytest_intercode.plugin.concurrency import ConcurrentExecution
from pytest_intercode.plugin.run import Run
from pytest_intercode.rollouts.cluster.executor import ClusterExecutor, Connection
from pytest_intercode.rollouts.cluster.files import FileIndex
from pytest_intercode.rollouts.cluster.settings import (
    NodeSettings,
    find_agent,
    why_not_on_nodes,
)
from pytest_intercode.rollouts.executor import Handle
from pytest_intercode.rollouts.rollout import default_environment

__all__ = ["ClusterExecution", "check_cluster"]


def check_cluster(run: Run) -> None:
    """Refuse options and agents that a cluster does not support, before anything is started.

    Raises:
        ConfigurationError: an option or the agent does not go together with a cluster.
    """
    settings = run.settings
    source = f"--intercode-cluster={settings.cluster}"
    if getattr(run.config.option, "dist", "no") != "no":
        raise ConfigurationError(
            f"{source}: the nodes of the cluster replace xdist's workers; leave out -n"
        )
    if settings.audit:
        raise ConfigurationError(f"{source}: an audit runs on one machine; leave the option out")
    if settings.gateway.record or settings.gateway.replay:
        raise ConfigurationError(
            f"{source}: each node has its own gateway, which neither records nor replays; leave "
            "out --intercode-gateway-record and --intercode-gateway-replay"
        )
    if settings.gateway.logins:
        raise ConfigurationError(
            f"{source}: a login stays on its machine; leave out --intercode-gateway-login"
        )
    for agent in settings.agents:
        if reason := why_not_on_nodes(agent.name):
            raise AgentLoadError(
                f"--intercode-agent={agent.name}: {reason}; leave --intercode-cluster out"
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
        super().__init__(run, run.settings.requested_concurrency)
        self.backend = self._executor.connection.backend
        self._began = time.monotonic()

    def _make_executor(self) -> ClusterExecutor:
        # Imports Ray.
        from pytest_intercode.rollouts.cluster.ray_nodes import RayNodes

        run, files = self._run, FileIndex()
        settings = _node_settings(run, files)
        assert run.settings.cluster is not None
        connection = Connection(
            RayNodes(run.settings.cluster, insecure=run.settings.cluster_insecure),
            settings,
            files,
            run.workers.budget,
            run.progress.lines.append,  # shown when the main thread next shows lines
            advice="; --intercode-resume continues from here",
            timeout=run.settings.cluster_wait,
        )
        return ClusterExecutor(
            connection,
            self,
            lambda spec: default_environment(spec, run.composition.provider),
            self._concurrency,
            self._begin_next,
        )

    # -- what the executor notifies of, on its own thread

    def printed(self, handle: Handle, pieces: list[Any]) -> None:
        """Keep what a rollout printed for its item's turn."""
        self._of[handle].output.add_pieces(pieces)

    # -- what pytest calls

    def pytest_report_collectionfinish(self, items: list[pytest.Item]) -> list[str]:
        """Report how many items do not run on nodes."""
        count = sum(not self._order.may_begin_early(item) for item in items)
        if not count:
            return []
        need = "needs" if count == 1 else "need"
        return [
            f"intercode: {pluralize(count, 'item')} {need} this process, and run in it one after "
            "the other"
        ]

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write a line for each node."""
        seconds = max(0.001, time.monotonic() - self._began)
        for name, counts in sorted(self._executor.connection.counts.items()):
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
            self._executor.connection.close()
        finally:
            super().pytest_unconfigure()


def _node_settings(run: Run, files: FileIndex) -> NodeSettings:
    """Return the settings that nodes get first, including what the agents need there.

    Raises:
        ConfigurationError: an agent's folder cannot be sent.
    """
    settings = run.settings
    gateway = settings.gateway
    agents = settings.agents or (AgentChoice(""),)
    return NodeSettings(
        agents=tuple(
            find_agent(
                *(agent.name, agent.arguments, settings.agent_folder, files),
                f"--intercode-agent={agent.name}",
            )
            for agent in agents
        ),
        agent_folder=settings.agent_folder,
        sandbox=settings.sandbox,
        variables={name: os.environ[name] for name in settings.cluster_env},
        gateway={
            "models": gateway.models,
            "prices": {model: asdict(price) for model, price in gateway.prices.items()},
            "hosted_tools": gateway.hosted_tools,
            "allowed": gateway.allowed,
            "programs": gateway.programs,
            "tokens": gateway.tokens,
        },
        user_model=settings.user_model or "",
        network=bool(settings.network),
    )
