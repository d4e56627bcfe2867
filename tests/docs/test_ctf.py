"""docs/ctf.md: its numbers are those of the package, and pages name it."""

from __future__ import annotations

from pathlib import Path

from pytest_intercode.suites.upstream import DATASETS, files_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ctf.md").read_text(encoding="utf-8")


def test_the_package_is_named_with_its_size() -> None:
    [package] = files_of(*DATASETS["cybench"].paths)
    assert package.size is not None
    version = package.path.split("-")[1]
    assert f"inspect_evals {version} ({round(package.size / 1e6)} MB)" in PAGE


def test_it_is_named_in_the_docs() -> None:
    for name in ("README.md", "docs/datasets.md", "docs/conformance.md", "mkdocs.yml"):
        assert "ctf.md" in (ROOT / name).read_text(encoding="utf-8"), name
