"""Workarounds for pytest and its plugins that use private APIs, where no public way exists."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from _pytest import runner

from pytest_intercode.core.text import escape_for_terminal

__all__ = [
    "escape_live_log",
    "hide_ini_values",
    "log_level_held",
    "may_be_tried_again",
    "show_root_fixtures",
    "variables_kept_still",
    "written_ini_value",
]

_CURRENT_TEST = "_update_current_test_var"


def escape_live_log(config: pytest.Config) -> None:
    """Escape what is logged live (``log_cli``), which pytest prints past its capturing.

    Args:
        config: pytest's.
    """
    plugin = config.pluginmanager.get_plugin("logging-plugin")
    handler: object = getattr(plugin, "log_cli_handler", None)
    if isinstance(handler, logging.StreamHandler) and handler.formatter is not None:
        handler.setFormatter(_Escaping(handler.formatter))


class _Escaping(logging.Formatter):
    """Formats a record as another formatter does, colours included, but escapes its texts."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        escaped = copy.copy(record)
        escaped.msg, escaped.args = escape_for_terminal(record.getMessage()), None
        if record.exc_info and not record.exc_text:
            escaped.exc_text = self._formatter.formatException(record.exc_info)
        escaped.exc_text = escaped.exc_text and escape_for_terminal(escaped.exc_text)
        escaped.stack_info = escaped.stack_info and escape_for_terminal(escaped.stack_info)
        return self._formatter.format(escaped)


def hide_ini_values(config: pytest.Config, names: Collection[str]) -> None:
    """Leave ini values out of ``--help``; they are still read.

    Args:
        config: pytest's.
        names: the ini values.
    """
    parser: Any = getattr(config, "_parser", None)
    ini_names: object = getattr(parser, "_ininames", None)
    ini_values: object = getattr(parser, "_inidict", None)
    if isinstance(ini_names, list):  # before pytest 9, it has their order
        ini_names[:] = [name for name in ini_names if name not in names]
    elif isinstance(ini_values, dict):
        parser._inidict = _Shown(ini_values, names)


class _Shown(dict[str, Any]):
    """A dictionary with hidden keys, which look-ups find but iteration leaves out."""

    def __init__(self, values: Mapping[str, Any], hidden: Collection[str]) -> None:
        super().__init__(values)
        self._hidden = hidden

    def __iter__(self) -> Iterator[str]:
        return (key for key in super().__iter__() if key not in self._hidden)


def may_be_tried_again(item: pytest.Item) -> bool:
    """Whether pytest-rerunfailures may run an item once more, so that its row is superseded."""
    if item.get_closest_marker("flaky") is not None:
        return True
    config = item.config
    reruns: object = config.getoption("force_reruns", None) or config.getoption("reruns", None)
    with contextlib.suppress(ValueError, KeyError):  # the plugin is not installed
        reruns = reruns or config.getini("reruns")
    return bool(reruns)


@contextlib.contextmanager
def log_level_held(config: pytest.Config) -> Iterator[None]:
    """Keep the root logger at the level of ``log_level``; pytest sets it for phases of items only.

    Args:
        config: pytest's.
    """
    level = getattr(config.pluginmanager.get_plugin("logging-plugin"), "log_level", None)
    root = logging.getLogger()
    original_level = root.level
    if level is not None:
        root.setLevel(min(original_level, level))
    try:
        yield
    finally:
        root.setLevel(original_level)


@contextlib.contextmanager
def variables_kept_still() -> Iterator[None]:
    """Keep pytest from removing the environment variable with the name of the current test.

    pytest removes it after each item; a thread that copies ``os.environ`` at that moment, as HTTP
    libraries do, gets a ``KeyError``. Setting the variable again does no harm.
    """
    update = getattr(runner, _CURRENT_TEST, None)
    if update is None:
        yield
        return

    def only_set(item: pytest.Item, when: str | None) -> None:
        if when:
            update(item, when)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, _CURRENT_TEST, only_set)
        yield


def show_root_fixtures(session: pytest.Session) -> None:
    """Let bundled suites see the fixtures of the root ``conftest.py``, in pytest 9.1.

    All other versions give them to the whole session. 9.1 gives them only to nodes below that of
    the root folder, where bundled suites are not, as they have no file there.

    Args:
        session: the session, before anything is collected.
    """
    manager = getattr(session, "_fixturemanager", None)
    pending: dict[Path, object] = getattr(manager, "_pending_conftests", {})
    conftest = pending.pop(session.config.rootpath, None)
    if manager is not None and conftest is not None:
        manager.parsefactories(holder=conftest, node=session)


def written_ini_value(config: pytest.Config, name: str) -> object:
    """Return an ini value as it is written, for one whose type pytest refuses.

    Args:
        config: pytest's.
        name: the name of the ini value.

    Returns:
        A text, or a value of TOML; None if pytest does not provide it.
    """
    entries: Mapping[str, object] | None = getattr(config, "_inicfg", None)  # pytest 9
    if entries is None:
        entries = getattr(config, "inicfg", {})
    value = entries.get(name)
    return getattr(value, "value", value)
