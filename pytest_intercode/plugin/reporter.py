"""The reporter: writes results as episodes end, and tables and other files at the run's end."""

from __future__ import annotations

import os
import shlex
import tempfile
import threading
from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.text import first_names, one_line, pluralize
from pytest_intercode.errors import ConfigurationError, TruncatedResultsWarning
from pytest_intercode.plugin.masking import key_masks_of
from pytest_intercode.plugin.reports import detach_episodes, without_keys
from pytest_intercode.plugin.run import task_of
from pytest_intercode.plugin.settings import Settings
from pytest_intercode.plugin.summary import (
    Ending,
    conclude_run,
    name_run,
    warn_of_limits,
    write_page,
    write_statistics,
    write_step_summary,
)
from pytest_intercode.results.cells import by_cell
from pytest_intercode.results.files import ResultsFile
from pytest_intercode.results.format import from_line, to_line, with_item
from pytest_intercode.results.predictions import prediction_line
from pytest_intercode.results.tables import detailed_table, table
from pytest_intercode.results.tries import counted_tries

if TYPE_CHECKING:
    from pytest_intercode.plugin.gate import Gate
    from pytest_intercode.plugin.otel import SpanSender

__all__ = ["Reporter", "reporter_of"]

_KEY = pytest.StashKey["Reporter"]()


def reporter_of(config: pytest.Config) -> Reporter:
    """Return the run's reporter, making it the first time."""
    reporter = config.stash.get(_KEY, None)
    if reporter is None:
        reporter = config.stash[_KEY] = Reporter(config)
        config.pluginmanager.register(reporter, "intercode-reporter")
    return reporter


class Reporter:
    """Collects the episodes of a run where pytest reports them: here, or on xdist's controller."""

    def __init__(self, config: pytest.Config) -> None:
        settings = self._settings = Settings.of(config)
        self._config = config
        # A page needs the trajectories, which are too large to keep in memory.
        self._spool = _make_spool() if settings.html and not settings.results else None
        path = settings.results or self._spool
        self._file = ResultsFile(path, resume=settings.resume) if path else None
        for line in self._file.notes if self._file else ():
            config.issue_config_time_warning(TruncatedResultsWarning(line), stacklevel=2)
        self._shown_notes = len(self._file.notes) if self._file else 0
        path, option = settings.predictions, "--intercode-predictions"
        self._predictions = ResultsFile(path, option=option) if path else None
        self._spans = _make_sender(settings)
        self._episodes: dict[tuple[str, int], EpisodeRecord] = {}  # by item, and number in it
        self._early: set[str] = set()
        self._items: dict[str, int] = {}
        self._shard = settings.shard_record(None)
        self._masks = key_masks_of(config)
        self._lock = threading.Lock()
        self._unwritable = ""  # the problem of a report that pytest could not write
        self._unreported = self._ended = self._reused = 0
        self._not_played: dict[str, set[str]] = {}  # items, by the image that is missing
        self._ran_again: dict[str, set[str]] = {}  # items, by the reason
        self._ending = Ending()
        config.pluginmanager.register(self._ending)
        self._interrupted = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the order of the items, because concurrent episodes end in another order."""
        self._items = {item.nodeid: place for place, item in enumerate(session.items)}
        if self._items:
            episodes = sum(task_of(item) is not None for item in session.items)
            self._shard = self._settings.shard_record(episodes)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Note the order of the items where xdist's workers collect them."""
        self._items = self._items or {node_id: place for place, node_id in enumerate(ids)}

    def tries(self) -> list[EpisodeRecord]:
        """Return the tries that were reported so far, without trajectories."""
        return counted_tries(self._episodes.values())

    def note_missing_image(self, report: pytest.TestReport) -> None:
        """Note an item that was not played because its image is missing."""
        image = vars(report).get("intercode_missing_image")
        if image:
            self._not_played.setdefault(str(image), set()).add(report.nodeid)

    def take(self, report: pytest.TestReport) -> None:
        """Write the reported episodes; if an item is rerun, only its last try counts."""
        if hasattr(report, "intercode_ran_again"):
            reason = str(report.intercode_ran_again)
            self._ran_again.setdefault(reason, set()).add(report.nodeid)
        for index, (record, line) in enumerate(detach_episodes(report)):
            if str(report.outcome) == "rerun":
                record = replace(record, superseded=True)
                line = to_line(record)
            if hasattr(report, "intercode_resumed"):
                self._reused += 1
                self._predict(record)
                self._count(record, reused=True)
            else:
                self._write(record, line)
                if not record.superseded:
                    self._count(record)
            self._episodes[report.nodeid, index] = record.for_statistics()

    def _count(self, record: EpisodeRecord, *, reused: bool = False) -> None:
        progress: Any = self._config.pluginmanager.get_plugin("intercode-progress")
        if progress is not None:
            progress.note(record, reused=reused)

    def write_early(self, record: EpisodeRecord) -> None:
        """Write a concurrent episode as soon as it is over; may be called from any thread.

        Args:
            record: the episode, with the node id of its item.
        """
        line = to_line(record)
        with self._lock:
            self._append(record, line)
            self._early.add(record.node_id)

    def take_unreported(self, records: Iterable[EpisodeRecord], ended: int) -> None:
        """Take the concurrent episodes whose items had no turn before the run ended.

        Args:
            records: those that were over; after Ctrl-C, one of them may have been reported.
            ended: how many were running, and have no result.
        """
        for record in records:
            if (record.node_id, 0) not in self._episodes:
                self._write(record, to_line(record))
                self._unreported += 1
        self._ended += ended

    def _write(self, record: EpisodeRecord, line: str) -> None:
        with self._lock:
            if record.node_id in self._early:
                self._early.discard(record.node_id)  # a second try has its own record
            else:
                self._append(record, line)

    def _append(self, record: EpisodeRecord, line: str) -> None:
        """Write a line; end the run if this fails, as its further work would be lost."""
        self._predict(record)
        if self._spans is not None:
            name = record.run_name or self._settings.run_name or ""
            self._spans.send(replace(without_keys(record, self._masks), run_name=name))
        if self._file is None:
            return
        item = self._items.get(record.node_id) if record.item is None else None
        shard = None if record.shard else self._shard
        name = "" if record.run_name else self._settings.run_name or ""
        self._file.write(self._masks.line(with_item(line, item, shard, name)))
        if self._file.problem and self._settings.results is not None:
            for name in ("session", "dsession"):  # xdist's session has its own shouldstop
                running: Any = self._config.pluginmanager.get_plugin(name)
                if running is not None and not running.shouldstop:
                    running.shouldstop = self._problem()

    def _predict(self, record: EpisodeRecord) -> None:
        predicted = prediction_line(record) if self._predictions is not None else None
        if self._predictions is not None and predicted is not None:
            self._predictions.write(self._masks.line(predicted))

    def _problem(self) -> str:
        """Return one line that says why results cannot be written, and what is safe."""
        file = self._file
        assert file is not None
        reused = self._reused if self._settings.resume else 0
        safe = 0 if file.lost else file.written + reused
        verb = "is" if file.unwritten == 1 else "are"
        return one_line(
            f"--intercode-results={file.path}: cannot be written: {file.problem}; "
            f"{pluralize(safe, 'row')} {'is' if safe == 1 else 'are'} safe in it, "
            f"{pluralize(file.unwritten, 'episode')} {verb} not; fix this, and run the missing "
            "ones with --intercode-resume"
        )

    # -- the end

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        """Lose only the report if one of pytest's own (JUnit) cannot be written."""
        try:
            return (yield)
        except OSError as error:
            self._unwritable = f"a report of this run could not be written: {error}"
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the tables, and write the files about the whole run."""
        self._print_unreported(terminalreporter)
        self._print_problems(terminalreporter)
        tries = self.tries()
        if not tries:
            return
        terminalreporter.section("intercode")
        for line in table(tries):
            terminalreporter.write_line(line)
        if any(record.task.repeat > 1 for record in tries) or self._config.get_verbosity() > 0:
            terminalreporter.write_line("")
            for line in detailed_table(tries):
                terminalreporter.write_line(line)
        warn_of_limits(terminalreporter, self._settings, tries)
        if self._reused:
            reused = pluralize(self._reused, "episode")
            terminalreporter.write_line(f"{reused} reused from the resumed run")
        for reason, items in self._ran_again.items():
            line = f"{pluralize(len(items), 'test')} of the resumed run ran again: {reason}"
            terminalreporter.write_line(one_line(line))
        if (file := self._file) is not None and self._settings.results is not None:
            write_statistics(terminalreporter, tries, file.path)
            rows = file.written + (self._reused if self._settings.resume else 0)
            terminalreporter.write_line(one_line(f"{pluralize(rows, 'episode')} in {file.path}"))
        write_step_summary(terminalreporter, self._name_run(tries), tries, self._gate())
        self._write_page(terminalreporter, tries)

    def _print_problems(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._not_played:
            line = _describe_missing_images(self._not_played)
            terminalreporter.write_line(one_line(line), red=True)
        if self._unwritable:
            terminalreporter.write_line(one_line(self._unwritable), red=True)
        if self._spans is not None and (line := self._spans.close()):
            terminalreporter.write_line(line, red=True)
        if self._predictions is not None:
            self._predictions.retry()
            self._print_notes(terminalreporter, self._predictions.notes)
            if self._predictions.problem:
                path, problem = self._predictions.path, self._predictions.problem
                line = f"--intercode-predictions={path}: cannot be written: {problem}"
                terminalreporter.write_line(one_line(line), red=True)
        if self._file is None:
            return
        if self._file.unwritten:
            self._file.retry()
        self._print_notes(terminalreporter, self._file.notes[self._shown_notes :])
        if self._file.untouched and not self._file.problem:
            terminalreporter.write_line(
                one_line(f"{self._file.path}: left unchanged, as no episode has ended"), yellow=True
            )
        if self._file.problem:
            terminalreporter.write_line(self._problem(), red=True)

    @staticmethod
    def _print_notes(terminalreporter: pytest.TerminalReporter, notes: Iterable[str]) -> None:
        for line in notes:
            terminalreporter.write_line(one_line(line), yellow=True)

    def _print_unreported(self, terminalreporter: pytest.TerminalReporter) -> None:
        sentences = []
        if self._unreported:
            location = f", with results in {self._file.path}" if self._file is not None else ""
            sentences.append(
                f"{pluralize(self._unreported, 'episode')} had ended without being reported"
                f"{location}"
            )
        if self._ended:
            verb = "were" if self._ended != 1 else "was"
            sentences.append(
                f"{pluralize(self._ended, 'episode')} {verb} running and ended without a result"
            )
        if sentences:
            terminalreporter.write_line(f"intercode: {'; '.join(sentences)}")

    def _write_page(
        self, terminalreporter: pytest.TerminalReporter, tries: list[EpisodeRecord]
    ) -> None:
        target = self._settings.html
        if target is None or self._file is None:
            return
        if self._file.unwritten and self._spool is not None:
            terminalreporter.write_line(
                f"--intercode-html={target}: not written, as the episodes that it shows could not "
                f"be kept in {self._spool.parent}: {self._file.problem}",
                red=True,
            )
            return
        name = self._name_run(tries)
        gate, path = self._gate(), self._file.path
        conclusion = conclude_run(tries, gate, self._ending)
        if write_page(terminalreporter, self._settings, path, name, gate, conclusion):
            return
        if self._spool is not None:  # the only results of the run
            line = f"its episodes are kept: pytest-intercode view {self._spool} -o FILE.html"
            terminalreporter.write_line(one_line(line), red=True)
            self._spool = None

    def _gate(self) -> Gate | None:
        gate: Gate | None = self._config.pluginmanager.get_plugin("intercode-gate")
        return gate

    def _name_run(self, tries: Iterable[EpisodeRecord]) -> str:
        """Return the name of the run."""
        tries = list(tries)
        agents = list(dict.fromkeys(cell.agent_label for cell in by_cell(tries)))
        if len(agents) < 2:
            agents = [agent.name for agent in self._settings.agents]
        suites = (record.task.suite for record in tries)
        return self._settings.run_name or name_run(agents, suites)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take the concurrent episodes that an xdist worker has not reported."""
        unreported = getattr(node, "workeroutput", {}).get("intercode_unreported")
        if unreported:
            self.take_unreported(map(from_line, unreported["lines"]), unreported["ended"])

    def pytest_keyboard_interrupt(self) -> None:
        """Note that the run was interrupted, so that it can be resumed."""
        self._interrupted = True

    def _print_command(self) -> None:
        """Print the command that resumes an interrupted run from its results."""
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        file = self._file
        if reporter is None or file is None or self._settings.results is None:
            return
        if not self._interrupted or file.untouched or not (file.written or self._reused):
            return
        words = [str(word) for word in self._config.invocation_params.args]
        if not self._settings.resume:
            words.append("--intercode-resume")
        command = self._masks.text(shlex.join(["pytest", *words]))
        reporter.write_line(one_line(f"intercode: to continue this run: {command}"))

    def pytest_unconfigure(self) -> None:
        """Close the files, and the sender of spans if there was no summary."""
        self._print_command()
        for output in (self._file, self._predictions, self._spans):
            if output is not None:
                output.close()
        if self._spool is not None:
            self._spool.unlink(missing_ok=True)


def _make_spool() -> Path:
    try:
        handle, name = tempfile.mkstemp(prefix="pytest-intercode-", suffix=".jsonl")
    except OSError as error:
        raise ConfigurationError(
            f"--intercode-html: the episodes cannot be kept in a temporary file: {error.strerror}; "
            "set TMPDIR, or give --intercode-results"
        ) from None
    os.close(handle)
    return Path(name)


def _make_sender(settings: Settings) -> SpanSender | None:
    """Return the sender of spans, whose packages are imported now; None without the option."""
    if settings.otel is None:
        return None
    from pytest_intercode.plugin.otel import SpanSender

    return SpanSender(settings.otel, content=settings.otel_content)


def _describe_missing_images(items: Mapping[str, Collection[str]]) -> str:
    """Return the line about items that were not played.

    Args:
        items: the node ids of items that need an image, by the name of the image.
    """
    number = len(set[str]().union(*items.values()))
    label, verb = ("image", "is") if len(items) == 1 else ("images", "are")
    tasks = f"{pluralize(number, 'task')} {'was' if number == 1 else 'were'} not run"
    hint = "pytest-intercode images says why"
    return f"intercode: {label} {first_names(items)} {verb} missing: {tasks}; {hint}"
