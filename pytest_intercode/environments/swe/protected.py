"""Which changes of an agent are not tested, though they are part of its patch.

A verdict rests on tests and on what runs them. What an agent did to these stays out of the test
run, unless gold changes the same file: then the task asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pytest_intercode.core.task import Task
from pytest_intercode.environments.swe.gold import is_patch, paths_of_patch

__all__ = ["left_out", "stands_for"]

# Tests and their helpers; what configures or extends a test runner; what git, an interpreter or a
# shell reads by itself.
_PATTERNS = re.compile(
    r"(?:.*/)?(?:"
    r"(?:tests?|__tests__|spec|t)/.*"
    r"|(?:test_[^/]*|[^/]*_tests?)\.(?:py|go|c|lua|sh|pl|rb)"
    r"|[^/]*[.-](?:test|spec)\.[cm]?[jt]sx?"
    r"|[^/]*\.(?:t|bats)"
    r"|conftest\.py|pyproject\.toml|\.?pytest\.(?:ini|toml)|tox\.ini|setup\.cfg|\.coveragerc"
    r"|(?:site|user)customize\.py|[^/]*\.(?:pth|egg-link)|[^/]*\.(?:dist|egg)-info/.*"
    r"|\.(?:bash|z?sh|profile)[^/]*|\.npmrc|\.mocharc[^/]*|(?:jest|vitest)\.config\.[^/]*"
    r"|\.git(?:attributes|modules)"
    r")",
    re.DOTALL,
)


# Of a whole machine: what every script of tests runs, and what loaders, shells, interpreters and
# test runners read by themselves.
_PROGRAMS = (
    "[ ash awk base64 basename bash busybox cat chmod chown cmp cp cut dash date diff dirname dpkg "
    "dpkg-query echo egrep env expr false fgrep find gawk getent grep gzip head id install ln ls "
    "mawk md5sum mkdir mktemp mv od perl printf python readlink realpath rm runuser sed seq "
    "setpriv setsid sh sha256sum sleep sort stat sync tac tail tar tee test timeout touch tr true "
    "uname uniq wc which whoami xargs"
)
_PROGRAM = re.compile(r"/(?:usr/(?:local/)?)?s?bin/(([^/]+?)(?:3(?:\.\d+)?)?)")
_LIBRARY = re.compile(
    r"/(?:usr/)?lib(?:32|64)?/(?:[^/]+-linux-[^/]+/)?(?:ld-|lib(?:c|dl|m|pthread|rt)[.-])[^/]*"
)
_CONFIGURATION = re.compile(
    r"/etc/ld\.so\.preload|/etc/(?:profile|bash\.bashrc|environment)"
    r"|/(?:conftest\.py|pyproject\.toml|\.?pytest\.(?:ini|toml)|tox\.ini|setup\.cfg)"
    r"|/.*/(?:site|user)customize\.py"
    r"|/opt/verifier-kit(?:/.*)?"
)


def stands_for(path: str) -> tuple[str, ...] | None:
    """Return what of an image a changed path takes the place of, if a verdict rests on that.

    Such a change is not carried into a verifier where the image has one of the paths. What is new
    and takes nobody's place is carried: a task may well be to install Python.

    Returns:
        Paths; none at all for what is never carried; None for all else.
    """
    if _CONFIGURATION.fullmatch(path):
        return ()
    program = _PROGRAM.fullmatch(path)
    if program is not None and program[2] in _PROGRAMS.split():
        return (path, f"/usr/bin/{program[1]}", f"/bin/{program[1]}")
    return (path,) if _LIBRARY.fullmatch(path) else None


def left_out(task: Task, changed: Iterable[str]) -> Iterator[str]:
    """Yield those changed paths of a task with a verification that are not tested.

    Args:
        task: the task.
        changed: paths, relative to the repository.
    """
    verification = task.verification
    assert verification is not None
    names = (*verification.fail_to_pass, *verification.pass_to_pass)
    named = {name.partition("::")[0] for name in names if "::" in name}
    asked = {path for gold in task.gold if is_patch(gold) for path in paths_of_patch(gold)}
    brought = paths_of_patch(verification.patch)
    for path in changed:
        if path in brought or (path not in asked and (path in named or _PATTERNS.fullmatch(path))):
            yield path
