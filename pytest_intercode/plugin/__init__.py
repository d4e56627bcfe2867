"""The pytest plugin: options, collection, fixtures, reports and the gate.

Every pytest run of a user who has the plugin installed imports this module, so it imports only
pytest and small modules of this package, and reads no files. The rest is imported when an option, a
suite file or a fixture needs it.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from pytest_intercode.options.table import OPTIONS
from pytest_intercode.plugin.episode_items import has_episodes
from pytest_intercode.plugin.fixtures import (
    intercode_agent,
    intercode_environment,
    intercode_episode,
    intercode_project,
    intercode_task,
)
from pytest_intercode.plugin.ini import SUITES, ini_values
from pytest_intercode.plugin.options import add_options, format_help, starts_run

__all__ = [
    "intercode_agent",
    "intercode_environment",
    "intercode_episode",
    "intercode_project",
    "intercode_task",
]


_RUNS = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, each with its ini value."""
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the hooks that users may implement."""
    from pytest_intercode.plugin import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Print the help of all options, if asked to; leave most ini values out of ``--help``."""
    if config.option.help:
        from pytest_intercode.plugin.workarounds import hide_ini_values

        hide_ini_values(config, [option.ini for option in OPTIONS if not option.everyday])
    elif config.option.intercode_help:
        print(format_help(), end="")
        return pytest.ExitCode.OK
    return None


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and start a run if the command line asks for one."""
    config.addinivalue_line(
        "markers",
        "intercode(env, suite, dataset, hardness, tags, ids, repeat, pass_rate): on an item, its "
        "task; on a test function that takes an intercode fixture, the tasks that it is run with, "
        "how often, and the share of the tries that must pass.",
    )
    if not hasattr(config, "workerinput"):  # a worker's reports go to its controller
        config.pluginmanager.register(_Listener(config), "intercode-listener")
    config.pluginmanager.register(_Judge(config), "intercode-judge")
    try:
        _start_run(config)
    except Exception as error:
        from pytest_intercode.core.text import escape_for_terminal
        from pytest_intercode.errors import ConfigurationError

        if not isinstance(error, ConfigurationError):
            raise
        raise pytest.UsageError(escape_for_terminal(str(error))) from None


def _start_run(config: pytest.Config) -> None:
    """Start a run if the command line or the configuration file asks for one."""
    if patterns := ini_values(config, SUITES):
        from pytest_intercode.plugin.arguments import add_suite_files

        add_suite_files(config, patterns)
    arguments = [*config.args, *config.getini("testpaths")]
    if starts_run(config) or any("intercode/" in arg or _is_suite(arg) for arg in arguments):
        from pytest_intercode.plugin.startup import start

        start(config)


def _is_suite(argument: str) -> bool:
    return argument.split("::")[0].endswith((".yaml", ".yml"))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a suite file that is named on the command line or matches ``intercode_suites``."""
    if not _is_suite(file_path.name):
        return None
    patterns = ini_values(parent.config, SUITES)
    if not parent.session.isinitpath(file_path) and not any(map(file_path.match, patterns)):
        return None
    from pytest_intercode.plugin.collection import Suite

    suite: Suite = Suite.from_parent(parent, path=file_path)
    return suite


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize whatever takes a task or a project."""
    if "intercode_task" in metafunc.fixturenames:
        from pytest_intercode.plugin.collection import parametrize

        parametrize(metafunc)
    if "intercode_project" in metafunc.fixturenames:
        from pytest_intercode.plugin import project_cells

        project_cells.parametrize(metafunc)
    fixtures = {"intercode_task", "intercode_project"}.intersection(metafunc.fixturenames)
    # A mark on a class or a module may be meant for its other tests, so only own marks count.
    if not fixtures and any(mark.name == "intercode" for mark in metafunc.definition.own_markers):
        raise pytest.Collector.CollectError(
            f"{metafunc.definition.nodeid}: @pytest.mark.intercode needs a test that takes "
            "intercode_episode, intercode_task or intercode_project; this one takes none of them"
        )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Find the tries that are judged together, once it is known which items are run."""
    if session.config.pluginmanager.has_plugin("intercode-run"):
        from pytest_intercode.plugin.pass_rates import count_tries

        count_tries(session.items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out a try that can no longer change whether its test reaches its pass rate."""
    if has_episodes(item):
        from pytest_intercode.plugin.pass_rates import skip_decided

        skip_decided(item)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Note that the test is running: a report that is made now belongs to a subtest."""
    if not has_episodes(item):
        return (yield)
    item.stash[_RUNS] = True
    try:
        return (yield)
    finally:
        del item.stash[_RUNS]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put an episode's outcome on its report."""
    if "intercode_project" in getattr(item, "fixturenames", ()):
        from pytest_intercode.projects.answer import explain

        # Also after a phase that passed, so that the answers it asked for are forgotten.
        explain(None if call.excinfo is None else call.excinfo.value)
    report = yield
    if has_episodes(item):
        from pytest_intercode.plugin.reports import complete, complete_subtest

        (complete_subtest if _RUNS in item.stash else complete)(report, item, call)
    return report


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: object) -> bool | None:
    """Time our items instead of pytest-timeout, which prints the stacks of all threads."""
    if not has_episodes(item):
        return None
    from pytest_intercode.plugin.timeouts import set_timer

    set_timer(item, settings)
    return True


class _Judge:
    """Judges the tries of tests with a pass rate, before other plugins see their reports."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None]:
        """Judge a report, if it is of a try with a pass rate."""
        if hasattr(report, "intercode_try"):
            from pytest_intercode.plugin.pass_rates import pass_rates_of

            pass_rates_of(self._config).judge(report)
        return (yield)


class _Listener:
    """Waits for the first report of an episode; only then is the reporter imported.

    Under xdist the controller collects nothing, so a report is the first sign of an episode there.
    The listener also fails a run in which no test ran because there was no agent.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self._without_agent = 0  # tests that were skipped
        self._any_ran = False

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Pass an episode's report on, last: this removes the episode's line from the report."""
        self._without_agent += hasattr(report, "intercode_without_agent")
        self._any_ran |= report.when == "call" and (
            not report.skipped or hasattr(report, "wasxfail")
        )
        if hasattr(report, "intercode") or hasattr(report, "intercode_missing_image"):
            from pytest_intercode.core.text import escape_for_terminal
            from pytest_intercode.errors import ConfigurationError
            from pytest_intercode.plugin.reporter import reporter_of

            try:
                reporter = reporter_of(self.config)
                reporter.note_missing_image(report)
                if hasattr(report, "intercode"):
                    reporter.take(report)
            except ConfigurationError as error:
                pytest.exit(escape_for_terminal(str(error)), returncode=pytest.ExitCode.USAGE_ERROR)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run whose tests all needed an agent."""
        if self._without_agent and not self._any_ran and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Report tests that were skipped without an agent; pytest shows reasons only with -rs."""
        if self._without_agent:
            tests = f"{self._without_agent} test{'s' if self._without_agent > 1 else ''}"
            ending = "" if self._any_ran else "; no other test ran, so the run fails"
            terminalreporter.write_line(
                f"intercode: no agent to test, {tests} skipped: give --intercode-agent=AGENT, or "
                f"set intercode_agent in the ini file{ending}",
                yellow=self._any_ran,
                red=not self._any_ran,
            )
