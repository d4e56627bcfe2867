"""Our wheel, built from the checkout and installed where nothing leads back to it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path

__all__ = ["build", "clean_environment", "install", "run"]

# What could lead a Python back to the checkout.
_DROPPED = ("PYTHON", "PYTEST", "INTERCODE", "COVERAGE", "COV_")


def run(*words: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """Run a command that has to succeed, and return what it prints."""
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def clean_environment() -> dict[str, str]:
    """Return our environment without what could lead a Python back to the checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}


def build(root: Path, folder: Path, targets: tuple[str, ...] = ("wheel", "sdist")) -> Path:
    """Build a wheel and an sdist into a folder, by what `build` and pip call."""
    options = [word for target in targets for word in ("-t", target)]
    words = ("-m", "hatchling", "build", *options, "-d", str(folder))
    run(sys.executable, *words, cwd=root, env=clean_environment())
    return folder


def install(wheel: Path, folder: Path) -> Path:
    """Make a virtual environment with our wheel, and with what else is installed here.

    Returns:
        Its Python.
    """
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    links = folder / "dependencies"
    links.mkdir()
    for name in ("purelib", "platlib"):
        for path in Path(sysconfig.get_path(name)).iterdir():
            # Not its .pth files either, which are not read here: one of them is for the checkout.
            if not path.name.startswith("pytest_intercode") and path.suffix != ".pth":
                link = links / path.name
                if not link.is_symlink():
                    link.symlink_to(path)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(f"{links}\n")
    words = ("install", "--quiet", "--no-deps", "--no-index", "--no-compile", str(wheel))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python))
    run(*pip, *words, cwd=folder, env=clean_environment())
    return python
