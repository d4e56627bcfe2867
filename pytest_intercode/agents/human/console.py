"""The user's terminal: reads actions with a line editor and a history, and shows texts.

It is used on the agent's thread. Only :meth:`Console.abort` is called from other threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession, print_formatted_text
from prompt_toolkit.application import create_app_session, run_in_terminal
from prompt_toolkit.application.current import get_app
from prompt_toolkit.enums import DEFAULT_BUFFER, EditingMode
from prompt_toolkit.filters import has_focus
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.key_processor import KeyPressEvent
from prompt_toolkit.lexers import Lexer, PygmentsLexer
from prompt_toolkit.output import Output, create_output

from pytest_intercode.agents.human.completeness import describe_missing, is_command
from pytest_intercode.core.text import fragments
from pytest_intercode.environments.registry import kind_of

__all__ = ["Aborted", "Cleared", "Console", "EndOfInput", "history_file", "open_history"]

_CANCEL_TIMEOUT = 2.0  # seconds for a cancelled prompt to restore the terminal
_STOP_DELAY = 0.5  # seconds until the main thread has handled a stop signal
_INDENT = "    "


class Aborted(Exception):
    """The episode was stopped."""


class Cleared(Exception):
    """Ctrl-C: the line was cleared."""


class EndOfInput(Exception):
    """Ctrl-D on an empty line, or a terminal that was closed.

    Attributes:
        closed: whether the terminal was closed.
    """

    def __init__(self, *, closed: bool) -> None:
        super().__init__()
        self.closed = closed


class Console:
    """The terminal, for one episode.

    Args:
        vi: whether to use the keys of vi instead of those of emacs.
        source: where keys come from; by default the terminal on standard input.
        sink: where texts go; by default the terminal on standard output.
    """

    def __init__(
        self, *, vi: bool = False, source: Input | None = None, sink: Output | None = None
    ) -> None:
        self._mode = EditingMode.VI if vi else EditingMode.EMACS
        self._source = source
        self._sink = sink
        self._lock = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()
        self._aborted = False
        self._waiting: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        self._editor: PromptSession[str] | None = None
        self._missing_part = ""

    @contextlib.contextmanager
    def open(self, env: str, engine: str, history: History) -> Iterator[None]:
        """Open the terminal for the actions of an environment.

        Keys typed before that are discarded, as they were meant for something else.
        """
        # Use the streams of the process, as sys.stdin and sys.stdout may be replaced.
        suffix = kind_of(env).suffix
        source = self._source or create_input(sys.__stdin__)
        sink = self._sink or create_output(sys.__stdout__)
        clear_typeahead(source)
        if self._source is None:
            with contextlib.suppress(termios.error):
                termios.tcflush(source.fileno(), termios.TCIFLUSH)
        with create_app_session(input=source, output=sink):
            self._editor = PromptSession(
                multiline=True,
                editing_mode=self._mode,
                history=history,
                lexer=_lexer(suffix),
                key_bindings=self._bindings(env, engine),
                bottom_toolbar=self._toolbar,
                prompt_continuation=lambda width, line, wraps: "... ".rjust(width),
                enable_open_in_editor=True,
                tempfile_suffix=suffix,
            )
            yield

    def show(self, text: str, style: str = "") -> None:
        """Write a text and a line end; control characters are escaped."""
        text = text.removesuffix("\n")
        print_formatted_text(FormattedText(fragments(text, style)))

    def read(self, prompt: str) -> str:
        """Return what the human typed.

        Raises:
            Aborted: the episode was stopped.
            Cleared: they pressed Ctrl-C.
            EndOfInput: they pressed Ctrl-D on an empty line, or the terminal was closed.
        """
        assert self._editor is not None
        self._missing_part = ""
        return re.sub(r"(\n[ \t]*)+$", "", self._wait(self._editor, prompt))

    def confirm(self, question: str) -> bool:
        """Ask a question; Enter alone means no, and Ctrl-D means yes.

        Raises:
            Aborted: the episode was stopped.
        """
        line: PromptSession[str] = PromptSession(key_bindings=_make_clear_bindings())
        try:
            answer = self._wait(line, f"{question} [y/N] ")
        except Cleared:
            return False
        except EndOfInput:
            return True
        return answer.strip().lower() in ("y", "yes")

    def abort(self) -> None:
        """End the waiting prompt, and refuse later prompts; from any thread, at any moment."""
        with self._lock:
            self._aborted = True
            if self._waiting is not None:
                loop, task = self._waiting
                loop.call_soon_threadsafe(task.cancel)
        self._idle.wait(_CANCEL_TIMEOUT)

    # -- waiting

    def _wait(self, editor: PromptSession[str], prompt: str) -> str:
        self._idle.clear()
        try:
            return asyncio.run(self._ask(editor, prompt))
        except asyncio.CancelledError:
            raise Aborted from None
        except EOFError:
            raise EndOfInput(closed=editor.app.input.closed) from None
        finally:
            self._idle.set()

    async def _ask(self, editor: PromptSession[str], prompt: str) -> str:
        task = asyncio.current_task()
        assert task is not None
        with self._lock:
            if self._aborted:
                raise Aborted
            self._waiting = asyncio.get_running_loop(), task
        try:
            return await editor.prompt_async(
                prompt,
                handle_sigint=False,  # signals belong to the main thread
                set_exception_handler=False,  # its handler would wait for Enter
            )
        finally:
            with self._lock:
                self._waiting = None

    # -- the line editor

    def _bindings(self, env: str, engine: str) -> KeyBindings:
        bindings = _make_clear_bindings()
        typing = has_focus(DEFAULT_BUFFER)
        indented = kind_of(env).indents  # in a shell, indents would end up in here-documents

        @bindings.add("enter", filter=typing)
        def run_or_continue(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            self._missing_part = describe_missing(buffer.text, env, engine)
            if not self._missing_part:
                buffer.validate_and_handle()
                return
            line = buffer.document.current_line_before_cursor
            buffer.newline(copy_margin=indented)
            if indented and line.rstrip().endswith(":"):
                buffer.insert_text(_INDENT)

        @bindings.add("escape", "enter", filter=typing)
        def begin_line(event: KeyPressEvent) -> None:
            event.current_buffer.newline(copy_margin=indented)

        @bindings.add("c-x", "enter", filter=typing)
        def run(event: KeyPressEvent) -> None:
            event.current_buffer.validate_and_handle()

        @bindings.add("tab", filter=typing)
        def indent(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if not buffer.document.current_line_before_cursor.strip():
                buffer.insert_text(_INDENT if indented else "\t")

        @bindings.add("c-z", filter=typing)
        def suspend(event: KeyPressEvent) -> None:
            run_in_terminal(_suspend_job)

        return bindings

    def _toolbar(self) -> str:
        if self._missing_part and "\n" in get_app().current_buffer.text:
            return f" Still to come: {self._missing_part}. Ctrl-X Enter runs it as it is. "
        return " Enter runs it, Alt-Enter begins a new line. :help  :task  :give-up  :quit "


def _suspend_job() -> None:
    """Stop, as after Ctrl-Z, until the user's shell continues the job."""
    os.kill(0, signal.SIGTSTP)
    time.sleep(_STOP_DELAY)  # the main thread handles the signal; do not continue before that


def _make_clear_bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("c-c", filter=has_focus(DEFAULT_BUFFER))
    def clear(event: KeyPressEvent) -> None:
        event.app.exit(exception=Cleared(), style="class:aborting")

    return bindings


def _lexer(suffix: str) -> Lexer | None:
    """Return the lexer for a file suffix, or None if Pygments is not installed."""
    try:
        return PygmentsLexer.from_filename("typed" + suffix)
    except ImportError:
        return None


# -- history: a file for each environment, in the user's state folder


class _ActionHistory(FileHistory):
    """Keeps actions, but not commands to the terminal."""

    def append_string(self, string: str) -> None:
        if not is_command(string):
            super().append_string(string.rstrip("\n"))


def history_file(env: str) -> Path:
    """Return the path of an environment's history file."""
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "pytest-intercode" / f"history-{env}"


def open_history(env: str) -> tuple[History, str]:
    """Return the history of an environment, and why it cannot be saved (empty if it can).

    Only the user may read the file, as actions may contain secrets.
    """
    path = history_file(env)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        return InMemoryHistory(), f"{path}: {error.strerror}"
    return _ActionHistory(path), ""
