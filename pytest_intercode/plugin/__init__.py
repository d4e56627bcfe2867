"""The entry point: options, ini values, markers and registration; no logic.

Imported by every pytest run of whoever has the plugin installed, so it imports nothing but pytest
and reads nothing. The rest is imported when an option, a suite file or a fixture asks for it.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Literal

import pytest

from pytest_intercode.plugin.fixtures import (
    intercode_agent,
    intercode_environment,
    intercode_episode,
    intercode_task,
)

__all__ = ["intercode_agent", "intercode_environment", "intercode_episode", "intercode_task"]

# name, metavar, repeatable, help
_OPTIONS: tuple[tuple[str, str, bool, str], ...] = (
    (
        "agent",
        "AGENT",
        False,
        "Agent under test: module:Attr, path/to/file.py:Attr, command:CMDLINE (any language), "
        "mcp:CMDLINE (a coding agent that speaks MCP), single-turn, try-again, react, plan-solve "
        "or tools (a model behind an OpenAI-compatible API), human, oracle (plays gold), or "
        "replay:FILE (plays a recorded run)",
    ),
    ("agent-arg", "KEY=VALUE", True, "Argument for the agent, such as model=NAME (repeatable)"),
    (
        "env",
        "ENV",
        True,
        "Bundled suites to run: bash, sql, python, ctf or all, or an environment of your own "
        "(repeatable, comma-separated)",
    ),
    (
        "dataset",
        "NAME|PATH",
        True,
        "Dataset to run: a name such as nl2bash, a suite (.yaml), or "
        "rows (.json, .jsonl, .csv, .tsv) with --intercode-env",
    ),
    (
        "data",
        "DIR",
        False,
        "Folder laid out as InterCode's data/ (default: $INTERCODE_DATA, else what "
        "`pytest-intercode fetch` got)",
    ),
    (
        "profile",
        "PROFILE",
        False,
        "strict (default) or paper (InterCode's execution and rewards, defects included)",
    ),
    ("max-turns", "N", False, "Actions an episode has (default: each task's own number)"),
    ("timeout", "SECONDS", False, "Seconds an episode has (default: 600)"),
    ("action-timeout", "SECONDS", False, "Seconds an action has (default: each task's own)"),
    (
        "feedback",
        "KIND",
        False,
        "observation (default; reward for try-again), or reward: grade after every action, show "
        "the agent the reward and stop at 1.0 (InterCode's Try Again)",
    ),
    ("max-tokens", "N", False, "Tokens an episode has, as far as the agent reports them"),
    ("max-cost", "AMOUNT", False, "Money an episode has, in the currency of the agent's prices"),
    ("run-max-turns", "N", False, "Actions that all episodes of the run have together"),
    ("run-max-tokens", "N", False, "Tokens that all episodes of the run have together"),
    ("run-max-cost", "AMOUNT", False, "Money that all episodes of the run have together"),
    ("run-timeout", "SECONDS", False, "Seconds that the whole run has"),
    (
        "concurrency",
        "N",
        False,
        "Episodes that run at a time, ahead of pytest's order; xdist's workers share them out "
        "(default: 1)",
    ),
    ("limit", "N", False, "Only the first N tasks of each suite, for a quick look"),
    (
        "shard",
        "I/N",
        False,
        "Only the I-th of N parts of each suite, such as 2/8: every N-th task from the I-th on",
    ),
    (
        "repeat",
        "K",
        False,
        "Tries at each task, each with a fresh agent and sandbox: items [task-1] to [task-K]",
    ),
    ("results", "FILE.jsonl", False, "Write one line of JSON for each episode, as episodes end"),
    (
        "baseline",
        "FILE.jsonl",
        False,
        "Results to compare with: tasks that were not always solved there may fail (xfail), and "
        "the end says whether the agent got worse",
    ),
    (
        "gate",
        "KIND",
        False,
        "What of the comparison with the baseline fails the run: tasks (each item that fails; the "
        "default with one try at each), or verdict (that of the paired test; with several)",
    ),
    (
        "fail-under",
        "RATE",
        False,
        "Have the run fail when fewer of the tries are solved, such as 0.8, and not when a task is "
        "not solved; lower:RATE goes by the lower bound of the rate's 95-percent interval",
    ),
    ("html", "FILE.html", False, "Write a page to look at: one file, with every trajectory"),
    (
        "sandbox",
        "BACKEND",
        False,
        "auto (default: docker if its engine answers, else bubblewrap), docker or bubblewrap",
    ),
    (
        "rootfs",
        "DIR",
        False,
        "Unpacked root file system for bubblewrap, or a folder with one for each image "
        "(default: this machine's own programs)",
    ),
    (
        "base-image",
        "NAME=REPLACEMENT",
        True,
        "Use another base image in place of NAME (repeatable)",
    ),
)


_FLAGS = (
    ("network", "Let sandboxes reach the network (default: none at all)"),
    (
        "resume",
        "Go on with the run that --intercode-results holds: what has its result there is not run "
        "again",
    ),
    ("audit", "Audit the tasks in place of running an agent on them"),
)

# They have to be known before the first report, or the first item.
_AT_THE_END = ("baseline", "fail_under", "html", "resume", "audit")

# xdist's controller, which collects nothing, keeps these for all workers.
_OF_THE_RUN = ("run_max_turns", "run_max_tokens", "run_max_cost", "run_timeout")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, each with its ini twin."""
    group = parser.getgroup("intercode", "tests of coding agents")
    for name, metavar, repeatable, text in _OPTIONS:
        destination = "intercode_" + name.replace("-", "_")
        group.addoption(
            f"--intercode-{name}",
            dest=destination,
            metavar=metavar,
            action="append" if repeatable else "store",
            default=None,
            help=text,
        )
        kind: Literal["args", "string"] = "args" if repeatable else "string"
        parser.addini(destination, text, type=kind, default=None)
    for name, text in _FLAGS:
        destination = f"intercode_{name}"
        group.addoption(
            f"--intercode-{name}", dest=destination, action="store_true", default=None, help=text
        )
        parser.addini(destination, text, type="string", default=None)
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
    """Register the marker, and the session if the command line asks for one."""
    config.addinivalue_line(
        "markers",
        "intercode(env, suite, dataset, hardness, tags, ids): on an item, its task; on a test "
        "function that takes an intercode fixture, the tasks that it is run with.",
    )
    if not hasattr(config, "workerinput"):  # a worker's reports are told to its controller
        config.pluginmanager.register(_Listener(config), "intercode-listener")
    asked = (
        any(config.getoption(f"intercode_{name}") for name in _names())
        or config.getini("intercode_env")
        or config.getini("intercode_dataset")
        or any(config.getini(f"intercode_{name}") for name in (*_OF_THE_RUN, *_AT_THE_END))
        or any("intercode/" in arg or _is_suite(arg) for arg in config.args)
    )
    if not asked:
        return
    from pytest_intercode.errors import ConfigurationError
    from pytest_intercode.plugin.collection import BundledFirst, BundledSuites
    from pytest_intercode.plugin.session import session_of

    try:
        session = session_of(config)
        session.take_arguments()
        config.pluginmanager.register(BundledSuites(session), "intercode-bundled")
        config.pluginmanager.register(BundledFirst(), "intercode-bundled-first")
    except ConfigurationError as error:
        raise pytest.UsageError(str(error)) from None


def _is_suite(argument: str) -> bool:
    return argument.split("::")[0].endswith((".yaml", ".yml"))


def _names() -> list[str]:
    return [*(name.replace("-", "_") for name, *_ in _OPTIONS), *(name for name, _ in _FLAGS)]


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

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hand an episode's report on."""
        if hasattr(report, "intercode"):
            from pytest_intercode.errors import ConfigurationError
            from pytest_intercode.plugin.reporter import reporter_of

            try:
                reporter_of(self.config).take(report)
            except ConfigurationError as error:
                pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)
