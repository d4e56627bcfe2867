"""The files of this folder that pages are made of: templates, styles and scripts."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

__all__ = ["join_scripts", "join_styles", "policy_hash", "read_source"]


def read_source(name: str) -> str:
    """Return the text of a file of this folder."""
    return (files(__package__) / name).read_text(encoding="utf-8")


def join_styles(*names: str) -> str:
    """Return style sheets as one."""
    return "\n".join(map(read_source, names))


def join_scripts(*names: str) -> str:
    """Return scripts as one, whose names are seen by each other and by nothing else."""
    script = "\n".join(map(read_source, names))
    return f'"use strict";\n(() => {{\n{script}\n}})();\n'


def policy_hash(text: str) -> str:
    """Return a text's hash as content security policies write it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()
