"""Five of Aider's polyglot exercises: one of each language but C++, whose header is large.

They are Exercism's, in ``polyglot.json`` by their paths, with Exercism's MIT licence.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.task_folders import write_texts

__all__ = ["write_sample"]


def write_sample(folder: Path) -> Path:
    """Write the exercises as the benchmark's repository has them; return the folder."""
    files = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    return write_texts(folder, files)
