"""What docs/backends.md shows is a backend: it is installed, runs a suite, keeps the contract."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.site_folder import install

PAGE = (Path(__file__).parents[3] / "docs" / "backends.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```\w+ (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def files(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needs_docker: None
) -> dict[str, str]:
    """Install the page's package for processes, and return the page's files."""
    files = dict(BLOCK.findall(PAGE))
    source = tmp_path / "package"
    source.mkdir()
    for name in ("pyproject.toml", "dockercli.py"):
        (source / name).write_text(files[name])
    monkeypatch.setenv("PYTHONPATH", str(install(source, tmp_path)), prepend=":")
    pytester.path.joinpath("test_backend.py").write_text(files["test_backend.py"])
    return files


@pytest.mark.usefixtures("small_suite")
def test_a_suite_is_solved(pytester: pytest.Pytester, files: dict[str, str]) -> None:
    assert len(files["dockercli.py"].splitlines()) < 150
    result = pytester.runpytest_subprocess(
        "suite.yaml", "--intercode-sandbox=docker-cli", "--intercode-agent=oracle", "-n0"
    )
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*sandbox docker-cli"])


@pytest.mark.slow
@pytest.mark.usefixtures("files")
def test_it_keeps_the_contract(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("test_backend.py", "-n0")
    outcomes = result.parseoutcomes()
    assert result.ret == 0
    assert outcomes["passed"] > 120
    assert "skipped" not in outcomes
