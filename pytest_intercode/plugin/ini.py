"""The ini values: options in a configuration file of any format, or given by ``-o``.

TOML has types, which pytest 9 passes on from ``[tool.pytest]`` and ``pytest.toml``. Older formats
have only texts; ``[tool.pytest.ini_options]`` also has lists. This module reads all of them alike.
"""

from __future__ import annotations

import pytest

from pytest_intercode.options.option import IniType
from pytest_intercode.options.table import OPTIONS

__all__ = ["SUITES", "add_ini_values", "ini_file", "ini_values"]

SUITES = "intercode_suites"
"""The ini value with patterns of suite files; no command-line option corresponds to it."""

_TYPES: dict[str, IniType] = {**{option.ini: option.ini_type for option in OPTIONS}, SUITES: "args"}
_TRUE_BY_DEFAULT = frozenset(option.ini for option in OPTIONS if option.default == "true")
_NEEDED: dict[IniType, str] = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "string": "a string",
    "args": "a list of strings",
    "linelist": "a list of strings",
}


def add_ini_values(parser: pytest.Parser) -> None:
    """Add the ini values of all options, and that of the suites.

    From the types, pytest 9 checks values in TOML, and ``--help`` shows what to write.
    """
    descriptions = {option.ini: option.description.replace("`", "") for option in OPTIONS}
    descriptions[SUITES] = (
        "Glob patterns of suite files to collect, besides those named on the command line"
    )
    for name, ini_type in _TYPES.items():
        if ini_type in ("int", "float") and pytest.version_tuple < (8, 4):
            ini_type = "string"  # pytest 8.4 is the first to have numbers
        parser.addini(name, descriptions[name], type=ini_type, default=None)


def ini_values(config: pytest.Config, name: str) -> list[str]:
    """Return the texts of an ini value; none if it is not given, and none for a flag that is false.

    For a flag that is true by default, false is returned as the text ``false``.

    Numbers and ``true`` are written as in TOML, whatever the format of the file is.

    Args:
        config: pytest's.
        name: the name of the ini value.

    Raises:
        ConfigurationError: it has a type that does not fit.
    """
    ini_type = _TYPES[name]
    value = _read(config, name)
    if value is None:
        return []
    if isinstance(value, bool) and ini_type == "bool":
        return ["true"] if value else ["false"] if name in _TRUE_BY_DEFAULT else []
    lists = ("args", "linelist")
    values = value if isinstance(value, list) and ini_type in lists else [value]
    # A number will do where a text is needed, such as 0.8 for a rate, but not for a flag.
    fitting_types = (str,) if ini_type == "bool" else (str, int, float)
    for element in values:
        if isinstance(element, bool) or not isinstance(element, fitting_types):
            place = "not" if element is value else "but the list contains"
            message = f"{_NEEDED[ini_type]} is needed, {place} {_name_type(element)}"
            raise _error(config, name, message)
    return [text for text in map(_to_text, values) if text]


def ini_file(config: pytest.Config) -> str:
    """Return the configuration file as a message names it: `` of NAME``, or nothing."""
    return f" of {config.inipath.name}" if config.inipath else ""


def _read(config: pytest.Config, name: str) -> object:
    """Return an ini value as pytest parses it, or as it is written where pytest refuses it.

    pytest accepts one type for each value, and before 9.2 it refuses others with a traceback. We
    are more lenient (a single string is a list of one; a rate is ``0.8`` or ``"80%"``), and our
    errors are the same in all versions.
    """
    try:
        return config.getini(name)
    except (TypeError, ValueError, pytest.UsageError, pytest.PytestWarning) as refusal:
        if _TYPES[name] == "args" and isinstance(refusal.__cause__ or refusal, ValueError):
            # shlex cannot split the text, because a quotation mark is missing.
            raise _error(config, name, str(refusal)) from None
        from pytest_intercode.plugin.workarounds import written_ini_value

        value = written_ini_value(config, name)
        if value is None:
            raise
        return value


def _name_type(value: object) -> str:
    """Return what TOML calls the type of a value that is not a string."""
    names = {bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "a table"}
    return names.get(type(value), "a date or a time")


def _to_text(value: object) -> str:
    # pytest turns 30 into 30.0 where a number may have decimals.
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _error(config: pytest.Config, name: str, message: str) -> Exception:
    from pytest_intercode.errors import ConfigurationError

    return ConfigurationError(f"ini value {name}{ini_file(config)}: {message}")
