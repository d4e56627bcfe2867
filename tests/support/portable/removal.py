"""Remove from Python what it does not have on another operating system.

A removal works before anything of ours is imported: names go from the modules that are there at
once, and from each other module right after it was executed, before its importer sees it. It needs
no module but ``sys``, so that an interpreter can begin with it, before ``os`` and ``site``.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # that of typing, which imports os
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

__all__ = ["Removal"]

# The C module that a module of the standard library takes its names from.
_SOURCES = {"os": "posix", "signal": "_signal", "socket": "_socket"}


class Removal:
    """Removes names from modules, and modules as a whole.

    Args:
        names: module to the names that it does not have. Those of ``os``, ``signal`` and ``socket``
            are removed from the C modules behind them as well.
        platform: what ``sys.platform`` is from now on; empty if it stays.
        absent: modules that cannot be imported.
        changes: module to a function that is called with the module, after its names were removed.
        exempt: packages that see everything while they are imported, as on the real platform.
            On the other one they have parts of their own for it, which are not on this machine.
    """

    def __init__(
        self,
        names: Mapping[str, Collection[str]],
        *,
        platform: str = "",
        absent: Collection[str] = (),
        changes: Mapping[str, Callable[[Any], None]] | None = None,
        exempt: Collection[str] = (),
    ) -> None:
        self._names = dict(names)
        for module, source in _SOURCES.items():
            if module in names:
                self._names[source] = names[module]
        self._real_platform = sys.platform
        self._platform = platform or sys.platform
        self._absent = frozenset(absent)
        self._changes = dict(changes or {})
        self._exempt = frozenset(exempt)
        self._removed: dict[str, dict[str, object]] = {}  # module to what was removed from it
        self._changed: set[str] = set()
        self._exempt_imports = 0  # exempt packages that are being executed now

    def install(self) -> None:
        """Remove everything, from now until the process ends."""
        for name in self._absent:
            sys.modules.pop(name, None)
        # Before all other finders, and so before the built-in modules' as well.
        sys.meta_path.insert(0, self)
        self._remove_all()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module that is to be changed, with a loader that does so; part of the protocol.

        Raises:
            ModuleNotFoundError: if the module is one of those that are absent.
        """
        if name in self._absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if name in self._names or name in self._changes or name in self._exempt:
            for finder in sys.meta_path:
                spec = None if finder is self else finder.find_spec(name, path, target)
                if spec is not None:
                    spec.loader = _Loader(spec.loader, self)  # type: ignore[assignment]
                    return spec
        return None

    def execute(self, module: ModuleType, loader: Any) -> None:
        """Execute a module with its own loader, and remove its names."""
        # What asks a module for its source later has to find the real loader.
        module.__loader__ = loader
        if module.__spec__ is not None:
            module.__spec__.loader = loader
        if module.__name__ not in self._exempt:
            loader.exec_module(module)
            if not self._exempt_imports:
                self._remove(module)
            return
        self._exempt_imports += 1
        self._restore_all()
        try:
            loader.exec_module(module)
        finally:
            self._exempt_imports -= 1
            if not self._exempt_imports:
                self._remove_all()
        self._change(module)

    def _remove_all(self) -> None:
        sys.platform = self._platform
        for name in (*self._names, *self._changes):
            # A module that is being executed now is changed at its end.
            module = sys.modules.get(name)
            if module is not None and not _is_being_executed(module):
                self._remove(module)

    def _restore_all(self) -> None:
        sys.platform = self._real_platform
        for name in self._names:
            # A module that was imported after its source never had the names.
            for source in (name, _SOURCES.get(name)):
                if name in sys.modules and source in self._removed:
                    vars(sys.modules[name]).update(self._removed[source])

    def _remove(self, module: ModuleType) -> None:
        names = self._names.get(module.__name__, ())
        namespace = vars(module)
        values = {name: namespace.pop(name) for name in names if name in namespace}
        self._removed.setdefault(module.__name__, {}).update(values)
        if "__all__" in namespace:
            namespace["__all__"] = [name for name in module.__all__ if name not in values]
        self._change(module)

    def _change(self, module: ModuleType) -> None:
        change = self._changes.get(module.__name__)
        if change is not None and module.__name__ not in self._changed:
            self._changed.add(module.__name__)
            change(module)


def _is_being_executed(module: ModuleType) -> bool:
    return bool(getattr(module.__spec__, "_initializing", False))


class _Loader:
    """The loader of a module that is changed after it was executed."""

    def __init__(self, loader: Any, removal: Removal) -> None:
        self._loader = loader
        self._removal = removal

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        self._removal.execute(module, self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
