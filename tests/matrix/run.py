"""Tries cells of the matrix: installs each, runs its checks, and writes down what they came to.

Run as ``python -m tests.matrix.run [CELL...]``, by ``scripts/test --matrix``. A cell has a virtual
environment of its own in ``build/matrix``, where also the output of its checks is. Cells that are
not named keep the results that they have; who names the remaining ones continues an ended run.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

from pytest_intercode.errors import InfrastructureError
from pytest_intercode.sandboxes.bubblewrap.engine import Bubblewrap
from pytest_intercode.sandboxes.docker.engine import connect
from tests.matrix import table
from tests.matrix.cells import (
    LOWEST,
    Cell,
    Count,
    Result,
    cells,
    read_results,
    write_results,
)
from tests.supply.locks import FOLDER, ROOT

__all__ = ["main"]

MATRIX = ROOT / "build" / "matrix"
_CHECK_TIMEOUT = 1200  # seconds
_MAX_LINES = 30  # of a check's output, where it failed

# Left out of the unit tests: what runs tools, what is about our own sources, and what takes long
# and is about numbers, screens, repositories or processes, the same on every Python.
_WITHOUT = (
    *("test_types_of_users.py", "test_packaging.py", "test_names.py", "rewards", "statistics"),
    *("agents/chat", "agents/human", "environments/test_repositories.py", "results/test_files.py"),
    *("rollouts/cluster", "sandboxes/test_lister.py"),
)
_UNIT = (
    *("tests/unit", "-n", "2", "--dist", "loadfile", "-m", "not slow", "-rfE"),
    *(f"--ignore=tests/unit/{name}" for name in _WITHOUT),
)
_ORACLE = ("--intercode-agent=oracle", "--intercode-env=all", "-n", "2", "-rfE")


def main(names: list[str]) -> int:
    """Try some cells, or all; return the exit status."""
    cells_by_name = {cell.name: cell for cell in cells()}
    unknown = [name for name in names if name not in cells_by_name]
    if unknown:
        _say(f"unknown cell {unknown[0]}; cells are {', '.join(cells_by_name)}")
        return 2
    failed = False
    for cell in [cells_by_name[name] for name in names or cells_by_name]:
        python = find_python(cell.python)
        if python is None:
            _say(f"{cell.name}: left out, there is no Python {cell.python} here")
            continue
        try:
            result = _try(cell, python)
        except subprocess.CalledProcessError as error:
            _say(f"{cell.name}: cannot be installed: {error.stderr.strip()[-2000:]}")
            failed = True
            continue
        write_results([*read_results().values(), result])
        table.main()
        failed |= bool(result.failed)
    return int(failed)


def find_python(version: str) -> Path | None:
    """Return a Python of a version: on the path, or one that pyenv has installed."""
    if program := shutil.which(f"python{version}"):
        works = subprocess.run([program, "-c", ""], capture_output=True).returncode == 0
        if works:  # a shim of pyenv's may lead nowhere
            return Path(program)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    paths = pyenv.glob(f"versions/{version}.*/bin/python")
    return max(paths, key=lambda path: int(path.parts[-3].rpartition(".")[2]), default=None)


def _try(cell: Cell, python: Path) -> Result:
    folder = MATRIX / cell.name
    program = _install(cell, python, folder)
    versions = "import platform, pytest; print(platform.python_version(), pytest.__version__)"
    words = subprocess.run([program, "-c", versions], capture_output=True, text=True, check=True)
    python_version, pytest_version = words.stdout.split()
    checks = {}
    for name, (run_on, arguments) in _checks(cell).items():
        if not run_on():
            _say(f"{cell.name}: {name}: left out, it does not work here")
            continue
        checks[name] = count = _run(program, arguments, folder / name)
        _say(f"{cell.name}: {name}: {count.passed} passed, {count.failed} failed")
        if count.failed or not count.passed:
            lines = (folder / f"{name}.log").read_text().splitlines()
            print(*lines[-_MAX_LINES:], sep="\n")
    system = f"{platform.system()} {platform.machine()}"
    return Result(cell.name, python_version, pytest_version, system, checks)


def _checks(cell: Cell) -> dict[str, tuple[Callable[[], bool], tuple[str, ...]]]:
    """Return the checks: whether this machine can run each, and pytest's arguments."""
    # Old versions of dependencies warn of what is deprecated by now.
    lenient = ("-W", "default") if cell.pytest == LOWEST else ()
    sandbox = "--intercode-sandbox={}".format
    return {
        "unit": (lambda: True, (*_UNIT, *lenient)),
        "bubblewrap": (
            _has_bubblewrap,
            (*_ORACLE, sandbox("bubblewrap"), "--intercode-limit=10"),
        ),
        "docker": (_has_docker, (*_ORACLE, sandbox("docker"), "--intercode-limit=1")),
    }


def _run(program: Path, arguments: tuple[str, ...], output: Path) -> Count:
    """Run pytest and return how many tests came to what."""
    report = output.with_suffix(".xml")
    report.unlink(missing_ok=True)
    environment = {name: value for name, value in os.environ.items() if "PYTHON" not in name}
    environment["PATH"] = f"{program.parent}{os.pathsep}{environment['PATH']}"
    with tempfile.TemporaryDirectory() as folder, output.with_suffix(".log").open("w") as log:
        is_ours = arguments[0].startswith("tests/")  # else no settings of ours are to be found
        try:
            subprocess.run(
                [program, "-m", "pytest", "-q", f"--junitxml={report}", *arguments],
                cwd=ROOT if is_ours else folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=_CHECK_TIMEOUT,
            )
        except subprocess.TimeoutExpired:
            log.write(f"\nnot over after {_CHECK_TIMEOUT} seconds\n")
    if not report.exists():
        return Count(passed=0, failed=0, skipped=0)
    suites = ElementTree.parse(report).getroot().iter("testsuite")
    [numbers] = [suite.attrib for suite in suites]
    failed = int(numbers["failures"]) + int(numbers["errors"])
    skipped = int(numbers["skipped"])
    return Count(int(numbers["tests"]) - failed - skipped, failed, skipped)


def _install(cell: Cell, python: Path, folder: Path) -> Path:
    """Make the virtual environment of a cell, if it is not as it should be; return its Python."""
    program = folder / "venv" / "bin" / "python"
    stamp = folder / "installed"
    lock, project = FOLDER / "test.txt", ROOT / "pyproject.toml"
    content = f"{cell} {python} {lock.read_text()} {project.read_text()}"
    digest = hashlib.sha256(content.encode()).hexdigest()
    if program.exists() and stamp.exists() and stamp.read_text() == digest:
        return program
    _say(f"{cell.name}: installing")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _uv("venv", "--python", str(python), str(folder / "venv"))
    install = ("pip", "install", "--python", str(program))
    if cell.pytest == LOWEST:
        words = ("--resolution", "lowest-direct", "--extra", "test", "-r", str(project))
        _uv(*install, "--only-binary", ":all:", *words)
    else:
        # What is locked, by its hashes, but with another pytest.
        requirements = folder / "requirements.txt"
        lines = lock.read_text().replace("\\\n", "").splitlines()
        pins = [line for line in lines if not line.startswith(("#", " ", "pytest=="))]
        requirements.write_text("\n".join([*pins, cell.requirement]))
        _uv(*install, "--only-binary", ":all:", "-r", str(requirements))
    _uv(*install, "--no-deps", "--editable", str(ROOT))
    stamp.write_text(digest)
    return program


def _uv(*words: str) -> None:
    program = Path(sys.executable).with_name("uv")
    subprocess.run([program, "--quiet", *words], check=True, stderr=subprocess.PIPE, text=True)


def _has_bubblewrap() -> bool:
    try:
        Bubblewrap().close()
    except InfrastructureError:
        return False
    return True


def _has_docker() -> bool:
    try:
        connect().close()
    except InfrastructureError:
        return False
    return True


def _say(line: str) -> None:
    print(f"matrix: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
