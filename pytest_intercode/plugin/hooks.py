"""Calls the hooks that users implement; what one of them raises is one line that names it."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.errors import ConfigurationError, IntercodeError
from pytest_intercode.system.imports import describe_error

__all__ = ["HookError", "call_hook"]


class HookError(ConfigurationError):
    """A hook of the user's raised."""


def call_hook(config: pytest.Config, name: str, **arguments: Any) -> Any:
    """Call ``pytest_intercode_NAME`` with the configuration and these arguments.

    Raises:
        HookError: an implementation raised something that is not ours to report, or returned a
            list of tasks, which nobody takes.
    """
    caller = getattr(config.hook, f"pytest_intercode_{name}")
    try:
        returned = caller(config=config, **arguments)
    except IntercodeError:
        raise
    except Exception as error:
        location = _locate_implementation(caller, error)
        raise HookError(
            f"the hook pytest_intercode_{name}{location} raised {describe_error(error)}"
        ) from None
    if name == "modify_tasks" and any(value is not arguments["tasks"] for value in returned):
        codes = [implementation.function.__code__ for implementation in caller.get_hookimpls()]
        places = " or ".join(f"{code.co_filename}:{code.co_firstlineno}" for code in codes)
        raise HookError(
            f"the hook pytest_intercode_modify_tasks at {places} returned {returned[0]!r:.40}, "
            "which is not used: edit the list of tasks in place, as in tasks[:] = ..."
        )
    return returned


def _locate_implementation(caller: Any, error: BaseException) -> str:
    """Return whose implementation it was: its plugin, its file, and the line where it left it."""
    codes = {
        getattr(implementation.function, "__code__", None): implementation.plugin_name
        for implementation in caller.get_hookimpls()
    }
    for frame, line in traceback.walk_tb(error.__traceback__):
        plugin = codes.get(frame.f_code)
        if plugin is not None:
            file = frame.f_code.co_filename
            is_conftest = Path(plugin) == Path(file) or plugin == file
            owner = "" if is_conftest else f" of the plugin {plugin}"
            return f"{owner} at {file}:{line}"
    return ""
