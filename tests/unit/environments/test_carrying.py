"""What of an end state is carried into a verifier."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_intercode.core.task import FileSpec, Repository, Task, Verification
from pytest_intercode.environments.swe.carrying import (
    Carrying,
    GoldPaths,
    Programs,
    read_survey,
    topmost,
)
from pytest_intercode.environments.swe.fields import SweFields
from pytest_intercode.sandboxes.protocol import Changes, Entry

FILE, FOLDER, LINK = Entry("f", 0o644, 0, 0), Entry("d", 0o755, 0, 0), Entry("l", 0o777, 0, 0)
PROGRAMS = Programs(
    folders=Programs().folders | {"/usr/local", "/app/.venv", "/conda"},
    homes=frozenset({"/root", "/home/dev"}),
    modules=frozenset({"iniconfig", "pytest", "shlex", "json"}),
    files=frozenset({"Test/More.pm", "socket.lua"}),
)


def task(*, repository: str = "", workdir: str = "/app", gold: str = "true", **fields: Any) -> Task:
    verification = Verification(fields.pop("command", "true"), **fields)
    source = Repository(at=repository) if repository else None
    made: dict[str, Any] = {"workdir": workdir, "verification": verification}
    return Task("t", "q", (gold,), "swe", "s", "s", fields=SweFields(source), **made)


def patch(*paths: str) -> str:
    return "".join(f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n" for path in paths)


def changes(*paths: str, new: bool = False, **others: Entry | None) -> Changes:
    """Return changes of files, which are new or were files before."""
    entries = {**dict.fromkeys(paths, FILE), **others}
    return Changes(entries, dict.fromkeys(entries, None if new else FILE))


def left_out(made: Task, paths: list[str], gold: GoldPaths | None = None, **how: Any) -> set[str]:
    carrying = Carrying(made, PROGRAMS, lambda: gold or GoldPaths())
    return carrying.left_out(changes(*paths, **how), paths)


@pytest.mark.parametrize(
    "path",
    [
        *("/app/out.txt", "/app/bin/tool", "/app/src/calc.py", "/app/tests/test_mine.py"),
        *("/app/build", "/data/rows.csv", "/srv/www/index.html", "/tmp/x", "/var/www/a.html"),
        *("/var/log/run.log", "/home/dev/notes.md", "/opt/tool/x", "/library/book", "/run/x.pid"),
        *("/app/latest/notes.md", "/app/testing.c", "/app/contest.py", "/app/repo.git/HEAD"),
    ],
)
def test_work_and_data_are_carried(path: str) -> None:
    assert left_out(task(), [path]) == set()


@pytest.mark.parametrize(
    "path",
    [
        # programs, libraries, and how they are found and set up
        *("/usr/bin/find", "/usr/bin/new", "/bin/sh", "/usr/local/bin/uv", "/sbin/ldconfig"),
        *("/usr/lib/x86_64-linux-gnu/libtinfo.so.6", "/lib64/ld-linux-x86-64.so.2"),
        *("/etc/ld.so.preload", "/etc/ld.so.cache", "/etc/profile", "/etc/passwd", "/etc/hosts"),
        *("/conda/envs/x/lib/python3.9/shlex.py", "/app/.venv/bin/python"),
        # packages, and what interpreters read by themselves
        *("/usr/lib/python3.11/shlex.py", "/app/lib/python3.11/site-packages/x.pth"),
        *("/app/x.pth", "/app/sitecustomize.py", "/app/X.DIST-INFO/entry_points.txt"),
        *("/app/x.Egg-Info/PKG-INFO", "/app/calc.pyc", "/node_modules/x/index.js"),
        *("/app/META-INF/services/org.junit.X", "/app/lib/minitest/x_plugin.rb"),
        # build files, and settings of test runners
        *("/app/Makefile", "/app/GNUmakefile", "/app/rules.mk", "/app/CMakeLists.txt"),
        *("/app/package.json", "/app/jest.config.mjs", "/app/go.mod", "/app/main_test.go"),
        *("/app/conftest.py", "/pytest.ini", "/app/deep/.pytest.toml", "/app/setup.py"),
        *("/app/.git/config", "/app/.git/hooks/post-checkout", "/app/BUILD", "/app/pom.xml"),
        # settings in homes
        *("/root/.bashrc", "/root/.local/bin/uvx", "/home/dev/.config/pip/pip.conf"),
        *("/root/.local/lib/python3.11/site-packages/x.py", "/home/dev/.npmrc"),
        *("/var/lib/dpkg/info/libc-bin.postinst", "/var/lib/gems/x.rb"),
    ],
)
def test_what_programs_load_is_not_carried_unless_gold_changes_it(path: str) -> None:
    assert left_out(task(), [path]) == {path}
    assert left_out(task(), [path], GoldPaths(frozenset({path}))) == set()
    assert left_out(task(carried=(path,)), [path]) == set()


@pytest.mark.parametrize(
    "path",
    [
        # a link or a file in place of a folder that programs are below, or load from
        *("/app/.git", "/app/x.git", "/app/.git/modules", "/app/.git/modules/x", "/app/twisted"),
        *("/app/META-INF", "/app/lib/minitest", "/app/.git/info", "/app/.git/commondir"),
        *("/app/tools", "/opt", "/home/dev", "/root", "/home"),
    ],
)
@pytest.mark.parametrize("entry", [FILE, LINK, None])
def test_what_replaces_a_folder_above_programs_is_not_carried(
    path: str, entry: Entry | None
) -> None:
    folders = PROGRAMS.folders | {"/app/tools/linux/bin", "/opt/x/bin"}
    carrying = Carrying(task(), replace(PROGRAMS, folders=folders))
    assert carrying.left_out(Changes({path: entry}, {path: FOLDER}), [path]) == {path}
    assert carrying.left_out(Changes({path: FOLDER}, {path: FOLDER}), [path]) == set()


def test_a_folder_in_place_of_a_file_of_settings_is_not_carried() -> None:
    paths = ["/app/conftest.py", "/app/GNUmakefile", "/app/build"]
    state = Changes(dict.fromkeys(paths, FOLDER), dict.fromkeys(paths, FILE))
    assert Carrying(task(), PROGRAMS).left_out(state, paths) == set(paths[:2])
    new = Changes(state.entries, dict.fromkeys(paths))
    assert Carrying(task(), PROGRAMS).left_out(new, paths) == set()


def test_a_folder_that_is_gone_stays_where_programs_load_something_in_it() -> None:
    paths = ["/app/ci", "/app/ci/rules.mk", "/app/old", "/app/old/notes.md"]
    state = Changes({"/app/ci": LINK, **dict.fromkeys(paths[1:])}, {})
    assert Carrying(task(), PROGRAMS).left_out(state, paths) == set(paths[:2])
    gold = GoldPaths.of_changes(Changes({"/app/ci": None}, {"/app/ci": FOLDER}))
    assert Carrying(task(), PROGRAMS, lambda: gold).left_out(state, paths) == set()


@pytest.mark.parametrize(
    ("path", "out"),
    [
        *[(".mailmap", True), (".github/x.yml", True), ("deep/.flake8", True), (".a/b/c", True)],
        *[(".gitignore", False), ("data/.gitkeep", False), (".git/objects/ab/c", False)],
        *[(".gitattributes", True), ("x..y", False), ("file.", False)],
    ],
)
def test_hidden_files_of_the_work_are_settings(path: str, out: bool) -> None:
    for made in (task(), task(repository="/app")):
        assert left_out(made, [f"/app/{path}"]) == ({f"/app/{path}"} if out else set())
    assert left_out(task(), [f"/data/{path}"]) == (
        {f"/data/{path}"} if path == ".gitattributes" else set()
    )
    assert left_out(task(carried=("/app",)), [f"/app/{path}"]) == set()


def test_a_hidden_folder_is_carried_as_a_whole_where_gold_changes_some_of_it() -> None:
    gold = GoldPaths(frozenset({"/app/.cache/a"}))
    paths = ["/app/.cache/b", "/app/.cache/Makefile", "/app/.other"]
    assert left_out(task(), paths, gold) == set(paths[1:])


def test_what_the_command_names_is_named_from_where_it_runs() -> None:
    made = task(repository="/repo", workdir="/repo/sub", command="sh ./check; cd deep; sh run")
    paths = ["/repo/sub/check", "/repo/sub/run", "/repo/check", "/repo/sub/deep/run"]
    assert left_out(made, paths) == set(paths[:3])


def test_elsewhere_than_in_a_repository_what_is_named_is_the_work() -> None:
    assert left_out(task(command="python3 main.py"), ["/app/main.py"]) == set()


def test_a_folder_of_data_is_made_no_package_of_the_verifier_s() -> None:
    paths = ["/app/json/__init__.py", "/app/json/rows.txt"]
    state = Changes(dict.fromkeys(paths, FILE), dict.fromkeys(paths))
    assert Carrying(task(), PROGRAMS).left_out(state, paths) == {paths[0]}


def test_headers_and_searched_folders_are_looked_in_first() -> None:
    programs = replace(
        PROGRAMS, files=frozenset({"assert.h", "sys/types.h"}), searched=frozenset({"/app/py"})
    )
    paths = ["/app/include/assert.h", "/app/src/sys/types.h", "/app/py/shlex.py"]
    paths += ["/app/types.h", "/app/deep/py/shlex.py"]
    state = changes(*paths, new=True)
    assert Carrying(task(), programs).left_out(state, paths) == set(paths[:3])


def test_a_folder_that_gold_makes_is_gold_s_with_all_that_is_in_it() -> None:
    gold = GoldPaths(frozenset({"/usr/share/nginx"}), frozenset({"/usr/share/nginx"}))
    assert left_out(task(), ["/usr/share/nginx/html/x", "/usr/share/x"], gold) == {"/usr/share/x"}


def test_data_of_a_program_are_carried_as_a_whole() -> None:
    gold = GoldPaths(frozenset({"/var/lib/mysql/db/a", "/var/lib/dpkg/status"}))
    paths = ["/var/lib/mysql/db/b", "/var/lib/other/x", "/var/lib/dpkg/info/x.postinst"]
    assert left_out(task(), paths, gold) == set(paths[1:])


@pytest.mark.parametrize(
    ("path", "out"),
    [
        ("src/calc.py", False),
        ("contest.py", False),
        ("latest/notes.md", False),
        ("testing.c", False),
        ("Makefile", True),
        ("tests/helper.py", True),
        ("src/test/java/A.java", True),
        ("pkg/calc_test.go", True),
        ("test_calc.py", True),
        ("web/app.test.tsx", True),
        ("t/basic.t", True),
        ("deep/conftest.py", True),
        ("lib/evil.pth", True),
        (".gitattributes", True),
        ("sub/.bashrc", True),
        ("bin/check", True),
        ("bin/other", False),
        ("checks.py", True),
    ],
)
def test_tests_and_what_runs_them_are_left_out_of_a_repository(path: str, out: bool) -> None:
    made = task(
        repository="/repo", command="cd . && ./bin/check -v", pass_to_pass=("checks.py::a",)
    )
    assert left_out(made, [f"/repo/{path}"]) == ({f"/repo/{path}"} if out else set())
    gold = GoldPaths.of_patches(task(repository="/repo", gold=patch(path)))
    assert left_out(made, [f"/repo/{path}"], gold) == set()


def test_a_repository_in_a_home_has_no_settings_of_the_home() -> None:
    carrying = Carrying(task(repository="/root"), PROGRAMS)
    assert carrying.left_out(changes("/root/.gitignore"), ["/root/.gitignore"]) == set()


@pytest.mark.parametrize("entry", [FILE, LINK])
def test_what_stands_in_the_way_of_tests_is_left_out(entry: Entry) -> None:
    files = {"checks/test_add.py": FileSpec("file", b"")}
    made = task(repository="/repo", workdir="/repo", files=files, patch=patch("more/test_b.py"))
    paths = ["/repo/checks", "/repo/more", "/repo/checks.py"]
    state = Changes(dict.fromkeys(paths, entry), {})
    assert Carrying(made, PROGRAMS).left_out(state, paths) == set(paths[:2])


def test_tests_that_are_brought_are_not_gold_s() -> None:
    made = task(repository="/repo", gold=patch("tests/a", "tests/b"), patch=patch("tests/b"))
    gold = GoldPaths.of_patches(made)
    assert left_out(made, ["/repo/tests/a", "/repo/tests/b"], gold) == {"/repo/tests/b"}


@pytest.mark.parametrize(
    ("paths", "out"),
    [
        (["/app/iniconfig.py"], True),
        (["/app/src/shlex.so"], True),
        (["/app/pytest/__init__.py", "/app/pytest/x.py"], True),
        (["/app/json/data.txt"], False),
        (["/app/pytest.md"], False),
        (["/app/deep/iniconfig.py"], False),
        (["/app/mine.py"], False),
        (["/app/lib/Test/More.pm"], True),
        (["/app/lib/Test/Mine.pm"], False),
        (["/app/socket.lua"], True),
    ],
)
def test_new_modules_that_stand_for_the_verifier_s_own_are_left_out(
    paths: list[str], out: bool
) -> None:
    made = task()
    tops = {f"/app/{path.split('/')[2]}": FOLDER for path in paths if path.count("/") > 2}
    state = Changes({**dict.fromkeys(paths, FILE), **tops}, dict.fromkeys([*paths, *tops]))
    assert Carrying(made, PROGRAMS).left_out(state, paths) == (set(paths) if out else set())
    known = Changes(state.entries, dict.fromkeys(state.entries, FILE))
    assert Carrying(made, PROGRAMS).left_out(known, paths) == set()


def test_gold_is_asked_only_where_something_would_be_left_out() -> None:
    def fail() -> GoldPaths:
        raise AssertionError("gold is not needed")

    carrying = Carrying(task(), PROGRAMS, fail)
    assert carrying.left_out(changes("/app/x"), ["/app/x"]) == set()


def test_caches_are_nothing() -> None:
    carrying = Carrying(task(), PROGRAMS)
    names = ["__pycache__/x.pyc", ".pytest_cache/v/x", ".bash_history"]
    assert all(carrying.is_cache(f"/app/{name}") for name in names)
    assert not carrying.is_cache("/app/cache")


def test_a_survey_says_what_programs_load_from() -> None:
    lines = ["home /home/dev", "home /", "home /usr/games", "path /app/bin", "path /opt/x/bin"]
    lines += ["prefix /srv/tool/bin", "prefix /app/bin", "venv /app/env/pyvenv.cfg", "module os"]
    lines += ["file Test/More.pm", "library /app/lib", "path ", "path relative"]
    lines += ["search /app/py", "search /srv/py", "search /", "search ", "search py"]
    programs = read_survey("\0".join([*lines, ""]).encode(), ["/app"])
    added = programs.folders - Programs().folders
    assert added == {"/app/bin", "/opt/x", "/srv/tool", "/app/env", "/app/lib", "/srv/py"}
    assert programs.searched == {"/app/py"}
    assert programs.homes == {"/root", "/home/dev"}
    assert programs.modules == {"os"}
    assert programs.files == {"Test/More.pm"}


def test_gold_s_paths_come_from_its_changes() -> None:
    state = Changes({"/a": FOLDER, "/a/b": FILE, "/c": None}, {"/a": None, "/a/b": None})
    gold = GoldPaths.of_changes(state)
    assert "/a/other" in gold
    assert "/c" in gold
    assert "/d" not in gold


def test_the_topmost_paths_stand_for_the_others() -> None:
    assert topmost(["/b", "/a/x", "/a", "/a/x/y", "/ab"]) == ["/a", "/ab", "/b"]
