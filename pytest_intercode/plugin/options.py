"""pytest's side of the options: on the command line or as ini values, and how they are read."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.options.option import Option
from pytest_intercode.options.table import GROUPS, OPTIONS
from pytest_intercode.plugin.ini import add_ini_values, ini_file, ini_values

__all__ = [
    "add_options",
    "folder_of",
    "format_help",
    "on_command_line",
    "read_option",
    "read_options",
    "starts_run",
]

_INI_NOTE = (
    "Each option has an ini value, such as intercode_max_turns for --intercode-max-turns. The "
    "command line overrides the file, and both override the task."
)


def add_options(parser: pytest.Parser) -> None:
    """Add all options, each with its ini value; ``--help`` shows only the everyday ones."""
    group = parser.getgroup("intercode", "tests of coding agents")
    for option in OPTIONS:
        kinds: dict[str, Any] = {"action": "store_true"}
        if option.metavar:
            action = "append" if option.several else "store"
            kinds = {"action": action, "metavar": option.metavar}
        text = _describe_plainly(option).replace("%", "%%")
        group.addoption(
            f"--intercode-{option.name}",
            dest=option.ini,
            default=None,
            help=text if option.everyday else argparse.SUPPRESS,
            **kinds,
        )
    group.addoption(
        "--intercode-help",
        action="store_true",
        help=f"show all {len(OPTIONS)} options of tests of coding agents, in groups",
    )
    add_ini_values(parser)


def format_help() -> str:
    """Return the help of all options, in their groups, wrapped to the width of the terminal."""
    lines = []
    for title, options in GROUPS:
        lines.append(f"{title}:")
        for option in options:
            lines.append(f"  --intercode-{option.form}")
            lines += _wrap(_describe_plainly(option), " " * 8)
        lines.append("")
    return "\n".join([*lines, *_wrap(_INI_NOTE), ""])


def _wrap(text: str, indent: str = "") -> list[str]:
    """Return a text in lines that fit the terminal; names of options are not broken."""
    columns = shutil.get_terminal_size().columns
    return textwrap.wrap(
        text, columns, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )


def _describe_plainly(option: Option[Any]) -> str:
    return option.description.replace("`", "")


def starts_run(config: pytest.Config) -> bool:
    """Whether an option is given that requires a start before the first item is collected.

    Raises:
        ConfigurationError: the ini value of such an option is wrong.
    """
    return any(
        config.getoption(option.ini) or (option.starts and read_option(config, option))
        for option in OPTIONS
    )


def folder_of(config: pytest.Config, name: str) -> Path:
    """Return where an option's relative paths start: in this folder, or in the ini file's."""
    if _from_command_line(config, f"intercode_{name}"):
        return config.invocation_params.dir
    return config.inipath.parent if config.inipath else config.rootpath


def on_command_line(config: pytest.Config, name: str) -> bool:
    """Whether an option is given on the command line (or by ``addopts``), not by its ini value."""
    return _from_command_line(config, f"intercode_{name}")


def read_options(config: pytest.Config) -> dict[str, Any]:
    """Return the checked values of all options by their attributes; None if one is not given.

    Lists are tuples without duplicates, pairs are dictionaries, and paths are absolute.

    Raises:
        ConfigurationError: a value is wrong, or two options do not go together.
    """
    values = {option.key: read_option(config, option) for option in OPTIONS}
    by_key = {option.key: option for option in OPTIONS}
    for option in filter(lambda option: values[option.key], OPTIONS):
        for key, reason in filter(None, [option.needs]):
            if not values[key]:
                raise _error(
                    config, option, None, f"needs --intercode-{by_key[key].form}, {reason}"
                )
        for key, reason in filter(None, [option.excludes]):
            if values[key]:
                excluded = _describe(
                    config, by_key[key], values[key] if by_key[key].metavar else None
                )
                raise _error(config, option, None, f"{reason}; leave out {excluded}")
    return {option.attribute: values[option.key] for option in OPTIONS}


def read_option(config: pytest.Config, option: Option[Any]) -> Any:
    """Return the value of one option as :func:`read_options` does, not checked against others.

    Raises:
        ConfigurationError: the value is wrong.
    """
    if _from_command_line(config, option.ini):
        raw = config.getoption(option.ini)
        texts = raw if isinstance(raw, list) else [str(raw)]
    else:
        texts = ini_values(config, option.ini)
    if option.pairs:
        return dict(_parse(config, option, text) for text in texts)
    if option.listed:
        parts = [part.strip() for text in texts for part in text.split(",")]
        duplicate = next((part for part in parts if part and parts.count(part) > 1), None)
        if option.distinct and duplicate:
            raise _error(config, option, duplicate, "is given twice; name each once")
        parts = [*dict.fromkeys(filter(None, parts))]
        return tuple(_resolve_path(config, option, _parse(config, option, part)) for part in parts)
    if option.repeated:
        stripped = filter(None, map(str.strip, texts))
        return tuple(_parse(config, option, text) for text in stripped)
    value = "".join(texts).strip() or option.default
    if not value:
        return None if option.metavar else False
    return _resolve_path(config, option, _parse(config, option, value))


def _resolve_path(config: pytest.Config, option: Option[Any], value: Any) -> Any:
    """Return a value; a relative path is joined to the folder of its option."""
    if isinstance(value, Path):
        value = folder_of(config, option.key) / value.expanduser()
        if option.exists and not value.is_dir():
            raise _error(config, option, str(value), "there is no such folder")
    return value


def _parse(config: pytest.Config, option: Option[Any], text: str) -> Any:
    try:
        return option.value(text)
    except ValueError as error:
        raise _error(config, option, text, str(error)) from None


def _from_command_line(config: pytest.Config, ini: str) -> bool:
    return config.getoption(ini) not in (None, [])


def _describe(config: pytest.Config, option: Option[Any], value: object) -> str:
    """Return an option with its value, or its values, as the user gave them, for a message.

    Args:
        config: pytest's.
        option: the option.
        value: a text, or its parsed value; a tuple for several; None for a flag.
    """
    from pytest_intercode.core.text import hide_passwords

    name, sign = f"--intercode-{option.name}", " " if option.pairs else "="
    values = value if isinstance(value, tuple) else (value,)
    texts = (hide_passwords(str(element)) for element in values)
    option_text = name if value is None else " ".join(f"{name}{sign}{text}" for text in texts)
    if _from_command_line(config, option.ini):
        return option_text
    return f"{option_text} (ini value {option.ini}{ini_file(config)})"


def _error(config: pytest.Config, option: Option[Any], text: str | None, message: str) -> Exception:
    from pytest_intercode.errors import ConfigurationError

    return ConfigurationError(f"{_describe(config, option, text)}: {message}")
