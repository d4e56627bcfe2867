"""Checks of the arguments of ``make`` and ``run_rollouts``, which report each mistake in a line."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any, NoReturn, SupportsIndex, TypeVar

from pytest_intercode.core.hosts import check_hosts
from pytest_intercode.core.permissions import Permissions
from pytest_intercode.errors import ConfigurationError, suggestion
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["ArgumentChecks"]

_Choice = TypeVar("_Choice", bound=str)
_Class = TypeVar("_Class")

# Settings that can be checked on this machine and its engine. The registry is not checked, as that
# would take a request for each call.
_CHECKED_SETTINGS = ("rootfs", "runtime", "platform")


class ArgumentChecks:
    """Checks of the arguments of one call. None, which means the default, is always accepted.

    Args:
        request: the call of the user, for messages.
    """

    def __init__(self, request: str) -> None:
        self.request = request

    def whole(self, name: str, value: SupportsIndex | None, least: int = 1) -> int | None:
        """Return a whole number, possibly of numpy, as a Python int.

        Raises:
            ConfigurationError: it is not a whole number, or less than ``least``. All other methods
                raise it likewise.
        """
        if value is None:
            return None
        try:
            number = operator.index(value)
        except TypeError:
            number = least - 1
        if isinstance(value, bool) or number < least:
            self._refuse(name, value, f"a whole number from {least} up is needed")
        return number

    def amount(self, name: str, value: float | None) -> float | None:
        """Return a finite number above 0, as a Python number."""
        if value is None:
            return None
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if not (is_number and 0 < value < math.inf):
            self._refuse(name, value, "a finite number above 0 is needed")
        return value if isinstance(value, int) else float(value)

    def choice(self, name: str, value: _Choice | None, allowed: Iterable[str]) -> _Choice | None:
        """Return one of some words."""
        if value is not None and value not in (words := tuple(allowed)):
            near = suggestion(value, words) if isinstance(value, str) else ""
            self._refuse(name, value, f"allowed: {', '.join(words)}.{near}")
        return value

    def permissions(self, network: Any, allow_path: Any, pass_env: Any) -> Permissions:
        """Return the permissions of suites and their sandboxes on this machine."""
        is_whole = isinstance(network, bool)  # the whole network, or none
        hosts = () if is_whole else self._items("network", network, "pypi.org", "True, False or ")
        try:
            hosts = check_hosts(hosts)
        except ValueError as error:
            raise ConfigurationError(f"{self.request}: network: {error}") from None
        paths = self._items("allow_path", allow_path, "data")
        return Permissions(
            paths=tuple(Path(path).expanduser() for path in paths),
            variables=self._items("pass_env", pass_env, "TOKEN"),
            network=network is True,
            hosts=hosts,
            prefix="",
        )

    def texts(self, name: str, values: Mapping[str, str] | None) -> dict[str, str]:
        """Return texts by their names."""
        self.names(name, values)
        for key, value in (values or {}).items():
            if not isinstance(value, str):
                self._refuse(f"{name}: {key}", value, "a text is needed")
        return dict(values or {})

    def names(self, name: str, values: Mapping[str, object] | None) -> frozenset[str]:
        """Return the names of a dictionary of keyword arguments."""
        if values is None:
            return frozenset()
        if not (isinstance(values, Mapping) and all(isinstance(key, str) for key in values)):
            self._refuse(name, values, "a dictionary is needed, with names as its keys")
        return frozenset(values)

    def path(self, name: str, value: str | os.PathLike[str] | None) -> str | None:
        """Return a path or a name as a text."""
        if value is not None and not isinstance(value, (str, os.PathLike)):
            self._refuse(name, value, "a text or a path is needed")
        return None if value is None else os.fspath(value)

    def instance(self, name: str, value: _Class | None, wanted: type[_Class]) -> _Class | None:
        """Return an object of a class."""
        if value is not None and not isinstance(value, wanted):
            self._refuse(name, value, f"a pytest_intercode.{wanted.__name__} is needed")
        return value

    def provider(self, value: SandboxProvider | None) -> SandboxProvider | None:
        """Return a provider of sandboxes, which must be open and able to apply its settings."""
        provider = self.instance("provider", value, SandboxProvider)
        if provider is not None:
            try:
                provider.check({name: f"SandboxSettings({name})" for name in _CHECKED_SETTINGS})
            except ConfigurationError as error:
                raise ConfigurationError(f"{self.request}: provider: {error}") from None
        return provider

    def flag(self, name: str, value: bool) -> bool:
        """Return True or False; refuse other values, which would be taken for one of them."""
        if not isinstance(value, bool):
            self._refuse(name, value, "True or False is needed")
        return value

    def _items(self, name: str, values: Any, example: str, other: str = "") -> tuple[Any, ...]:
        """Return the texts and paths of a list; a single text is not a list of its characters."""
        is_list = isinstance(values, Iterable) and not isinstance(values, (str, bytes, Mapping))
        items = tuple(values) if is_list else (None,)
        for item in items:
            if not isinstance(item, (str, os.PathLike)):
                self._refuse(
                    name, values, f"{other}a list of texts is needed, such as [{example!r}]"
                )
        return items

    def _refuse(self, name: str, value: object, needed: str) -> NoReturn:
        raise ConfigurationError(f"{self.request}: {name}={value!r:.60}: {needed}")
