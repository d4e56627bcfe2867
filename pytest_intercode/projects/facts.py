"""Whether project tests can run here, for ``pytest-intercode doctor``. Runs and writes nothing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

from pytest_intercode.agents.choice import AgentChoice
from pytest_intercode.agents.installed.facts import find_key
from pytest_intercode.agents.loader import uses_gateway
from pytest_intercode.core.facts import Fact
from pytest_intercode.core.text import pluralize
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.gateway.vendors import VENDORS
from pytest_intercode.projects.copying import TEST_MARK, measure_project
from pytest_intercode.projects.recordings import FOLDER, RecordMode, find_recordings, load_recording
from pytest_intercode.system.files import read_bounded

__all__ = ["ProjectTests", "describe_project", "describe_replays", "find_project_tests"]

_MAX_MODULE = 4 * 2**20  # bytes that are read of a module
_MAX_FILES = 100_000  # files of the folders that are searched
_MAX_DAMAGED = 5  # damaged recordings that get a line each


@dataclass(frozen=True)
class ProjectTests:
    """The project tests that pytest would collect.

    Attributes:
        modules: their files.
        recordings: files of recordings next to them.
        needs_project: whether a module does not name a ``project=``, so that the project itself is
            copied.
    """

    modules: tuple[Path, ...] = ()
    recordings: tuple[Path, ...] = ()
    needs_project: bool = False

    def __bool__(self) -> bool:
        return bool(self.modules or self.recordings)


def find_project_tests(
    places: Sequence[Path], patterns: Sequence[str], skipped: Sequence[str]
) -> ProjectTests:
    """Return the project tests in files and folders; nothing is imported.

    Args:
        places: the files and folders; a file is read whatever its name is.
        patterns: patterns of the names of test files.
        skipped: patterns of the names of folders that are not entered.
    """
    modules, texts = [], []
    recordings: set[Path] = set()
    for path in _list_files(places, patterns, skipped):
        if path.name == FOLDER:
            recordings.update(find_recordings(path))
            continue
        try:
            text = read_bounded(path, _MAX_MODULE) or b""
        except OSError:  # pytest itself reports it
            continue
        if TEST_MARK in text:
            modules.append(path)
            texts.append(text)
            recordings.update(find_recordings(path.parent / FOLDER))
    return ProjectTests(
        tuple(modules),
        tuple(sorted(recordings)),
        any(b"project=" not in text for text in texts),
    )


def _list_files(
    places: Sequence[Path], patterns: Sequence[str], skipped: Sequence[str]
) -> Iterator[Path]:
    """Yield test files, and folders of recordings."""
    remaining = _MAX_FILES
    for place in dict.fromkeys(places):
        if place.is_file() and place.suffix == ".py":
            yield place
        for name, folders, files in os.walk(place):
            folder = Path(name)
            if FOLDER in folders:
                yield folder / FOLDER
            folders[:] = [
                inner
                for inner in sorted(folders)
                if inner != FOLDER
                and not any(fnmatch(inner, pattern) for pattern in skipped)
                and not (folder / inner / "pyvenv.cfg").exists()
            ]
            remaining -= len(files)
            if remaining < 0:
                return
            for file in sorted(files):
                if file.endswith(".py") and any(fnmatch(file, pattern) for pattern in patterns):
                    yield folder / file


def describe_project(tests: ProjectTests, root: Path, hidden: Sequence[Path]) -> Iterator[Fact]:
    """Yield facts about the tests, and about the copy of the project that agents would get.

    Args:
        tests: the tests.
        root: the project's folder.
        hidden: files that are hidden from agents.
    """
    folders = {path.parent for path in tests.modules}
    names = sorted(os.path.relpath(folder, root) for folder in folders)
    text = f"{pluralize(len(tests.modules), 'file')} in {', '.join(names[:3])}"
    text += f" and {pluralize(len(names) - 3, 'more folder')}" if len(names) > 3 else ""
    if tests.modules:
        verb = "asks" if len(tests.modules) == 1 else "ask"
        yield Fact("project tests", f"{text} {verb} for intercode_project")
    else:
        text = "recordings, and no test file here that asks for intercode_project"
        yield Fact("project tests", text, "note")
    try:
        count, size = measure_project(root, hidden)
    except ConfigurationError as error:
        yield Fact("project copy", str(error), "problem").where(needed=tests.needs_project)
    else:
        text = f"agents get {pluralize(count, 'file')} of {root}, {size / 2**20:.1f} MiB"
        yield Fact("project copy", f"{text}, as git lists them")


def describe_replays(
    tests: ProjectTests,
    agents: Sequence[AgentChoice],
    gateway: GatewaySettings,
    mode: RecordMode,
    folder: Path,
) -> Iterator[Fact]:
    """Yield facts about the recordings, and about what each agent can do with them.

    Args:
        tests: the tests.
        agents: the agents of the run.
        gateway: how models are reached.
        mode: ``--intercode-record``.
        folder: where relative paths of agents start.
    """
    counts: Counter[str] = Counter()
    damaged = []
    for path in tests.recordings:
        try:
            counts[load_recording(path).head.agent] += 1
        except (ConfigurationError, FileNotFoundError) as error:
            damaged.append(str(error))
    if counts:
        folders = {path.parent.parent for path in tests.recordings}
        text = f"{pluralize(counts.total(), 'item')} in {pluralize(len(folders), 'folder')}"
        yield Fact("recordings", f"{text} can be read")
    for message in damaged[:_MAX_DAMAGED]:
        remedy = "look at it, delete it, and record it again with --intercode-record=missing"
        yield Fact("recordings", f"{message}: {remedy}", "problem")
    if len(damaged) > _MAX_DAMAGED:
        text = f"{pluralize(len(damaged) - _MAX_DAMAGED, 'more file')} cannot be read"
        yield Fact("recordings", text, "problem")
    for agent in agents:
        if tests.modules and uses_gateway(agent.name, gateway):
            fact = _describe_agent(counts[agent.name], find_key(agent.name, folder), gateway, mode)
            yield replace(fact, text=f"{agent.label}: {fact.text}")


def _describe_agent(count: int, key: str, gateway: GatewaySettings, mode: RecordMode) -> Fact:
    """Return what answers an agent: recordings, models, or nothing.

    Args:
        count: the number of its recordings.
        key: the variable of its key; empty if its recipe names none.
        gateway: how models are reached.
        mode: ``--intercode-record``.
    """
    recordings = pluralize(count, "recording") if count else "no recording"
    if mode == "none":
        if count:
            return Fact("replays", f"{recordings}, and no model is called")
        remedy = "record its tests with --intercode-record=missing"
        text = f"{recordings}, and --intercode-record=none does not allow model calls: {remedy}"
        return Fact("replays", text, "problem")
    vendor = next((name for name in VENDORS if key in VENDORS[name].key_variables), "")
    if gateway.reaches_models:
        text = f"{recordings}, and models can be called"
        if vendor and vendor not in gateway.configured:
            vendors = ", ".join(gateway.configured)
            return Fact("replays", f"{text}, but only those of {vendors}: {key} is not set", "note")
        return Fact("replays", text)
    keys = key if vendor else "OPENAI_API_KEY, ANTHROPIC_API_KEY"
    remedy = f"set {keys} or the address of a server (OPENAI_BASE_URL, ANTHROPIC_BASE_URL)"
    if count and mode != "all":
        return Fact("replays", f"{recordings}; for other tests {remedy}", "note")
    return Fact("replays", f"{recordings}, and no model can be reached: {remedy}", "problem")
