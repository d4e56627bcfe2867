"""The start of a run, before its first item: composes its plugins and its executor.

It checks the options, opens the files that they name, and registers further plugins for resuming,
running concurrently, gating and reporting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.agents.choice import AgentChoice
from pytest_intercode.agents.loader import BUILT_IN, past_gateway
from pytest_intercode.agents.protocol import AgentFactory
from pytest_intercode.agents.users import cannot_continue, has_model
from pytest_intercode.core.permissions import requested_hosts
from pytest_intercode.core.task import Task
from pytest_intercode.core.text import escape_for_terminal, one_line, pluralize
from pytest_intercode.environments.registry import builtin_kinds, environment_class, kind_of
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.gateway.prices import PRICES_DATE, SHIPPED
from pytest_intercode.plugin.arguments import take_arguments
from pytest_intercode.plugin.collection import BundledSuites
from pytest_intercode.plugin.concurrency import ConcurrentExecution
from pytest_intercode.plugin.execution import set_execution
from pytest_intercode.plugin.gate import Gate
from pytest_intercode.plugin.order import in_order
from pytest_intercode.plugin.reporter import reporter_of
from pytest_intercode.plugin.resume import Resumed, resumed_of
from pytest_intercode.plugin.run import Run, agent_of, run_of, task_of
from pytest_intercode.plugin.settings import Settings
from pytest_intercode.plugin.terminal import check_terminal
from pytest_intercode.plugin.xdist import (
    is_distributed,
    is_worker,
    make_ordered_scheduler,
    make_scheduler,
)
from pytest_intercode.results.files import read_records
from pytest_intercode.system.files import check_writable, same_file
from pytest_intercode.system.platform import HAS_SANDBOXES, check_platform

__all__ = ["Startup", "start"]

_MAX_HOSTS = 10  # that the header names
_IN_ORDER = "bash episodes of the paper profile depend on those before them: they"


def start(config: pytest.Config) -> None:
    """Prepare a run that the command line or the ini file asks for.

    Raises:
        ConfigurationError: an option is wrong.
    """
    run = run_of(config)
    notes = take_arguments(config, run.tasks)
    register = config.pluginmanager.register
    register(Startup(run, notes), "intercode-startup")
    register(BundledSuites(run), "intercode-bundled")
    if run.settings.plan:
        from pytest_intercode.plugin.plan import Plan

        config.option.dist = "no"  # there is nothing for xdist to distribute
        register(Plan(run), "intercode-plan")


class Startup:
    """Completes a run once all options are known; a pytest plugin.

    Args:
        run: the run.
        notes: further lines of the header.
    """

    def __init__(self, run: Run, notes: Sequence[str] = ()) -> None:
        self._run = run
        self._notes = notes

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Read everything that the command line names, so that mistakes end the run early."""
        run = self._run
        if not HAS_SANDBOXES:  # other tests may run; ours are refused once they are collected
            return
        try:
            run.tasks.bundled()
            if _runs_nothing(run):
                return
            _check(run)
            _open_reports(run)  # locks the results, so that nothing is added while they are read
            _resume(run)
            _choose_execution(run)
        except ConfigurationError as error:
            raise pytest.UsageError(escape_for_terminal(str(error))) from None

    def pytest_report_header(self) -> list[str]:
        """Describe the run."""
        if not HAS_SANDBOXES:
            return []
        run, settings = self._run, self._run.settings
        words = [_describe_agents(settings.agents), f"profile {settings.profile}"]
        if settings.audit:
            words = ["audit of the tasks, profile strict"]
        if not _runs_nothing(run):
            words += _describe_feedback(run)
        if settings.network:
            words.append("with network")
        if settings.allow_host:
            words.append(f"network limited to {', '.join(settings.allow_host)}")
        if settings.gateway.programs:
            replayed = settings.gateway.replay
            words.append(
                "models through a gateway" if replayed is None else f"models of {replayed}"
            )
        if settings.gateway.logins:
            words.append(
                f"your login of {' and '.join(settings.gateway.logins)} (tokens have no price)"
            )
        if SHIPPED in settings.gateway_prices.values():
            words.append(f"shipped list prices of {PRICES_DATE}")
        if settings.cluster:
            limit = settings.requested_concurrency
            concurrency = f", concurrency {limit}" if limit else ""
            words.append(f"cluster {settings.cluster}{concurrency}")
        if settings.concurrency > 1:
            words.append(f"concurrency {settings.concurrency}")
        if settings.repeat > 1:
            words.append(f"{settings.repeat} tries at each task")
        resumed = resumed_of(run.config)
        if resumed is not None:
            words.append(f"resuming {resumed.count} episodes of {settings.results}")
        if not settings.plan:  # a plan needs neither sandboxes nor the agent
            words.append(f"sandbox {run.composition.provider.choice}")
        lines = [one_line(f"intercode: {', '.join(words)}")]
        lines += [one_line(f"intercode: {note}") for note in self._notes]
        if not (settings.plan or settings.audit or _runs_nothing(run)):
            lines += [one_line(f"intercode: {place}") for place in _describe_places(run)]
        if not is_distributed(run.config):
            return lines
        # The controller collects nothing, so it does not know any other tasks.
        tasks = [task for suite in run.tasks.bundled().values() for task in suite]
        lines += [*self._describe_hosts(tasks), *self._describe_users(tasks)]
        if self._suites_in_order():
            requirement = "run in one worker, in order"
            dist = run.config.getvalue("dist")
            if dist != "load":
                requirement = (
                    f"need one worker to have InterCode's rewards, which --dist={dist} may not give"
                )
            lines.append(f"intercode: {_IN_ORDER} {requirement}")
        return lines

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Refuse tasks that the agent cannot play at all, with one error for all of them."""
        settings, config = self._run.settings, session.config
        # The controller would report a worker's error as a crash.
        if is_worker(config) or _runs_nothing(self._run):
            return
        if any(map(task_of, session.items)):
            try:
                check_platform()
            except ConfigurationError as error:
                raise pytest.UsageError(str(error)) from None
        if len(settings.agents) > 1 and any(map(in_order, session.items)):
            raise pytest.UsageError(_several_in_order(settings.agents))
        for agent in settings.agents:
            factory = self._run.composition.factory(agent)
            items = [item for item in session.items if agent_of(item) == agent]
            _check_environments(factory, items)
            try:
                self._check_users(factory, items)
            except ConfigurationError as error:
                raise pytest.UsageError(str(error)) from None

    def _check_users(self, factory: AgentFactory, items: Sequence[pytest.Item]) -> None:
        """Refuse tasks with a user whom an agent cannot talk to, or who cannot be played.

        Raises:
            ConfigurationError: there is such a task.
        """
        tasks = [task for task in map(task_of, items) if task is not None and task.conversation]
        gateway = self._run.settings.gateway
        is_program = factory.name.partition(":")[0] in BUILT_IN
        if gateway.keeps_exchanges and not is_program and not any(map(has_model, tasks)):
            raise past_gateway(factory.name)
        if tasks and factory.continues is False:
            raise ConfigurationError(
                f"{cannot_continue(f'--intercode-agent={factory.name}')} "
                f"({pluralize(len(tasks), 'task')} of {len(items)} with a user)"
            )
        if any(map(has_model, tasks)) and self._run.settings.run_limits.cost and not gateway.prices:
            raise ConfigurationError(
                "--intercode-run-max-cost: the model that plays the user has no price, so cost "
                "cannot be limited: give --intercode-gateway-price MODEL=INPUT/OUTPUT (per "
                "million tokens), or limit tokens"
            )
        for task in tasks if factory.continues else ():
            self._run.composition.users.check(task)

    def pytest_report_collectionfinish(self, items: list[pytest.Item]) -> list[str]:
        """Describe suites' hosts and users, and where ``--intercode-concurrency`` has no effect."""
        tasks = [task for task in map(task_of, items) if task is not None]
        lines = [*self._describe_hosts(tasks), *self._describe_users(tasks)]
        if self._run.settings.concurrency > 1 and any(map(in_order, items)):
            lines.append(f"intercode: {_IN_ORDER} run one at a time, in order")
        return lines

    def _describe_hosts(self, tasks: Iterable[Task]) -> list[str]:
        """Return a line with the hosts that suites ask for, most tasks first; or none."""
        counts = Counter(host for task in tasks for host in requested_hosts(task))
        for host in self._run.settings.allow_host:  # given by the user, and shown in the header
            counts.pop(host, None)
        if not counts:
            return []
        names = [f"{host} ({pluralize(n, 'task')})" for host, n in counts.most_common(_MAX_HOSTS)]
        if len(counts) > len(names):
            names.append(f"{len(counts) - len(names)} more")
        return [one_line(f"intercode: suites let sandboxes reach {', '.join(names)}")]

    def _describe_users(self, tasks: Iterable[Task]) -> list[str]:
        """Return a line with the models that play users, as they cost money; or none."""
        run = self._run
        if _runs_nothing(run) or not any(
            run.composition.factory(agent).continues for agent in run.settings.agents
        ):
            return []
        models = map(run.composition.users.model_of, filter(has_model, tasks))
        counts = Counter(filter(None, models))
        names = [f"{model} ({pluralize(n, 'task')})" for model, n in counts.most_common(_MAX_HOSTS)]
        return [one_line(f"intercode: models play users: {', '.join(names)}")] if names else []

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Keep suites that depend on order in one worker, or fill the workers' queues."""
        if config.getvalue("dist") != "load":
            return None
        if suites := self._suites_in_order():
            return make_ordered_scheduler(config, log, suites)
        if self._run.settings.concurrency > 1:
            return make_scheduler(config, log, self._run.settings.concurrency)
        return None

    def _suites_in_order(self) -> list[str]:
        """Return the node ids of the bundled suites whose episodes depend on their order."""
        profile = self._run.settings.profile
        return [
            f"intercode/{env}"
            for env in self._run.tasks.bundled()
            if environment_class(env, profile).in_order
        ]


def _runs_nothing(run: Run) -> bool:
    """Whether items are only collected."""
    return bool(run.config.option.collectonly or run.settings.plan)


def _check(run: Run) -> None:
    """Refuse options that cannot be honoured, before anything is written."""
    settings = run.settings
    if settings.cluster:
        from pytest_intercode.plugin.cluster import check_cluster

        check_cluster(run)
    environments = run.tasks.bundled()
    if len(settings.agents) > 1 and any(
        environment_class(env, settings.profile).in_order for env in environments
    ):
        raise ConfigurationError(_several_in_order(settings.agents))
    run.composition.provider.check(settings.checked_sandbox_options)
    if run.baseline is not None:
        _protect(settings, run.baseline.path, "the baseline")
    if isinstance(settings.otel, Path):
        files = (settings.results, settings.predictions, settings.baseline)
        if settings.otel.resolve() in [path.resolve() for path in files if path is not None]:
            raise ConfigurationError(
                f"--intercode-otel={settings.otel}: another option also names this file, and it "
                "would be overwritten; name another file"
            )
    for agent in settings.agents:
        _check_agent(run.composition.factory(agent), settings, run.config)


def _describe_agents(agents: Sequence[AgentChoice]) -> str:
    """Return the run's agents for the header."""
    if len(agents) > 1:
        return f"agents {', '.join(agent.label for agent in agents)}"
    return f"agent {agents[0].name if agents else '(none)'}"


def _describe_places(run: Run) -> list[str]:
    """Return a line for each agent that acts in the sandbox by a protocol: where it runs."""
    factories = [run.composition.factory(agent) for agent in run.settings.agents]
    return [f"agent {factory.name} runs {factory.place}" for factory in factories if factory.place]


def _describe_feedback(run: Run) -> list[str]:
    """Return which of the run's agents see rewards, for the header."""
    agents = run.settings.agents
    labels = [agent.label for agent in agents if run.composition.feedback(agent) == "reward"]
    if 0 < len(labels) < len(agents):
        return [f"rewards as feedback for {', '.join(labels)}"]
    is_for_all = labels or run.composition.feedback(None) == "reward"
    return ["rewards as feedback"] if is_for_all else []


def _several_in_order(agents: Sequence[AgentChoice]) -> str:
    """Return why several agents cannot play tasks that depend on their order."""
    return (
        "--intercode-profile=paper: bash episodes depend on those before them, and each of "
        f"{', '.join(agent.label for agent in agents)} would find what the others left; name one "
        "--intercode-agent for each run"
    )


def _protect(settings: Settings, path: Path, label: str) -> None:
    """Refuse to write results over a file that is read."""
    results = settings.results
    if results is not None and same_file(results, path):
        raise ConfigurationError(
            f"--intercode-results={results}: this is {label}, and it would be overwritten; name "
            "another file"
        )


def _check_agent(factory: AgentFactory, settings: Settings, config: pytest.Config) -> None:
    head, _, played = factory.name.partition(":")
    if head == "replay":
        path = settings.agent_folder / Path(played.strip()).expanduser()
        _protect(settings, path, "the run that is replayed")
    if factory.terminal:
        if len(settings.agents) > 1:
            raise ConfigurationError(
                f"--intercode-agent={factory.name}: it uses your terminal, one episode at a time; "
                "name no other agent"
            )
        check_terminal(config, factory.name)
        if settings.concurrency > 1:
            raise ConfigurationError(
                f"--intercode-concurrency={settings.concurrency}: the agent {factory.name} "
                "uses your terminal, one episode at a time; leave the option out"
            )
    if factory.priced is False and (settings.budget.cost or settings.run_limits.cost):
        option = "max-cost" if settings.budget.cost else "run-max-cost"
        remedy = "--intercode-agent-arg input_price=... and output_price=... (per million tokens)"
        if settings.gateway.programs or factory.scratch:  # an installed agent always uses it
            remedy = "--intercode-gateway-price MODEL=INPUT/OUTPUT (per million tokens)"
        raise ConfigurationError(
            f"--intercode-{option}: the agent {factory.name} does not know prices, so cost cannot "
            f"be limited: give {remedy}, or limit tokens"
        )


def _check_environments(factory: AgentFactory, items: Sequence[pytest.Item]) -> None:
    """Refuse tasks of environments that an agent cannot play."""
    if not factory.needs_shell:
        return
    tasks = [
        task
        for item in items
        if (task := task_of(item)) is not None and item.get_closest_marker("skip") is None
    ]
    unplayable = sorted(env for env in {task.env for task in tasks} if not kind_of(env).has_shell)
    if unplayable:
        count = sum(task.env in unplayable for task in tasks)
        names = " and ".join(unplayable)
        playable = [kind.name for kind in builtin_kinds() if kind.has_shell]
        raise pytest.UsageError(
            f"--intercode-agent={factory.name}: it needs a shell, which {names} does not have "
            f"({count} of {len(tasks)} tasks); select {', '.join(playable)}, for example with "
            f"--intercode-env={playable[0]}, or give the agent the sandbox over MCP: "
            "--intercode-agent=mcp:CMDLINE"
        )


def _resume(run: Run) -> None:
    """Reuse the results that the results file holds of the run, if it is resumed."""
    settings = run.settings
    if settings.resume and settings.results is not None and settings.results.exists():
        # No warning: the reporter, which may be writing already, reports a truncated last line.
        records = read_records(settings.results, warn=lambda line: None)
        if records:
            run.config.pluginmanager.register(Resumed(run, records), "intercode-resumed")


def _choose_execution(run: Run) -> None:
    """Let rollouts run concurrently, if that is requested and this process runs any."""
    if run.settings.cluster:
        from pytest_intercode.plugin.cluster import ClusterExecution

        run.progress.concurrent = True
        execution = ClusterExecution(run)
        run.composition.use_backend(execution.backend)
        set_execution(run.config, execution)
        return
    requested = run.settings.concurrency
    if requested > 1 and (is_worker(run.config) or not is_distributed(run.config)):
        concurrency = run.workers.divide(requested)
        if concurrency > 1:
            run.progress.concurrent = True
            set_execution(run.config, ConcurrentExecution(run, concurrency))


def _open_reports(run: Run) -> None:
    """Open the output files, and set up the gate, in the process where reports arrive."""
    settings = run.settings
    if is_worker(run.config):
        return
    if settings.html:
        from pytest_intercode.page import require

        require()
    reported = settings.results or settings.predictions or settings.html or settings.otel
    if reported or settings.baseline or settings.fail_under:
        reporter = reporter_of(run.config)
        if settings.baseline or settings.fail_under:
            gate = Gate(run.baseline, settings.requested_gate, settings.fail_under, reporter.tries)
            run.config.pluginmanager.register(gate, "intercode-gate")
    if settings.html:  # before models cost money, but after the results file is locked
        check_writable(settings.html, option="--intercode-html")
