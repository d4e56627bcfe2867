"""The interpreter of a python sandbox: reads actions, runs them in one namespace, answers.

Its text is sent into the sandbox and run there (see ``python_channel.py``); nothing of it runs on
the host. It is the agent's own interpreter, so nothing here can be hidden from the agent: code that
writes to the descriptor of the answers deceives only its own agent. Grading does not trust this
process.

An action is compiled and run as in a REPL: definitions stay, and if the last statement is an
expression, its value is shown. Builtins and functions are saved before the agent's first action, so
that an agent that redefines them does not break these lines.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import ast
import builtins
import linecache
import os
import sys
import traceback
import types
from typing import Any

CONTROL = 200  # the descriptor that actions come from
ANSWERS = 201  # the descriptor that answers go to
FILE = "<worker>"  # the name of this text in tracebacks

_FUTURES = 0x1FE0000  # the compiler's flags of `from __future__ import ...`
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_getpid, _leave, _write = os.getpid, os._exit, os.write
_set_handler, _SIGINT = _signal.signal, int(_signal.SIGINT)  # without the enums around them


class Interpreter:
    """Runs actions, one after the other.

    Args:
        count: how many actions there were before this interpreter.

    Attributes:
        names: the namespace of the agent's code.
        defined: the functions and classes that actions defined at top level, by name and in order.
    """

    def __init__(self, count: int) -> None:
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        self.names = vars(main)
        # Else the code would see our builtins, which are a copy.
        self.names["__builtins__"] = builtins
        self.defined: list[str] = []
        self._count = count
        self._flags = 0
        self._interruptible = False

    def run(self, source: str) -> int:
        """Run one action; return 1 if it raised, else 0."""
        self._count += 1
        name = f"<action {self._count}>"
        # An entry without a modification time stays in linecache, although there is no such file.
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        process = _getpid()
        _set_handler(_SIGINT, self._interrupt)  # an earlier action may have set another
        status = 0
        try:
            self._interruptible = True
            for code in self._compile(source, name):
                exec(code, self.names)
        except SystemExit:
            raise
        except BaseException as error:
            self._interruptible = False
            status = 1
            _flush()
            _show(error)
        finally:
            self._interruptible = False
        _flush()
        if _getpid() != process:  # a child that the action forked must not serve actions too
            _leave(status)
        return status

    def _compile(self, source: str, name: str) -> list[types.CodeType]:
        flags = ast.PyCF_ONLY_AST | self._flags
        # True: do not inherit `from __future__ import annotations` from this text.
        tree: ast.Module = compile(source, name, "exec", flags, True)
        self.defined += [node.name for node in tree.body if isinstance(node, _DEFINITIONS)]
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        codes = []
        if tree.body:
            codes.append(compile(tree, name, "exec", self._flags, True))
            self._flags |= codes[0].co_flags & _FUTURES
        if last is not None:
            interactive = ast.Interactive([last])
            codes.append(compile(interactive, name, "single", self._flags, True))
        return codes

    def _interrupt(self, *_: object) -> None:
        if self._interruptible:
            self._interruptible = False  # only once: a second one might hit the handlers above
            raise KeyboardInterrupt


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # the agent's own stream, or None
            pass


def _show(error: BaseException) -> None:
    """Print a traceback as Python does, without the frames of this file."""
    try:
        report = traceback.TracebackException(type(error), error, error.__traceback__)
        _remove_own_frames(report, set())
        text = "".join(report.format())
    except BaseException:
        text = f"{type(error).__name__}\n"
    data = text.encode("utf-8", "backslashreplace")
    try:
        while data:
            data = data[_write(2, data) :]
    except OSError:  # the agent closed it
        pass


def _remove_own_frames(report: Any, visited: set[int]) -> None:
    if report is None or id(report) in visited:
        return
    visited.add(id(report))
    frames = [frame for frame in report.stack or () if frame.filename != FILE]
    # Without a stack the line "Traceback ..." is left out, as Python does for its own errors.
    report.stack = traceback.StackSummary.from_list(frames) if frames else None
    for cause in (
        report.__cause__,
        report.__context__,
        *(getattr(report, "exceptions", None) or ()),
    ):
        _remove_own_frames(cause, visited)


def _make_module(interpreter: Interpreter) -> types.ModuleType:
    """Return the module with which the host runs its own code next to the agent's.

    That code sees neither the agent's names nor the agent's changes to the builtins.
    """
    scope: dict[str, Any] = {
        "__builtins__": dict(vars(builtins)),
        "__name__": "_intercode",
        "interpreter": interpreter,
    }

    def run(source: str, request: str) -> None:
        """Run a text, if there is one, and pass an expression's value to its function ``main``."""
        if source:
            exec(compile(source, FILE, "exec"), scope)
        scope["main"](eval(request, scope))

    module = types.ModuleType("_intercode")
    module.run = run  # type: ignore[attr-defined]
    return module


def main(workdir: str, nonce: str, count: int) -> None:
    """Go to the working directory, answer, and serve actions until the input ends."""
    os.dup2(0, CONTROL, False)
    empty = os.open(os.devnull, os.O_RDWR)
    os.dup2(empty, 0)
    os.close(empty)
    os.set_inheritable(ANSWERS, False)
    sys.argv = [""]
    sys.path.insert(0, "")
    interpreter = Interpreter(count)
    sys.modules["_intercode"] = _make_module(interpreter)
    folder = "?"
    try:
        os.makedirs(workdir, exist_ok=True)  # noqa: PTH103 (pathlib takes long to import)
        os.chdir(workdir)
        folder = os.path.normpath(workdir)  # as it was asked for, whatever links are on the way
    except OSError:
        pass  # the answer reports it
    _answer(nonce, 0, folder)
    with os.fdopen(CONTROL, "rb", closefd=False) as control:
        for line in control:
            nonce, _, literal = line.decode("ascii").partition(" ")
            status = 1
            try:
                status = interpreter.run(eval(literal))
            except KeyboardInterrupt:
                pass  # between the action and its answer
            _answer(nonce, status)
    _leave(0)


def _answer(nonce: str, status: int, folder: str = "") -> None:
    try:
        folder = folder or os.getcwd()  # noqa: PTH109
    except OSError:
        folder = "?"  # it was removed
    folder = folder.replace("\n", "?")
    _write(ANSWERS, f"D {nonce} {status} - {folder}\n".encode("utf-8", "surrogateescape"))
