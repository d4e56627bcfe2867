"""What pytest sees: options, collection, fixtures, reports, the gate.

This module is imported by every pytest run of a user who has the plugin installed, so it imports
nothing but pytest and reads nothing. The rest is imported when an option, a suite file or a fixture
asks for it.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from pytest_intercode.plugin.fixtures import (
    intercode_agent,
    intercode_environment,
    intercode_episode,
    intercode_task,
)
from pytest_intercode.plugin.options import add_options, given

__all__ = ["intercode_agent", "intercode_environment", "intercode_episode", "intercode_task"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, each with its ini value."""
    add_options(parser)
    parser.addini(
        "intercode_suites",
        "Glob patterns of suite files to collect, besides those named on the command line",
        type="args",
        default=[],
    )


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the hooks that users may implement."""
    from pytest_intercode.plugin import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and start a run if the command line asks for one."""
    config.addinivalue_line(
        "markers",
        "intercode(env, suite, dataset, hardness, tags, ids): on an item, its task; on a test "
        "function that takes an intercode fixture, the tasks that it is run with.",
    )
    if not hasattr(config, "workerinput"):  # a worker's reports go to its controller
        config.pluginmanager.register(_Listener(config), "intercode-listener")
    patterns = config.getini("intercode_suites")
    if patterns:
        from pytest_intercode.plugin.arguments import add_suite_files

        add_suite_files(config, patterns)
    named = [*config.args, *config.getini("testpaths")]
    asked = given(config) or any("intercode/" in arg or _is_suite(arg) for arg in named)
    if not asked:
        return
    from pytest_intercode.core.text import harmless
    from pytest_intercode.errors import ConfigurationError
    from pytest_intercode.plugin.startup import start

    try:
        start(config)
    except ConfigurationError as error:
        raise pytest.UsageError(harmless(str(error))) from None


def _is_suite(argument: str) -> bool:
    return argument.split("::")[0].endswith((".yaml", ".yml"))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a suite file that is named on the command line or matches ``intercode_suites``."""
    if not _is_suite(file_path.name):
        return None
    patterns = parent.config.getini("intercode_suites")
    if not parent.session.isinitpath(file_path) and not any(map(file_path.match, patterns)):
        return None
    from pytest_intercode.plugin.collection import Suite

    return Suite.of_file(parent, file_path)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize whatever takes a task."""
    if "intercode_task" in metafunc.fixturenames:
        from pytest_intercode.plugin.collection import parametrize

        parametrize(metafunc)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put an episode's outcome on its report."""
    report = yield
    if "intercode_task" in getattr(item, "fixturenames", ()):
        from pytest_intercode.plugin.reports import complete

        complete(report, item, call)
    return report


class _Listener:
    """Waits for the first report of an episode; only then is the reporter imported.

    Under xdist the controller collects nothing, so reports are the first it hears of us.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hand an episode's report on, once others have seen it: its line is taken off."""
        if hasattr(report, "intercode") or hasattr(report, "intercode_missing_image"):
            from pytest_intercode.core.text import harmless
            from pytest_intercode.errors import ConfigurationError
            from pytest_intercode.plugin.reporter import reporter_of

            try:
                reporter = reporter_of(self.config)
                reporter.note_missing_image(report)
                if hasattr(report, "intercode"):
                    reporter.take(report)
            except ConfigurationError as error:
                pytest.exit(harmless(str(error)), returncode=pytest.ExitCode.USAGE_ERROR)
