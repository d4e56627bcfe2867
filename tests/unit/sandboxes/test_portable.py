"""Programs of this machine for sandboxes: why pip, npm or ldd failed, in one line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pytest_intercode.core.platforms import Platform
from pytest_intercode.errors import FetchError
from pytest_intercode.sandboxes import portable
from pytest_intercode.sandboxes.portable import (
    LinuxPython,
    copy_program,
    find_reason,
    install_wheels,
    write_program,
)

VERSIONS = ", ".join(f"1.{number}.0" for number in range(200))


@pytest.mark.parametrize(
    ("errors", "output", "reason"),
    [
        (
            "WARNING: Location 'x' is ignored\n"
            f"ERROR: Could not find a version that satisfies six==99 (from versions: {VERSIONS})\n"
            "ERROR: No matching distribution found for six==99\n",
            "",
            "No matching distribution found for six==99",
        ),
        (
            "ERROR: Exception:\nTraceback (most recent call last):\n  File 'x', line 1\n"
            "OSError: [Errno 28] No space left on device\n",
            "",
            "OSError: [Errno 28] No space left on device",
        ),
        (
            "ERROR: Cannot install a==1 and b==2 because these have conflicting dependencies.\n"
            "ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/\n",
            "Collecting a\n\nThe conflict is caused by:\n    The user requested b==2\n"
            "    a 1 depends on b>=3\n\nTo fix this you could try to:\n1. loosen\n",
            "The user requested b==2; a 1 depends on b>=3",
        ),
        (
            "npm error code E404\nnpm error 404 Not Found - GET https://registry/x\nnpm error 404\n"
            "npm error 404  The requested resource 'x@1' could not be found\n"
            "npm error A complete log of this run can be found in: /root/.npm/_logs/x.log\n",
            "",
            "404 Not Found - GET https://registry/x",
        ),
        ("sh: 1: node: not found\n", "", "sh: 1: node: not found"),
        ("", "", "no reason given"),
    ],
)
def test_the_reason_is_in_the_line(errors: str, output: str, reason: str) -> None:
    line = find_reason(errors, output)
    assert reason in line
    assert "\n" not in line
    assert "loosen" not in line
    assert len(line) < 1500


@pytest.mark.parametrize("python", [None, LinuxPython(Platform("arm64"), "3.11.2", "2.36")])
def test_packages_that_pip_cannot_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: LinuxPython | None
) -> None:
    """For the Python of this process, and for another one."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(FetchError, match=r"^the test: pip install failed: .*no-such-package"):
        install_wheels("the test", ["no-such-package"], tmp_path / "site", python)


def test_a_machine_without_ldd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FetchError, match="no ldd"):
        copy_program("python", tmp_path / "target", "/opt/python", Path(sys.executable))


def test_an_ldd_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_program(tmp_path / "ldd", "#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(portable, "_LDD_TIMEOUT", 0.1)
    with pytest.raises(FetchError, match=r"^ldd .* failed: .* timed out after 0.1 seconds"):
        copy_program("python", tmp_path / "target", "/opt/python", Path(sys.executable))
