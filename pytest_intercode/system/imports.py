"""Imports of objects that a user names: ``module:Attr`` or ``path/to/file.py:Attr``."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_intercode.core.text import first_words
from pytest_intercode.errors import ConfigurationError, IntercodeError, suggestion

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    *("call_others", "check_namesake", "describe_error", "describe_point", "import_attribute"),
    "load_point",
]

_Returned = TypeVar("_Returned")

_MAX_MESSAGE = 300  # characters of an exception

# Files that a user's mistake cannot be in: this package, and the import system.
_NOT_THEIRS = (
    f"{Path(__file__).parents[1]}{os.sep}",
    f"{Path(importlib.__file__).parent}{os.sep}",
    "<frozen ",
)


def import_attribute(
    name: str, folder: Path, option: str, error: type[ConfigurationError] = ConfigurationError
) -> object:
    """Import ``module:Attr`` or ``path/to/file.py:Attr``; ``Attr`` may be dotted.

    The folder, or that of the file, is put on the import path, so that the module can import its
    neighbours. A file is imported under its own name, like an import of it elsewhere, unless that
    name belongs to another module.

    Args:
        name: the user's text.
        folder: the folder in which relative paths and modules are searched.
        option: the option with the text, for messages.
        error: the class of the error to raise.

    Raises:
        ConfigurationError: the text has another form, or the object cannot be found or imported.
    """
    argument = f"{option}={name}"
    module_name, _, attribute = name.rpartition(":")
    if not module_name or not attribute:
        raise error(f"{argument}: the form is module:NAME or path/to/file.py:NAME")
    # Not Path.expanduser(), which fails if there is no such user.
    place = os.path.expanduser(module_name)  # noqa: PTH111
    file = folder / place if module_name.endswith(".py") else None
    if file is not None and not file.is_file():
        raise error(f"{argument}: there is no file {file}")
    import_folder = str(file.parent if file else folder)
    if import_folder not in sys.path:
        sys.path.insert(0, import_folder)
    try:
        module = _import_file(file) if file else importlib.import_module(module_name)
    except (Exception, SystemExit) as raised:
        missing = raised.name if isinstance(raised, ModuleNotFoundError) else None
        # The module itself or one of its parent packages is missing, not a module that it imports.
        if file is None and missing and f"{module_name}.".startswith(f"{missing}."):
            raise error(
                f"{argument}: there is no module {module_name!r} in {folder} or on the import path"
            ) from None
        raise error(
            f"{argument}: importing {module_name} raised {describe_error(raised)}"
        ) from None
    attribute_value: object = module
    for part in attribute.split("."):
        try:
            attribute_value = getattr(attribute_value, part)
        except AttributeError:
            names = [name for name in vars(module) if not name.startswith("_")]
            raise error(
                f"{argument}: {module_name} has no {attribute!r}.{suggestion(attribute, names)}"
            ) from None
    return attribute_value


def load_point(point: EntryPoint, label: str) -> Any:
    """Load the object of an entry point.

    Args:
        point: the entry point of an installed package.
        label: a description of it, for messages.

    Raises:
        ConfigurationError: it cannot be imported, or another package has one of this name.
    """
    from importlib.metadata import entry_points  # slow, as it imports the email package

    namesakes = {
        namesake.value: namesake for namesake in entry_points(group=point.group, name=point.name)
    }
    if len(namesakes) > 1:
        descriptions = " and ".join(sorted(map(describe_point, namesakes.values())))
        raise ConfigurationError(
            f"{label} is defined twice ({point.group}): {descriptions}; uninstall one of them"
        )
    try:
        return point.load()
    except (Exception, SystemExit) as error:
        raise ConfigurationError(
            f"{label} ({describe_point(point)}) cannot be loaded: {describe_error(error)}"
        ) from None


def check_namesake(point: EntryPoint | None, label: str) -> None:
    """Check that no package has an entry point with the name of a built-in object.

    Args:
        point: the entry point of that name; None if there is none.
        label: a description of the built-in object, for messages.

    Raises:
        ConfigurationError: there is one, so the name is ambiguous.
    """
    if point is not None:
        raise ConfigurationError(
            f"{label} is defined twice ({point.group}): it is built in, and "
            f"{describe_point(point)} has the same name; uninstall or rename that one"
        )


def describe_point(point: EntryPoint) -> str:
    """Return the object's name of an entry point, and its distribution."""
    return point.value if point.dist is None else f"{point.value} of {point.dist.name}"


def call_others(
    function: Callable[..., _Returned],
    make_error: Callable[[str], IntercodeError],
    *arguments: Any,
    **options: Any,
) -> _Returned:
    """Call a function or a class of a third party, and return its result.

    Args:
        function: the function or the class.
        make_error: returns the error to raise if it raises one that is not ours; called with a line
            that describes that error and its location.
        arguments: positional arguments.
        options: keyword arguments.

    Raises:
        IntercodeError: the error that it raised, or the one that ``make_error`` returned.
    """
    try:
        return function(*arguments, **options)
    except IntercodeError:
        raise
    except Exception as error:
        # For a class, use the file of its __init__.
        code_owner = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
        raise make_error(describe_error(error, code_owner)) from error


def describe_error(error: BaseException, function: object = None) -> str:
    """Return an exception in one line: its type, its message, and the file and line of its origin.

    Args:
        error: the exception.
        function: the third-party function that was called; the line is in its file if possible, and
            never in our files.
    """
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_NOT_THEIRS)
    ]
    code = getattr(function, "__code__", None)
    frames = [frame for frame in frames if code and frame.filename == code.co_filename] or frames
    place = ""
    if isinstance(error, SyntaxError) and error.filename:
        place = f" ({error.filename}:{error.lineno})"
    elif frames:
        place = f" ({frames[-1].filename}:{frames[-1].lineno})"
    elif code is not None:  # it was not entered, because its parameters are different
        place = f" ({code.co_filename}:{code.co_firstlineno})"
    return f"{type(error).__name__}: {first_words(str(error), _MAX_MESSAGE)}{place}"


def _import_file(path: Path) -> ModuleType:
    """Import a file under its name, or under a name that no module of the user has."""
    if _is_importable(path):
        return importlib.import_module(path.stem)
    spec = importlib.util.spec_from_file_location(f"_intercode_user_{path.stem}", path)
    assert spec is not None and spec.loader is not None  # noqa: PT018 - true of every *.py
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        # Otherwise a second import would find the partially executed module.
        del sys.modules[spec.name]
        raise
    return module


def _is_importable(path: Path) -> bool:
    """Whether ``import NAME`` means this file."""
    try:
        spec = importlib.util.find_spec(path.stem) if path.stem.isidentifier() else None
    except (ImportError, ValueError):  # a module of that name without a spec, such as __main__
        return False
    origin = Path(spec.origin) if spec is not None and spec.origin is not None else None
    return origin is not None and origin.is_file() and origin.samefile(path)
