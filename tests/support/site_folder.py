"""A package of somebody else's, installed with pip into a folder for the path of a run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["install"]


def install(source: Path, folder: Path) -> Path:
    """Build and install a package, its entry points included, without anything from an index.

    Args:
        source: the package's folder, which is copied and not written to.
        folder: an empty folder, for the copy and for what is installed.

    Returns:
        The folder to put on ``sys.path``.
    """
    copy = shutil.copytree(source, folder / "source")
    site = folder / "site"
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", str(site))
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, str(copy)],
        check=True,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    return site
