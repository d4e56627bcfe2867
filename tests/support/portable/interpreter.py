"""A copy of this Python that begins as one of another operating system, in every process.

The standard library of the copy is this one's, but for the package ``encodings``, which no Python
starts without, and which none has built in: it has one line more. So processes that are started
with ``-I`` and ``-S`` begin with that line as well, before ``os`` and ``site``. Packages are those
of the environment that the tests run in.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path

from tests.support.portable import macos
from tests.support.portable.typeshed import missing_names

__all__ = ["PROCESSES", "make_interpreter"]

PROCESSES = "processes"
"""The folder next to the interpreter where psutil finds the real ``/proc``."""

_BEGIN = """
from _portable import macos, names
macos.start(names.NAMES, names.PROCESSES)
"""

# macOS's own: urllib asks it for the proxies of the system's settings.
_SCPROXY = """\
def _get_proxy_settings():
    return {}


def _get_proxies():
    return {}
"""
_PORTABLE = ("__init__.py", "macos.py", "removal.py")
_VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"


def make_interpreter(folder: Path) -> Path:
    """Make the copy in an empty folder; return its program, in a virtual environment of its own."""
    binary = folder / "base/bin" / _VERSION
    binary.parent.mkdir(parents=True)
    # Where it lies is where it looks for its library, so it is no link.
    shutil.copy2(Path(sys.executable).resolve(), binary)
    library = folder / "base" / sys.platlibdir / _VERSION
    _link(Path(sysconfig.get_path("stdlib")), library, but={"encodings", "site-packages"})
    _copy_encodings(library)
    _add_portable(library, folder / PROCESSES)
    (folder / PROCESSES).mkdir()
    # What sysconfig reads, by the name that it has on a Mac; Debian's asks for the shorter one.
    settings = min(library.glob("_sysconfigdata_*linux*.py"))
    for name in ("darwin_darwin", "darwin"):
        link = library / f"_sysconfigdata_{sys.abiflags}_{name}.py"
        link.symlink_to(settings.resolve())
    return _make_environment(folder / "environment", binary)


def _link(source: Path, target: Path, *, but: set[str]) -> None:
    target.mkdir(parents=True)
    for path in source.iterdir():
        if path.name not in but:
            (target / path.name).symlink_to(path.resolve())


def _copy_encodings(library: Path) -> None:
    source = Path(sysconfig.get_path("stdlib"), "encodings")
    # Its compiled modules are not shared: those of the package itself are others.
    _link(source, library / "encodings", but={"__init__.py", "__pycache__"})
    text = (source / "__init__.py").read_text(encoding="utf-8")
    (library / "encodings/__init__.py").write_text(text + _BEGIN, encoding="utf-8")


def _add_portable(library: Path, processes: Path) -> None:
    package = library / "_portable"
    package.mkdir()
    for name in _PORTABLE:
        shutil.copy2(Path(__file__).with_name(name), package)
    names = {module: sorted(missing_names(module, "darwin")) for module in macos.MODULES}
    text = f"NAMES = {names!r}\nPROCESSES = {str(processes)!r}\n"
    (package / "names.py").write_text(text, encoding="utf-8")
    (library / "_scproxy.py").write_text(_SCPROXY, encoding="utf-8")


def _make_environment(folder: Path, binary: Path) -> Path:
    programs = folder / "bin"
    programs.mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {binary.parent}\n", encoding="utf-8")
    for name in ("python", "python3", _VERSION):
        (programs / name).symlink_to(binary)
    packages = folder / "lib" / _VERSION / "site-packages"
    packages.parent.mkdir(parents=True)
    packages.symlink_to(sysconfig.get_path("purelib"))
    python = programs / "python"
    for name, module in (("pytest", "pytest"), ("pytest-intercode", "pytest_intercode")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{python}" -m {module} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    return python
