"""docs/polyglot.md: its command runs as it is shown, and its facts are those of the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_intercode.suites.polyglot import LANGUAGES
from pytest_intercode.suites.upstream import DATASETS, files_of
from tests.docs.shell import run
from tests.support.polyglot import write_sample

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "polyglot.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.usefixtures("needs_sandboxes")
def test_a_clone_is_played(tmp_path: Path, quick_sandbox: str) -> None:
    write_sample(tmp_path / "polyglot-benchmark")
    [command] = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    [output] = re.findall(r"^```\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    result = run(command, tmp_path, f"-p no:cacheprovider {quick_sandbox}")
    assert result.returncode == 0, result.stdout + result.stderr
    assert output in result.stdout


def test_each_language_is_described() -> None:
    rows = re.findall(r"^\| `polyglot-(\w+)` \| \d+ \| .* \| `polyglot-(\w+)`", PAGE, re.MULTILINE)
    assert rows == [(name, name) for name in LANGUAGES]
    for name in LANGUAGES:
        assert (ROOT / "dockerfiles" / f"polyglot-{name}.Dockerfile").is_file()


def test_the_files_are_counted() -> None:
    files = files_of(*DATASETS["polyglot"].paths)
    megabytes = round(sum(file.size or 0 for file in files) / 1e6)
    assert f"{len(files):,} files ({megabytes} MB)" in PAGE


def test_it_is_named_in_the_docs() -> None:
    for name in ("CHANGELOG.md", "README.md", "docs/datasets.md"):
        assert "polyglot.md" in (ROOT / name).read_text(encoding="utf-8"), name
