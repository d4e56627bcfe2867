"""The output of rollouts, kept until their turns or escaped; and the line that shows progress.

pytest replaces the streams in each phase, so this module replaces ``write`` on the current streams:
what a rollout's threads write goes to the rollout's store, and everything else goes where it went
before. Only writes that bypass Python (a child's, on file descriptor 1) cannot be assigned to a
rollout; they are captured with the item whose turn it is. With ``-s`` nothing is captured, and what
agents print is escaped before it is written.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from typing import IO, Any

import pytest

from pytest_intercode.core.text import escape_for_terminal, one_line
from pytest_intercode.rollouts.isolation import owner, owning
from pytest_intercode.rollouts.output import CapturedOutput, CapturingHandler, current_output

__all__ = ["EscapedStreams", "LiveLine", "PlainLines", "Router", "replay"]

_MAX_BEGINNING = 200  # characters; the beginning of a CI server's command is never longer
_REPLAY = object()  # owns what an item prints on behalf of its rollout


def replay(output: CapturedOutput, phase: str, *, last: bool = False) -> None:
    """Print and log kept output in the calling thread; in setup, only the output of setup.

    Args:
        output: what a rollout has printed.
        phase: the phase that pytest is in.
        last: keep nothing from now on.
    """
    entries = output.take(phase, last=last)
    with owning(_REPLAY):
        for _, stream, value in entries:
            if isinstance(value, str):
                getattr(sys, stream).write(value)
                continue
            for handler in _pytest_handlers():
                if value.levelno >= handler.level:
                    handler.handle(value)


class EscapedStreams:
    """Escapes what agents print where pytest captures nothing (``-s``); also a pytest plugin.

    Only what other threads print is escaped, as pytest and the tests print on the main thread.
    Output that bypasses Python's streams, such as that of a child process, cannot be escaped.
    """

    def __init__(self) -> None:
        self._streams: list[Any] = []
        self._lent = False
        self._lock = threading.RLock()  # garbage collection may call a writer while it is held
        self._line = ""  # the unfinished line; one for both streams, as they go to one log
        for name in ("stdout", "stderr"):
            self._escape(getattr(sys, name))

    def _escape(self, stream: Any) -> None:
        if stream is None or "write" in getattr(stream, "__dict__", {}):
            return  # there is no stream, or another plugin has replaced its write
        write = stream.write

        def write_escaped(text: str) -> int:
            on_main_thread = threading.current_thread() is threading.main_thread()
            with self._lock:
                escaped = text
                if not self._lent and (not on_main_thread or owner() is _REPLAY):
                    beginning = escape_for_terminal(self._line)
                    # Other programs write too, so each piece may begin a line on the terminal.
                    escaped = escape_for_terminal(
                        escape_for_terminal(self._line + text)[len(beginning) :]
                    )
                self._line = (self._line + text).rpartition("\n")[2][-_MAX_BEGINNING:]
                write(escaped)
            return len(text)

        try:
            stream.write = write_escaped
        except AttributeError:  # the stream does not allow it
            return
        self._streams.append(stream)

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Let everything through while an agent draws on the user's terminal."""
        self._lent = True
        try:
            yield
        finally:
            self._lent = False

    def pytest_unconfigure(self) -> None:
        """Restore the streams."""
        self._lent = True  # another plugin may have wrapped our write, and still call it
        for stream in self._streams:
            vars(stream).pop("write", None)


class Router:
    """Sends what episodes print and log to their own stores; also a pytest plugin.

    pytest installs new streams for each phase of an item, so they are routed in each phase.

    Attributes:
        phase: the phase that pytest is in; empty before the first one.
    """

    def __init__(self) -> None:
        self.phase = ""
        self._streams: list[Any] = []
        self._before: dict[int, Any] = {}
        self._handlers: list[logging.Handler] = []
        self._all = CapturingHandler()
        self._filter = _NotConcurrent()

    def route(self) -> None:
        """Route the current streams and handlers."""
        logging.getLogger().addHandler(self._all)  # once, however often this is called
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            # Forget the streams of past phases, which are closed: every item adds some.
            self._streams = [routed for routed in self._streams if not routed.closed]
            if stream is not None and not any(stream is routed for routed in self._streams):
                self._replace(name, stream)
        for handler in _pytest_handlers():
            if handler not in self._handlers:
                handler.addFilter(self._filter)
                self._handlers.append(handler)

    def _replace(self, name: Any, stream: Any) -> None:
        write = stream.write
        if "write" in getattr(stream, "__dict__", {}):
            self._before[id(stream)] = write

        def write_routed(text: str) -> int:
            output = current_output()
            return int(write(text)) if output is None else output.write(name, text)

        try:
            stream.write = write_routed
        except AttributeError:  # another plugin's stream, which does not allow it
            return
        self._streams.append(stream)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Route the streams of a run, while pytest captures nothing."""
        self.route()
        return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_setup(self) -> Generator[None]:
        """Route the streams of the setup."""
        yield from self._enter("setup")

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self) -> Generator[None]:
        """Route the streams of the call."""
        yield from self._enter("call")

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_teardown(self) -> Generator[None]:
        """Route the streams of the teardown."""
        yield from self._enter("teardown")

    def _enter(self, phase: str) -> Iterator[None]:
        self.phase = phase
        self.route()
        yield

    def pytest_unconfigure(self) -> None:
        """Restore streams and handlers.

        Not earlier, because an agent that cannot be ended may print until then.
        """
        for stream in self._streams:
            vars(stream).pop("write", None)
            if id(stream) in self._before:  # another plugin had replaced write before
                stream.write = self._before[id(stream)]
        for handler in self._handlers:
            handler.removeFilter(self._filter)
        logging.getLogger().removeHandler(self._all)


class _NotConcurrent(logging.Filter):
    """Keeps log records of other rollouts away from the handlers of the current item."""

    def filter(self, record: logging.LogRecord) -> bool:
        return current_output() is None


def _pytest_handlers() -> list[logging.Handler]:
    """Return the handlers that pytest has added to the root logger for the current item."""
    handlers = logging.getLogger().handlers
    return [h for h in handlers if type(h).__module__.startswith("_pytest.")]


class LiveLine:
    """One line that shows what runs while pytest waits; nothing without a terminal, or with ``-s``.

    It is shown below pytest's output, and only while pytest waits, so it never collides with what
    pytest writes. It has its own descriptor, which bypasses pytest's capturing.
    """

    def __init__(self) -> None:
        self._file: IO[str] | None = None
        self._writer: Any = None  # pytest's
        self._shown = ""
        self._lock = threading.RLock()

    def open(self, config: pytest.Config) -> None:
        """Open the terminal, if there is one; called while pytest captures nothing."""
        reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        visible = reporter is not None and reporter.isatty and config.get_verbosity() >= -1
        if not visible or config.getoption("capture", "no") == "no" or sys.__stdout__ is None:
            return
        self._writer = reporter._tw  # it knows the column
        with contextlib.suppress(OSError, ValueError):
            self._file = os.fdopen(os.dup(sys.__stdout__.fileno()), "w", encoding="utf-8")

    @property
    def usable(self) -> bool:
        """Whether a line can be shown."""
        return self._file is not None

    def show(self, text: str, allowed: Callable[[], bool] = lambda: True) -> None:
        """Show a text in place of what is there; any thread may do so.

        Args:
            text: the text.
            allowed: checked last, when no other thread can clear the line any more.
        """
        with self._lock:
            if self._file is None or text == self._shown or not allowed():
                return
            self._draw(one_line(text)[: self._columns() - 1])
            self._shown = text

    def clear(self) -> None:
        """Clear the line."""
        with self._lock:
            if self._file is not None and self._shown:
                self._draw("")
                self._shown = ""

    def close(self) -> None:
        """Clear the line, and show no other."""
        with self._lock:
            self.clear()
            if self._file is not None:
                self._file.close()
                self._file = None

    def _columns(self) -> int:
        assert self._file is not None
        with contextlib.suppress(OSError):  # the terminal's own, as captured streams have none
            return os.get_terminal_size(self._file.fileno()).columns or 80
        return shutil.get_terminal_size().columns

    def _draw(self, text: str) -> None:
        """Write below the current line, and move back to pytest's column on it."""
        assert self._file is not None
        column = getattr(self._writer, "width_of_current_line", 0) + 1
        with contextlib.suppress(OSError):
            self._file.write(f"\n\x1b[2K{text}\x1b[A\x1b[{column}G")
            self._file.flush()


class PlainLines:
    """Prints whole lines between pytest's output, even where pytest is in the middle of a line.

    The lines have their own descriptor, which bypasses pytest's capturing, so that any thread may
    print one while pytest waits; other output is still captured. pytest then knows that it is at
    the beginning of a line, so its columns stay right.

    Args:
        config: pytest's.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._file: IO[str] | None = None

    def open(self) -> None:
        """Duplicate the descriptor that pytest writes to; called while it captures nothing."""
        writer: Any = getattr(self._reporter, "_tw", None)
        with contextlib.suppress(AttributeError, OSError, ValueError):  # the file may be in memory
            descriptor = os.dup(writer._file.fileno())
            self._file = os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace")

    @property
    def _reporter(self) -> Any:
        return self._config.pluginmanager.get_plugin("terminalreporter")

    def print(self, text: str) -> None:
        """Print a line, escaped; nothing where pytest has no reporter."""
        reporter = self._reporter
        if reporter is None:
            return
        with self._past_capturing(reporter._tw):
            reporter.ensure_newline()
            if reporter._tw.width_of_current_line:  # with xdist and -q, ensure_newline does nothing
                reporter.write_line("")
            reporter.write_line(one_line(text))
            reporter.flush()

    @contextlib.contextmanager
    def _past_capturing(self, writer: Any) -> Iterator[None]:
        if self._file is None:
            capture: Any = self._config.pluginmanager.get_plugin("capturemanager")
            with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
                yield
            return
        captured, writer._file = writer._file, self._file
        try:
            yield
        finally:
            writer._file = captured

    def close(self) -> None:
        """Close the descriptor."""
        if self._file is not None:
            self._file.close()
            self._file = None
