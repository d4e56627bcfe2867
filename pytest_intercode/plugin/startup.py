"""What a run needs before its first item: its options are checked, and what they name is opened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.agents.protocol import AgentFactory
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.plugin.settings import Settings
from pytest_intercode.plugin.xdist import is_worker
from pytest_intercode.results.reading import read_results

if TYPE_CHECKING:
    import pytest

    from pytest_intercode.plugin.resume import Resumed
    from pytest_intercode.plugin.session import IntercodeSession

__all__ = ["check", "earlier_part", "open_reports"]


def check(session: IntercodeSession) -> None:
    """Refuse what cannot be kept, before anything is written.

    Raises:
        ConfigurationError: two options do not go together, or what one names cannot be used.
    """
    settings = session.settings
    if session.baseline is not None:
        _keep(settings, session.baseline.path, "the baseline")
    if settings.agent:
        _check_agent(session.factory(), settings, session.config)


def _keep(settings: Settings, path: Path, what: str) -> None:
    """Refuse to write results over a file that is read."""
    results = settings.results
    if results is not None and results.exists() and results.samefile(path):
        raise ConfigurationError(
            f"--intercode-results={results}: this is {what}, and it would be lost; name another "
            "file"
        )


def _check_agent(factory: AgentFactory, settings: Settings, config: pytest.Config) -> None:
    head, _, played = factory.name.partition(":")
    if head == "replay":
        path = settings.agent_folder / Path(played.strip()).expanduser()
        _keep(settings, path, "the run that is replayed")
    if factory.terminal:
        from pytest_intercode.plugin.terminal import check_terminal

        check_terminal(config, factory.name)
        if settings.concurrency > 1:
            raise ConfigurationError(
                f"--intercode-concurrency={settings.concurrency}: the agent {factory.name} "
                "talks to your terminal, one episode at a time; leave the option out"
            )
    if factory.priced is False and (settings.budget.cost or settings.run_limits.cost):
        option = "max-cost" if settings.budget.cost else "run-max-cost"
        raise ConfigurationError(
            f"--intercode-{option}: the agent {factory.name} knows no prices, so money cannot "
            "be limited: give --intercode-agent-arg input_price=... and output_price=... (per "
            "million tokens), or limit tokens"
        )


def earlier_part(session: IntercodeSession) -> Resumed | None:
    """Return what the results file holds of the run, if it is to go on.

    Raises:
        ConfigurationError: no results file is named, or it is none.
    """
    settings = session.settings
    if not settings.resume or settings.results is None or not settings.results.exists():
        return None
    from pytest_intercode.plugin.resume import Resumed

    # The reporter tells what is torn, and mends it; it may be writing to the file by now.
    resumed = Resumed(session, read_results(settings.results, torn=lambda line: None))
    session.config.pluginmanager.register(resumed, "intercode-resumed")
    return resumed


def open_reports(session: IntercodeSession) -> None:
    """Open what is written to, and set up the gate, in the process where reports arrive.

    Raises:
        ConfigurationError: a file cannot be written, or a page cannot be made here.
    """
    settings = session.settings
    if is_worker(session.config):
        return
    if settings.html:
        from pytest_intercode.page import require

        require()
    if settings.results or settings.html or settings.baseline or settings.fail_under:
        from pytest_intercode.plugin.reporter import reporter_of

        reporter = reporter_of(session.config)
        if settings.baseline or settings.fail_under:
            from pytest_intercode.plugin.gate import Gate

            gate = Gate(session.baseline, settings.gate, settings.fail_under, reporter.tries)
            session.config.pluginmanager.register(gate, "intercode-gate")
