"""What a linter reads in Dockerfiles and scripts."""

from __future__ import annotations

import pytest

from pytest_intercode.linting.texts import (
    copied_names,
    find_line,
    is_pinned,
    kept_reward_line,
    loose_images,
    run_requirements,
    unreached_reward_line,
)

_BY_STATUS = (
    "pytest /tests\nif [ $? -eq 0 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"
)


@pytest.mark.parametrize(
    ("name", "pinned"),
    [
        ("debian", False),
        ("debian:latest", False),
        ("localhost:5000/debian", False),
        ("localhost:5000/debian:12", True),
        ("ghcr.io/owner/name@sha256:0", True),
        ("ubuntu:24.04", True),
    ],
)
def test_an_image_has_a_version(name: str, pinned: bool) -> None:
    assert is_pinned(name) is pinned


def test_images_without_a_version_have_lines() -> None:
    text = "# one\nFROM ubuntu:24.04 AS base\nFROM base\nCOPY --from=ghcr.io/uv:latest /uv /\n"
    assert list(loose_images(text)) == [("ghcr.io/uv:latest", 4)]


@pytest.mark.parametrize(
    ("instruction", "names"),
    [
        ("COPY . /app", ["a.py", "tests/x.py", "tests/in/y.py"]),
        ("COPY ./ /app", ["a.py", "tests/x.py", "tests/in/y.py"]),
        ("ADD --chown=me tests /app/tests", ["tests/x.py", "tests/in/y.py"]),
        ('COPY ["a.py", "/app/"]', ["a.py"]),
        ("COPY *.py /app/", ["a.py"]),
        ("COPY test*/*.py /app/", ["tests/x.py"]),
        ("COPY tests/x.py a.py /app/", ["tests/x.py", "a.py"]),
        ("COPY --from=base /tests /tests", []),
        ("COPY <<EOF /a\ntests\nEOF", []),
    ],
)
def test_what_an_image_copies(instruction: str, names: list[str]) -> None:
    text = f"FROM debian:12\n{instruction}\n"
    places = list(copied_names(text, ["a.py", "tests/x.py", "tests/in/y.py"]))
    assert places == [(name, 2) for name in names]


def test_packages_in_any_version() -> None:
    text = (
        "FROM python:3.13\nRUN pip install pytest==8.4.1 numpy \\\n  'pandas>=2'\n"
        "RUN apt-get install -y curl\nRUN uv pip install --system httpx==0.28.1\n"
    )
    assert list(run_requirements(text)) == [(["numpy", "pandas>=2"], 2)]


@pytest.mark.parametrize(
    ("script", "line"),
    [
        (f"#!/bin/bash\nset -e\n{_BY_STATUS}", 2),
        (f"#!/bin/bash\n  set -euo pipefail\n{_BY_STATUS}", 2),
        (f"#!/bin/bash -e\n{_BY_STATUS}", 1),
        (f"#!/bin/bash\n{_BY_STATUS}", 0),
        (f"#!/bin/bash\nset -u\n{_BY_STATUS}", 0),
        (f"set -e\napt-get update\nset +e\n{_BY_STATUS}", 0),
        (f"set -e\ntrap 'echo 0 > /logs/verifier/reward.txt' EXIT\n{_BY_STATUS}", 0),
        ("set -e\npytest && code=0 || code=$?\necho $code > /logs/verifier/reward.txt\n", 0),
        ("set -e\nif pytest; then echo 1 > /logs/verifier/reward.txt; fi\n", 0),
    ],
)
def test_a_reward_that_is_not_reached(script: str, line: int) -> None:
    assert unreached_reward_line(script) == line


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("pytest && echo 1 > /logs/verifier/reward.txt\n", 1),
        ("if pytest; then\n  echo 1 > /logs/verifier/reward.txt\nfi\n", 2),
        ("if pytest; then\n  echo 1 > $D/reward.txt\nelse\n  echo 0 > $D/reward.txt\nfi\n", 0),
        ("echo 0 > /logs/verifier/reward.txt\npytest && echo 1 > /logs/verifier/reward.txt\n", 0),
        ("pytest && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n", 0),
        ("echo 1 > /logs/verifier/reward.txt\n", 0),
        ("python grade.py > /logs/verifier/reward.json\n", 0),
    ],
)
def test_a_reward_that_an_agent_may_have_left(script: str, line: int) -> None:
    assert kept_reward_line(script) == line


def test_much_of_everything_is_read_in_time() -> None:
    assert unreached_reward_line("\n" * 1_000_000) == 0
    assert kept_reward_line(f"x && {'echo 1 > ' * 100_000}reward.txt") == 0


def test_a_line_of_a_text() -> None:
    assert find_line("a\n[verifier]\nb", r"^\[verifier\]") == 2
    assert find_line("a", "b") == 0
