"""The licences of what we install, as the packages' own metadata state them.

Run as ``python -m tests.supply.licences``, which writes ``requirements/licences.md``.
"""

from __future__ import annotations

import re
from importlib import metadata

from packaging.utils import canonicalize_name

from tests.supply.locks import FOLDER, project, read_lock

__all__ = ["ALLOWED", "LIST", "installed", "licence_of", "main", "refused"]

LIST = FOLDER / "licences.md"

ALLOWED = {
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "HPND", "ISC", "MIT"),
    *("MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Python-2.0", "Unlicense", "Zlib", "bzip2-1.0.6"),
}
"""Licences (SPDX) under which anybody may install and pass on a package beside ours."""

# What packages without an SPDX expression say in its place.
_CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
_WORDS = {
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
}

_JOINT = re.compile(r"\s+(?:AND|OR)\s+|[()]")


def licence_of(package: metadata.Distribution) -> str:
    """Return a package's licence as an SPDX expression; empty if it states none that is known."""
    said = package.metadata
    if expression := said.get_all("License-Expression"):
        return str(expression[0])
    named = [
        line.rpartition(" :: ")[2]
        for line in said.get_all("Classifier") or []
        if line.startswith("License :: ") and line != "License :: OSI Approved"
    ]
    found = {_CLASSIFIERS.get(name, "") for name in named}
    if found and "" not in found:
        return " AND ".join(sorted(found))
    [word] = said.get_all("License") or [""]
    return _WORDS.get(word, word if word and not refused(word) else "")


def refused(expression: str) -> list[str]:
    """Return what of an SPDX expression is not allowed; of alternatives, all have to be."""
    parts = [part.strip() for part in _JOINT.split(expression)]
    return [part for part in parts if part and part not in ALLOWED]


def installed() -> dict[str, metadata.Distribution]:
    """Return the packages of this environment by their names, but for ours and pip itself."""
    ours = {canonicalize_name(project()["name"]), "pip", "setuptools"}
    found = {canonicalize_name(each.metadata["Name"]): each for each in metadata.distributions()}
    return {name: found[name] for name in sorted(found) if name not in ours}


def main() -> None:
    """Write the list of licences, of what is locked and installed here."""
    here = installed()
    locked = sorted({pin.name for pin in read_lock("all")})
    rows = [f"| {name} | {licence_of(here[name])} |" for name in locked if name in here]
    elsewhere = [name for name in locked if name not in here]
    text = [
        "# Licences",
        "",
        "Of the Python packages that this project's tests, checks and tools install, as their own",
        "metadata state them (SPDX). Written by `scripts/lock`; `scripts/test --all` compares them",
        "with those that are allowed, in `tests/supply/licences.py`.",
        "",
        "| package | licence |",
        "| --- | --- |",
        *rows,
    ]
    if elsewhere:
        text += ["", f"Only on other Pythons or platforms: {', '.join(elsewhere)}."]
    LIST.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
