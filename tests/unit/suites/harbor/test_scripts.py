"""What is read from Dockerfiles and from test scripts, as text alone."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_intercode.core.dockerfile import find_images, find_substitutes
from pytest_intercode.environments.swe import requirements
from pytest_intercode.environments.swe.requirements import inline_requirements, is_requirement
from pytest_intercode.suites.harbor.bootstrap import requirements_of
from pytest_intercode.suites.harbor.config import HealthcheckConfig
from pytest_intercode.suites.harbor.dockerfiles import read_machine, rebase
from pytest_intercode.suites.harbor.parts import (
    healthcheck_setup,
    make_tags,
    task_id,
    without_canary,
)


@pytest.mark.parametrize(
    ("text", "workdir", "user", "entrypoint"),
    [
        ("FROM a", "/", "", ()),
        ("FROM a\nWORKDIR /x\nWORKDIR y", "/x/y", "", ()),
        ("from a\nworkdir '/x'\nuser me:us", "/x", "me", ()),
        ("FROM a\nUSER 0", "/", "", ()),
        ('FROM a\nENV P=/p Q="/q"\nWORKDIR ${P}$Q', "/p/q", "", ()),
        ("FROM a\nENV P /p\nWORKDIR ${N:-/d}/e", "/d/e", "", ()),
        ("FROM a AS b\nWORKDIR /b\nUSER u\nFROM c\nFROM b", "/b", "u", ()),
        ("FROM a AS b\nWORKDIR /b\nFROM c", "/", "", ()),
        ('FROM a\nENTRYPOINT ["/e", "x"]', "/", "", ("/e", "x")),
        ("FROM a\nENTRYPOINT exec /e", "/", "", ("/bin/sh", "-c", "exec /e")),
        ("FROM a\nENTRYPOINT []", "/", "", ()),
        ("FROM a\nRUN x \\\n  # no\n WORKDIR /no\nWORKDIR /yes", "/yes", "", ()),
        ("FROM a\nRUN <<EOT\nWORKDIR /no\nEOT\nWORKDIR /yes", "/yes", "", ()),
        ("FROM ghcr.io/laude-institute/t-bench/ubuntu-24-04:20250624", "/app", "", ()),
        ("ARG V=1\nFROM --platform=linux/amd64 a:$V\nWORKDIR /a", "/a", "", ()),
    ],
)
def test_the_machine_of_a_dockerfile(
    text: str, workdir: str, user: str, entrypoint: tuple[str, ...]
) -> None:
    found = read_machine(text)
    assert (found.workdir, found.user, found.entrypoint) == (workdir, user, entrypoint)


def test_variables_that_double_are_not_followed() -> None:
    text = "ARG A=0123456789\n" + "ARG A=$A$A\n" * 40
    assert find_images(f"{text}FROM a\nFROM $A\n")[0].name == "a"
    assert len(read_machine(f"FROM a\n{text}WORKDIR /$A\n").workdir) < 10_000
    script = "A=0123456789\n" + "A=$A$A\n" * 40 + "pip install $A b"
    assert requirements_of([script]) == ("b",)


def test_much_of_everything_is_read_in_time() -> None:
    count = 30_000
    heredocs = "".join(f"RUN <<X{number}\n" for number in range(count))
    variables = "".join(f"ENV A{number}=/b\n" for number in range(count))
    assert read_machine(f"FROM a\n{heredocs}{variables}WORKDIR $A7\n").workdir == "/b"
    line = f"<!--{'canary' * count}"
    assert without_canary(line) == line


def test_known_bases_are_replaced_where_they_are_not_there() -> None:
    text = (
        "FROM ghcr.io/laude-institute/t-bench/python-3-13:2025 AS a\n"
        "FROM t-bench/ubuntu-24-04@sha256:12\nRUN x"
    )
    published = (
        "ghcr.io/laude-institute/t-bench/python-3-13:2025",
        "t-bench/ubuntu-24-04@sha256:12",
    )
    assert rebase(text) == (
        f"FROM {published[0]} AS a\nWORKDIR /app\nFROM {published[1]}\nWORKDIR /app\nRUN x"
    )
    assert rebase("FROM debian\nRUN x") == "FROM debian\nRUN x"
    python, ubuntu = "python:3.13-slim-bookworm", "ubuntu:24.04"

    def standing(replacements: dict[str, str], *there: str) -> dict[str, str]:
        return find_substitutes(rebase(text), replacements, there.__contains__)

    assert standing({}) == dict(zip(published, (python, ubuntu), strict=True))
    assert standing({ubuntu: "mine"}, published[0]) == {published[1]: "mine"}
    assert standing({published[0]: "mine"}, python) == {published[1]: ubuntu}
    assert standing({}, *published) == {}


@given(st.text())
def test_any_text_is_a_dockerfile(text: str) -> None:
    read_machine(text)
    rebase(f"FROM a\n{text}")


_INLINE = """\
# /// script
# requires-python = ">=3.11"
# dependencies = ["swebench==4.0.3", "datasets==2.16.1",
#   'fastcore<1.11',  # why
# ]
# ///
import swebench
"""
_DEPENDENCIES = ("swebench==4.0.3", "datasets==2.16.1", "fastcore<1.11")
_LISTED = ("a==1", "c[d] ; python_version > '3'", "b>=2  ,<3")
_FILES = {
    "requirements.txt": "a==1  # first\n-r more/other.txt\n--index-url https://x\nb>=2 \\\n ,<3\n",
    "more/other.txt": "c[d] ; python_version > '3' --hash=sha256:1\n-e .\n",
    "judge.py": _INLINE,
    "plain.py": "import sys",
}


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("bash checks.sh", None),
        ("# curl is not used\necho curling", None),
        ("", None),
        ("curl -LsSf https://astral.sh/uv/install.sh | sh", ()),
        ("apt-get install -y curl expect", ()),
        # uv
        (
            "uvx -p 3.13 \\\n  -w pytest==8.4.1 -w numpy==2.3.1 pytest /t",
            ("pytest==8.4.1", "numpy==2.3.1"),
        ),
        ("uvx --with a==1,b --with=c pytest", ("a==1", "b", "c", "pytest")),
        ("uvx --with 'a>=1,<2,b[x,y]' ruff@0.4 check", ("a>=1,<2", "b[x,y]", "ruff==0.4")),
        ("uvx --from rewardkit==0.1 kit /tests", ("rewardkit==0.1",)),
        ("uvx Pytest_Mock@latest -w no", ("Pytest_Mock",)),
        ("uv tool run -w pytest==8 pytest -m a", ("pytest==8",)),
        ("uv run --with requests pytest -p no:x", ("requests",)),
        ("uv -q run --with-requirements requirements.txt -m pytest", _LISTED),
        ("uv run --isolated --no-project -w a -- pytest", ("a",)),
        ("uv pip install pytest==8.4.1  'pyyaml>=6' && x", ("pytest==8.4.1", "pyyaml>=6")),
        ("uv pip install --system -p /usr/bin/python3 a", ("a",)),
        ("uv add pytest==8.4.1 --dev numpy", ("pytest==8.4.1", "numpy")),
        ("uv tool install pytest --with x", ("pytest", "x")),
        ("uv venv; uv sync; uv lock", ()),
        # scripts with their own
        ("uv run parser.py", ()),
        (
            "uv run /tests/judge.py | tee log",
            _DEPENDENCIES,
        ),
        (
            "uv run --script $TEST_DIR/judge.py",
            _DEPENDENCIES,
        ),
        ("uv run -w x -- judge.py", ("x", *_DEPENDENCIES)),
        (
            f'cat > parser.py <<EOF\n{_INLINE}EOF\nset +e\nuv run parser.py | tee -a "$LOG"',
            _DEPENDENCIES,
        ),
        (
            f"uv run - <<'EOF'\n{_INLINE}EOF",
            _DEPENDENCIES,
        ),
        ("uv run plain.py; python judge.py", ()),
        # pip
        ("pip install -q pytest==8.4.1 --break-system-packages", ("pytest==8.4.1",)),
        ("pip3 install -r needed.txt a[x]==1", ("a[x]==1",)),
        (
            "/opt/venv/bin/python -m pip install --no-cache-dir torch==2.5.1+cpu",
            ("torch==2.5.1+cpu",),
        ),
        ("(pip install a); pip install $MORE b # c", ("a", "b")),
        ("pip3 install pytest 2>/dev/null", ("pytest",)),
        ("pip install pytest >/dev/null 2>&1 || true", ("pytest",)),
        ("pip install --no-cache-dir a &>/tmp/log; pip install b >> c 2>> d", ("a", "b")),
        ("pip install -q openai>=1.0.0", ("openai",)),  # which the shell reads so
        ("pip install -q 'openai>=1.0.0' \"a<2\"", ("openai>=1.0.0", "a<2")),
        ("pip install -q a==1 2>/dev/null || pip install -q a 2>/dev/null || true", ("a==1",)),
        ("pip install a==1 2>&1 | tail -3 || pip3 install b", ("a==1",)),
        ("(pip install a) || pip install b\npip install c", ("a", "c")),
        ("which x || pip install a", ("a",)),
        ("pip install -U pip setuptools -t /x a", ("pip", "setuptools", "a")),
        ("pip install -e . ./x '.[test]' git+https://x.test/a.git /w/b-1.whl c", ("c",)),
        ("pip --quiet install a -qr /none.txt -ihttps://x.test/simple b", ("a", "b")),
        (
            "pip install -r /tests/requirements.txt",
            _LISTED,
        ),
        ('pip install -r "$(dirname "$0")/more/other.txt"', ("c[d] ; python_version > '3'",)),
        (
            'V=8.4.1\npip install "pytest==${V}" n==$V p==$W q==${X:-2}',
            ("pytest==8.4.1", "n==8.4.1", "q==2"),
        ),
        ("export P='a b==1'; pip install $P \"$P\"", ("a", "b==1")),
        ("P=$(cat p); pip install $P a", ("a",)),
        ("if ! command -v pip; then pip install a; fi", ("a",)),
        ("PIP_X=1 sudo -H -u me env B=2 timeout -k 5 60 pip install a", ("a",)),
        ("bash -lc 'pip install a && pip install \"b\"'", ("a", "b")),
        (
            "bash <<EOF\npip install a\nEOF\ncat <<-EOF\n\tpip install b\n\tEOF\npip install c",
            ("a", "c"),
        ),
        ("cat >/tmp/x.sh <<'EOF'\npip install a\nEOF", ("a",)),
        ('x="$(pip install a 2>&1)" `pip install b` <(pip install c)', ("a", "b", "c")),
        ("echo pip install a; printf 'pip install b'; echo 'pip install c", ()),
        ("pip freeze; pip list; pip uninstall -y a; pip --version", ()),
        ("ls 2>/dev/null # pip install a", None),
        ("pip install \\\n  # no\n  a", ()),
        ("pip install a; pip install\tb&pip install c\r\npip install d", ("a", "b", "c", "d")),
    ],
)
def test_what_a_script_installs(script: str, found: tuple[str, ...] | None) -> None:
    assert requirements_of([script], _FILES) == found


@pytest.mark.parametrize(
    "script", ["pip install 'unclosed", "pip install $(a", "pip <<X", "pip ${a", "uv `x"]
)
def test_a_script_that_never_closes_is_read(script: str) -> None:
    assert requirements_of([script]) is not None


@given(st.lists(st.text() | st.text("'\"`$(){}<>|&;\\\n #=-ap"), max_size=3))
def test_any_text_is_a_script(texts: list[str]) -> None:
    for requirement in requirements_of(["pip install a", *texts], _FILES) or ():
        assert is_requirement(requirement)


_WORDS = st.sampled_from(
    ["a", "b==1", "c[d]>=2,<3", "pytest", "x.y-z~=1.0", "e; python_version<'3'"]
)


@given(
    st.lists(_WORDS, min_size=1),
    st.sampled_from(
        [
            "",
            " 2>/dev/null",
            " >/dev/null 2>&1",
            " &>x",
            " | tail -1",
            " || true",
            " # no",
            " && ls",
            " ; }",
            " </dev/null",
        ]
    ),
)
def test_what_is_behind_the_packages_is_none(words: list[str], end: str) -> None:
    line = f"{{ pip install -q {shlex.join(words)}{end}"
    assert requirements_of([line]) == tuple(dict.fromkeys(words))


def test_the_kit_reads_words_as_they_are_read_here(tmp_path: Path) -> None:
    for name, text in _FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    def printed(*arguments: str) -> list[str]:
        program = [sys.executable, "-I", requirements.__file__, *arguments]
        ran = subprocess.run(program, capture_output=True, text=True, check=True, cwd=tmp_path)
        return ran.stdout.split("\0")[:-1]

    assert printed("install", "-q", "-r", "requirements.txt", "x", "./y") == [*_LISTED, "x", "./y"]
    judged = [*_DEPENDENCIES, "python", "judge.py", "-v"]
    assert printed("run", "-w", "a>=1,<2,b", "judge.py", "-v") == [
        "alone",
        "5",
        "a>=1,<2",
        "b",
        *judged,
    ]
    assert printed("run", "plain.py") == ["project", "0", "python", "plain.py"]
    assert printed("run", "-p", "3.12", "-m", "pytest", "-q") == [
        "project",
        "0",
        "python",
        "-m",
        "pytest",
        "-q",
    ]
    assert printed("run", "--", "none.py") == ["project", "0", "python", "none.py"]
    assert printed("tool", "--with=c", "ruff@1.0", "-w") == [
        "alone",
        "2",
        "c",
        "ruff==1.0",
        "ruff",
        "-w",
    ]
    assert printed("tool", "-w", "ruff==1", "ruff") == ["alone", "1", "ruff==1", "ruff"]
    assert printed("tool", "--from", "a[b]", "c") == ["alone", "1", "a[b]", "c"]
    assert printed("run") == ["project", "0"]


@pytest.mark.parametrize(
    "text",
    [
        "# /// script\n# dependencies = ['a']",  # never closed
        "# /// script\nx\n# dependencies = ['a']\n# ///",
        "# /// other\n# dependencies = ['a']\n# ///",
        "# /// script\n# dependencies = [a]\n# ///",
        "# /// script\n# requires-python = '3'\n# ///",
        "",
    ],
)
def test_a_script_without_dependencies_has_none(text: str) -> None:
    assert inline_requirements(text) == []


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Do it.", "Do it."),
        ("<!-- A Canary string -->\n\n\nDo it.\n", "Do it.\n"),
        ("# canary GUID 1\n  # CANARY 2 \n\nDo it.", "Do it."),
        ("# A heading\n# canary", "# A heading\n# canary"),
        ("\nDo it.", "Do it."),
    ],
)
def test_canary_lines_are_dropped(text: str, left: str) -> None:
    assert without_canary(text) == left


def test_names_of_marks_and_of_tasks() -> None:
    assert make_tags(["Data Science", "c++", "3d", "", "a", "a"]) == (
        "data-science",
        "c",
        "3d",
        "a",
    )
    assert make_tags(["_x", "__", "3D-Geometry", 7, None, "Überblick"]) == (
        *("x", "3d-geometry", "7", "none", "berblick"),
    )
    assert (task_id("021. tasks of x"), task_id("__"), task_id("a/b")) == (
        "021.-tasks-of-x",
        "task",
        "a-b",
    )


@given(st.lists(st.text() | st.from_regex(r"[_0-9][\w-]*")))
def test_any_text_is_a_mark_or_none(values: list[str]) -> None:
    for name in make_tags(values):
        assert re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name)


def test_a_health_check_counts_failures_after_its_start() -> None:
    def run(command: str, **times: float) -> subprocess.CompletedProcess[str]:
        defaults = {"interval_sec": 0.01, "timeout_sec": 5.0, "start_interval_sec": 0.01}
        check = HealthcheckConfig(command=command, **{**defaults, **times}, retries=3)
        script = healthcheck_setup(check)
        return subprocess.run(["bash", "-c", script], capture_output=True, text=True)

    assert run("true").returncode == 0
    failed = run("echo x >&2; false")
    assert (failed.returncode, failed.stdout) == (
        1,
        "the health check failed 3 times: echo x >&2; false\n",
    )
    assert run("[ $((RANDOM % 2)) = 1 ]", start_period_sec=5.0).returncode == 0
    assert run("sleep 9", timeout_sec=0.05).returncode == 1
