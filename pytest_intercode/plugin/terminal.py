"""Lends the terminal to an agent that talks to the user, and restores it afterwards.

Imported only for such an agent. pytest captures the standard streams of tests, input included;
during an episode they are connected to the user's terminal instead.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

import pytest

from pytest_intercode.core.text import escape_for_terminal
from pytest_intercode.errors import AgentLoadError
from pytest_intercode.plugin.xdist import is_distributed, is_worker

__all__ = ["check_terminal", "lent_terminal"]

_DOUBLE_INTERRUPT_TIMEOUT = 2.0  # seconds in which a second Ctrl-C ends the run


def check_terminal(config: pytest.Config, name: str) -> None:
    """Refuse a run in which an agent cannot talk to the user.

    Raises:
        AgentLoadError: there is no terminal.
    """
    if is_worker(config) or is_distributed(config):
        raise AgentLoadError(
            f"--intercode-agent={name}: it uses your terminal, which workers of pytest-xdist do "
            "not have; run without -n (or with -n 0)"
        )
    with _suspend_capture(config):
        for stream, stream_name in ((sys.__stdin__, "input"), (sys.__stdout__, "output")):
            if not _is_terminal(stream):
                raise AgentLoadError(
                    f"--intercode-agent={name}: it uses your terminal, but standard {stream_name} "
                    "is not a terminal; run pytest in a terminal, not in a pipe or in CI"
                )


@contextlib.contextmanager
def lent_terminal(config: pytest.Config, action_timeout: float) -> Iterator[Callable[[str], None]]:
    """Give the terminal to an agent, from the main thread.

    Args:
        config: pytest's.
        action_timeout: seconds that an action of the agent may take.

    Returns:
        A function that writes a line to the terminal.
    """
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    streams: Any = config.pluginmanager.get_plugin("intercode-streams")
    with (
        _suspend_capture(config),
        _restore_modes(),
        streams.lent() if streams is not None else contextlib.nullcontext(),
    ):
        if reporter is not None:
            reporter.ensure_newline()
            reporter.flush()
        with _single_interrupt_stops_action(action_timeout):
            yield _write_line


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def _write_line(line: str) -> None:
    """Write a line to the terminal, escaped: an agent's text must not control it."""
    if sys.__stdout__ is not None:
        sys.__stdout__.write(f"{escape_for_terminal(line)}\n")
        sys.__stdout__.flush()


@contextlib.contextmanager
def _suspend_capture(config: pytest.Config) -> Iterator[None]:
    """Suspend all capturing, including that of the standard input."""
    manager: Any = config.pluginmanager.get_plugin("capturemanager")
    if manager is None:
        yield
        return
    with manager.global_and_fixture_disabled():
        manager.suspend_global_capture(in_=True)
        yield


@contextlib.contextmanager
def _restore_modes() -> Iterator[None]:
    """Restore the terminal's modes at the end, even if the agent leaves them changed."""
    import termios  # not at the top, as Windows loads this module and does not have it

    handle = sys.__stdin__.fileno() if sys.__stdin__ is not None else -1
    try:
        modes = termios.tcgetattr(handle)
    except (termios.error, ValueError):
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(handle, termios.TCSADRAIN, modes)


@contextlib.contextmanager
def _single_interrupt_stops_action(action_timeout: float) -> Iterator[None]:
    """Do not end the run at one Ctrl-C while an action runs: users of a shell mean the action.

    At the prompt, Ctrl-C is an ordinary key. A signal that arrives then was sent by another
    process, and ends the run.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    last = -_DOUBLE_INTERRUPT_TIMEOUT

    def handle(number: int, frame: Any) -> None:
        nonlocal last
        previous, last = last, time.monotonic()
        if last - previous < _DOUBLE_INTERRUPT_TIMEOUT or _at_prompt():
            signal.default_int_handler(number, frame)
        _write_line(
            f"\n[an action ends by itself after {action_timeout:g} s; Ctrl-C twice ends the run]"
        )

    replaced = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, replaced)


def _at_prompt() -> bool:
    """Whether the line editor is reading keys; the terminal then makes no signals from them."""
    import termios

    try:
        assert sys.__stdin__ is not None
        modes = termios.tcgetattr(sys.__stdin__.fileno())
    except (termios.error, ValueError):
        return False
    return not modes[3] & termios.ISIG
