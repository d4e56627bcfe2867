"""A Python that has this package and what it needs, and none of its extras."""

from __future__ import annotations

import re
import venv
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.utils import canonicalize_name

from tests.supply.locks import read_lock

__all__ = ["locked_names", "make_python"]


def locked_names() -> set[str]:
    """Return the names of what ``requirements/run.txt`` installs on this system."""
    return {pin.name for pin in read_lock("run") if pin.fits({})}


def make_python(folder: Path, **versions: str) -> Path:
    """Make a virtual environment; its packages are links to ours.

    Args:
        folder: where to; it must not exist.
        versions: what packages are to say of their version, by their names.

    Returns:
        Its interpreter.
    """
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    names = {"pytest-intercode", *locked_names()}
    for package in distributions():
        name = canonicalize_name(package.metadata["Name"])
        if name not in names:
            continue
        for path in _tops(package):
            if path.name.endswith(".dist-info") and name in versions:
                (site / path.name).mkdir()
                text = (path / "METADATA").read_text("utf-8")
                text = re.sub(r"(?m)^Version: .*", f"Version: {versions[name]}", text, count=1)
                (site / path.name / "METADATA").write_text(text, "utf-8")
                (site / path.name / "entry_points.txt").touch()
            else:
                (site / path.name).symlink_to(path)
    # An editable package is found by what its .pth file names.
    import pytest_intercode

    root = Path(pytest_intercode.__file__).parent
    if not (site / root.name).exists():
        (site / root.name).symlink_to(root)
    return folder / "bin" / "python"


def _tops(package: Distribution) -> set[Path]:
    """Return the folders and modules of a package that lie in the folder of packages."""
    return {
        Path(str(package.locate_file(file.parts[0])))
        for file in package.files or ()
        if file.parts[0] not in ("..", "__pycache__")
    }
