"""What is collected: bundled suites, datasets, suite files, and every way pytest selects by."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_intercode.core.task import Task
from pytest_intercode.plugin.settings import Settings
from pytest_intercode.suites.loader import load_suite
from pytest_intercode.system.files import bundled_folder
from tests.conftest import PRETEND, SUITE

ROWS = [{"query": f"Print {n}.", "gold": f"echo {n}"} for n in ("one", "two", "three")]


@pytest.fixture(scope="module")
def bundled() -> list[Task]:
    """The tasks of the bundled bash suite."""
    return list(load_suite(bundled_folder("tasks") / "bash.yaml").tasks)


def node(task_id: str, of: str = "intercode/bash") -> str:
    """Return the node id of a task."""
    return f"{of}::test_solves[{task_id}]"


def collected(result: pytest.RunResult) -> list[str]:
    """Return the node ids that a quiet collection printed."""
    return [line for line in result.outlines if "::" in line]


def write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


# -- what the options name


def test_the_bundled_suite(pytester: pytest.Pytester, bundled: list[Task]) -> None:
    result = pytester.runpytest("--intercode-env=bash", "--co", "-q")
    assert result.ret == 0
    assert collected(result) == [node(task.id) for task in bundled]


def test_the_tree_and_the_header_name_the_suite(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("--intercode-env=bash", "--co", "--intercode-limit=1")
    result.stdout.fnmatch_lines(
        ["intercode: agent (none), profile strict, sandbox docker", "<Suite intercode/bash>"]
    )
    result.stdout.no_fnmatch_line("*testpaths*")


def test_nothing_of_the_folder_is_collected(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_ordinary="def test_ordinary(): pass")
    pytester.makeini("[pytest]\ntestpaths = .\n")
    result = pytester.runpytest("--intercode-env=bash", "--intercode-limit=1", "--co", "-q")
    assert len(collected(result)) == 1
    result.stdout.no_fnmatch_line("*test_ordinary*")


def test_a_path_and_an_environment_run_both(pytester: pytest.Pytester, bundled: list[Task]) -> None:
    pytester.makepyfile(test_ordinary="def test_ordinary(): pass")
    result = pytester.runpytest(
        "test_ordinary.py", "--intercode-env=bash", "--intercode-limit=1", "--co", "-q"
    )
    assert collected(result) == ["test_ordinary.py::test_ordinary", node(bundled[0].id)]


def test_limit_takes_the_first_tasks(pytester: pytest.Pytester, bundled: list[Task]) -> None:
    result = pytester.runpytest("--intercode-env=bash", "--intercode-limit=3", "--co", "-q")
    assert collected(result) == [node(task.id) for task in bundled[:3]]


@pytest.mark.parametrize(
    "arguments",
    [("--intercode-env=bash,bash",), ("--intercode-env=bash", "--intercode-env=bash")],
)
def test_an_environment_named_twice_runs_once(
    pytester: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    result = pytester.runpytest(*arguments, "--intercode-limit=2", "--co", "-q")
    assert len(collected(result)) == 2


def test_all_environments(pytester: pytest.Pytester, bundled: list[Task]) -> None:
    result = pytester.runpytest("--intercode-env=all", "--intercode-limit=1", "--co", "-q")
    suites = sorted(path.stem for path in bundled_folder("tasks").glob("*.yaml"))
    assert node(bundled[0].id) in collected(result)
    assert sorted(i.split("::")[0] for i in collected(result)) == [f"intercode/{s}" for s in suites]


def test_several_datasets(pytester: pytest.Pytester) -> None:
    write_rows(pytester.path / "first.jsonl", ROWS[:2])
    write_rows(pytester.path / "second.jsonl", ROWS)
    result = pytester.runpytest(
        "--intercode-env=bash", "--intercode-dataset=first.jsonl,second.jsonl", "--co", "-q"
    )
    names = ["first-00000", "first-00001", "second-00000", "second-00001", "second-00002"]
    assert collected(result) == [node(name) for name in names]


def test_a_suite_as_a_dataset(pytester: pytest.Pytester, small_suite: Path) -> None:
    result = pytester.runpytest("--intercode-dataset=suite.yaml", "--co", "-q")
    assert collected(result) == [node(name) for name in ("prints", "writes", "both")]


def test_a_dataset_and_its_part_have_no_task_twice(pytester: pytest.Pytester) -> None:
    folder = pytester.mkdir("data") / "nl2bash"
    (folder / "filesystems").mkdir(parents=True)
    for n in range(1, 5):
        (folder / f"nl2bash_fs_{n}.json").write_text(json.dumps(ROWS * 20))
        (folder / "filesystems" / f"nl2bash_fs_{n}.tar.gz").touch()
    result = pytester.runpytest(
        "--intercode-data=data", "--intercode-dataset=nl2bash-fs2,nl2bash", "--co", "-q"
    )
    names = [f"nl2bash-fs{n}-{index:05d}" for n in (2, 1, 3, 4) for index in range(60)]
    assert collected(result) == [node(name) for name in names]


def test_one_id_in_two_datasets_is_refused(pytester: pytest.Pytester) -> None:
    for name in ("first", "second"):
        write_rows(pytester.path / f"{name}.jsonl", [{"id": "same", **ROWS[0]}])
    (pytester.path / "one.yaml").write_text(
        "env: bash\nrows: [{path: first.jsonl, fields: {id: id}}]\n"
    )
    (pytester.path / "two.yaml").write_text(
        "env: bash\nrows: [{path: second.jsonl, fields: {id: id}}]\n"
    )
    result = pytester.runpytest("--intercode-dataset=one.yaml,two.yaml", "--co", "-q")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: *'same' is used twice, at *first.jsonl:1 and at *:1"])


# -- pytest's own ways to select


def test_keywords(pytester: pytest.Pytester, bundled: list[Task]) -> None:
    word = bundled[0].id.split("-")[0]
    result = pytester.runpytest("--intercode-env=bash", "-k", word, "--co", "-q")
    names = [task.id for task in bundled if word in task.id or word in task.tags]
    assert collected(result) == [node(name) for name in names]


def test_marks_of_environments_and_tags(pytester: pytest.Pytester, bundled: list[Task]) -> None:
    tag = bundled[0].tags[0]
    result = pytester.runpytest("--intercode-env=bash", "-m", f"bash and not {tag}", "--co", "-q")
    assert collected(result) == [node(task.id) for task in bundled if tag not in task.tags]


def test_the_mark_of_an_environment_is_no_tags(pytester: pytest.Pytester) -> None:
    pytester.makefile(
        ".yaml",
        suite="env: bash\ntasks:\n  - {id: dump, query: q, gold: 'true', tags: [sql, text]}\n",
    )
    for expression, found in (
        ("sql", []),
        ("text", ["dump"]),
        ("bash", ["dump"]),
        ("intercode(tags=('sql', 'text'))", ["dump"]),
    ):
        result = pytester.runpytest("suite.yaml", "--co", "-q", "-m", expression)
        assert collected(result) == [node(name, "suite.yaml") for name in found]
    every = pytester.runpytest("--intercode-env=all", "-m", "sql", "--co", "-q")
    assert {name.partition("::")[0] for name in collected(every)} == {"intercode/sql"}


def test_the_mark_with_its_arguments(pytester: pytest.Pytester, bundled: list[Task]) -> None:
    result = pytester.runpytest(
        "--intercode-env=bash", "-m", "intercode(hardness='hard')", "--co", "-q"
    )
    hard = [node(task.id) for task in bundled if task.hardness == "hard"]
    assert collected(result) == hard
    assert 0 < len(hard) < len(bundled)


def test_strict_markers_know_the_tags(pytester: pytest.Pytester, small_suite: Path) -> None:
    result = pytester.runpytest("suite.yaml", "--strict-markers", "-m", "files", "--co", "-q")
    assert collected(result) == [node(name, "suite.yaml") for name in ("writes", "both")]


def test_deselect(pytester: pytest.Pytester, small_suite: Path) -> None:
    result = pytester.runpytest(
        "suite.yaml", "--deselect", node("writes", "suite.yaml"), "--co", "-q"
    )
    assert collected(result) == [node(name, "suite.yaml") for name in ("prints", "both")]


def test_exitfirst(pytester: pytest.Pytester, pretend: Path) -> None:
    result = pytester.runpytest("suite.yaml", "--intercode-agent=agents:Idle", "-x")
    result.assert_outcomes(failed=1)


def test_maxfail(pytester: pytest.Pytester, pretend: Path) -> None:
    result = pytester.runpytest("suite.yaml", "--intercode-agent=agents:Idle", "--maxfail=2")
    result.assert_outcomes(failed=2)


@pytest.mark.parametrize("beside", [(), ("test_ordinary.py",)], ids=["alone", "with-a-file"])
def test_last_failed(
    pytester: pytest.Pytester, pretend: Path, bundled: list[Task], beside: tuple[str, ...]
) -> None:
    failing = bundled[1].id
    pytester.makepyfile(test_ordinary="def test_ordinary(): pass")
    pytester.makepyfile(
        picky=f"""
        class Picky:
            def run(self, task, env):
                if task.id != {failing!r}:
                    env.step(GOLD[task.id])

        GOLD = { ({task.id: task.gold[-1] for task in bundled[:3]})!r}
        """
    )
    run = ("--intercode-env=bash", "--intercode-limit=3", "--intercode-agent=picky:Picky", *beside)
    first = pytester.runpytest(*run)
    first.assert_outcomes(passed=2 + len(beside), failed=1)
    again = pytester.runpytest(*run, "--lf")
    again.assert_outcomes(failed=1)
    again.stdout.fnmatch_lines([f"FAILED {node(failing)} *".replace("[", "[[]")])


def test_last_failed_of_a_suite_file(pytester: pytest.Pytester, pretend: Path) -> None:
    pytester.runpytest("suite.yaml", "--intercode-agent=agents:OnlyPrints").assert_outcomes(
        passed=1, failed=2
    )
    result = pytester.runpytest("suite.yaml", "--lf", "--co", "-q")
    assert collected(result) == [node(name, "suite.yaml") for name in ("writes", "both")]


# -- pasted ids


def test_pasted_ids(pytester: pytest.Pytester, bundled: list[Task]) -> None:
    wanted = [node(bundled[5].id), node(bundled[2].id)]
    result = pytester.runpytest(*wanted, "--co", "-q")
    assert sorted(collected(result)) == sorted(wanted)


def test_a_pasted_suite(pytester: pytest.Pytester, bundled: list[Task]) -> None:
    result = pytester.runpytest("intercode/bash", "--co", "-q")
    assert len(collected(result)) == len(bundled)


def test_a_pasted_id_beside_an_ordinary_file(
    pytester: pytest.Pytester, bundled: list[Task]
) -> None:
    pytester.makepyfile(test_ordinary="def test_ordinary(): pass")
    result = pytester.runpytest("test_ordinary.py", node(bundled[0].id), "--co", "-q")
    assert sorted(collected(result)) == [node(bundled[0].id), "test_ordinary.py::test_ordinary"]


def test_a_pasted_id_from_a_subfolder(
    pytester: pytest.Pytester, bundled: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]\n")
    monkeypatch.chdir(pytester.mkdir("sub"))
    result = pytester.runpytest(f"../{node(bundled[3].id)}", "--co", "-q")
    assert len(collected(result)) == 1
    assert collected(result)[0].endswith(node(bundled[3].id))


def test_a_pasted_id_of_a_suite_file(pytester: pytest.Pytester, small_suite: Path) -> None:
    result = pytester.runpytest(node("writes", "suite.yaml"), "--co", "-q")
    assert collected(result) == [node("writes", "suite.yaml")]


def test_a_pasted_id_of_a_dataset(pytester: pytest.Pytester) -> None:
    write_rows(pytester.path / "rows.jsonl", ROWS)
    result = pytester.runpytest(
        node("rows-00001"),
        "--intercode-dataset=rows.jsonl",
        "--intercode-env=bash",
        "--co",
        "-q",
    )
    assert collected(result) == [node("rows-00001")]


@pytest.mark.slow
def test_a_pasted_id_under_xdist(
    pytester: pytest.Pytester, pretend: Path, bundled: list[Task]
) -> None:
    wanted = node(bundled[4].id)
    result = pytester.run(
        *(sys.executable, "-m", "pytest", "-n2", "-rA", wanted, "--intercode-agent=oracle")
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"PASSED {wanted}".replace("[", "[[]")])


def test_an_unknown_pasted_id(pytester: pytest.Pytester, bundled: list[Task]) -> None:
    result = pytester.runpytest(node(bundled[0].id + "x"), "--co", "-q")
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        [f"ERROR: *no bundled suite or dataset has this task. Did you mean '{bundled[0].id}'?"]
    )


def test_a_folder_of_the_users_called_intercode(pytester: pytest.Pytester) -> None:
    folder = pytester.mkdir("intercode") / "bash"
    folder.mkdir()
    (folder / "test_mine.py").write_text("def test_mine(): pass")
    result = pytester.runpytest("intercode/bash", "--co", "-q")
    assert collected(result) == ["intercode/bash/test_mine.py::test_mine"]


# -- suite files


def test_suites_by_pattern(pytester: pytest.Pytester, small_suite: Path) -> None:
    small_suite.rename(pytester.mkdir("suites") / "mine.yaml")
    (pytester.path / "compose.yaml").write_text("services: {}\n")
    pytester.makeini("[pytest]\nintercode_suites = suites/*.yaml\n")
    result = pytester.runpytest("--co", "-q")
    assert collected(result) == [
        node(name, "suites/mine.yaml") for name in ("prints", "writes", "both")
    ]


def test_other_yaml_is_left_alone(pytester: pytest.Pytester, small_suite: Path) -> None:
    result = pytester.runpytest("--co", "-q")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.parametrize(
    "setting", ["python_functions = check_*", "python_files = check_*.py", "python_classes = X"]
)
def test_the_users_naming_does_not_empty_a_suite(
    pytester: pytest.Pytester, small_suite: Path, setting: str
) -> None:
    pytester.makeini(f"[pytest]\n{setting}\n")
    result = pytester.runpytest(
        "suite.yaml", "--intercode-env=bash", "--intercode-limit=1", "--co", "-q"
    )
    assert len(collected(result)) == 2


def test_two_suite_files(pytester: pytest.Pytester, small_suite: Path) -> None:
    (pytester.path / "more.yml").write_text(SUITE)
    result = pytester.runpytest("suite.yaml", "more.yml", "--co", "-q")
    assert len(collected(result)) == 6


# -- ini twins


@pytest.mark.parametrize(
    ("option", "ini", "of"),
    [
        ("--intercode-agent=oracle", "intercode_agent = oracle", lambda s: s.agents),
        (
            "--intercode-agent-arg=key=value",
            "intercode_agent_arg = key=value",
            lambda s: s.agent_arguments,
        ),
        ("--intercode-env=bash,sql", "intercode_env = bash sql", lambda s: s.environments),
        ("--intercode-dataset=a.yaml", "intercode_dataset = a.yaml", lambda s: s.datasets),
        ("--intercode-data=d", "intercode_data = d", lambda s: s.data),
        ("--intercode-profile=paper", "intercode_profile = paper", lambda s: s.profile),
        ("--intercode-max-turns=7", "intercode_max_turns = 7", lambda s: s.max_turns),
        ("--intercode-timeout=7.5", "intercode_timeout = 7.5", lambda s: s.timeout),
        (
            "--intercode-action-timeout=2",
            "intercode_action_timeout = 2",
            lambda s: s.action_timeout,
        ),
        ("--intercode-feedback=reward", "intercode_feedback = reward", lambda s: s.feedback),
        ("--intercode-limit=5", "intercode_limit = 5", lambda s: s.limit),
        ("--intercode-results=r.jsonl", "intercode_results = r.jsonl", lambda s: s.results),
        (
            "--intercode-base-image=a:1=b:2",
            "intercode_base_image = a:1=b:2",
            lambda s: s.base_images,
        ),
        ("--intercode-network", "intercode_network = true", lambda s: s.network),
        (
            "--intercode-allow-host=a.test,b.test:22",
            "intercode_allow_host = a.test b.test:22",
            lambda s: s.allow_host,
        ),
    ],
    ids=lambda value: value.split(" ")[0] if isinstance(value, str) and " =" in value else "",
)
def test_ini_twin(
    pytester: pytest.Pytester, option: str, ini: str, of: Callable[[Settings], object]
) -> None:
    default = of(Settings.of(pytester.parseconfig()))
    given = of(Settings.of(pytester.parseconfig(option)))
    pytester.makeini(f"[pytest]\n{ini}\n")
    assert of(Settings.of(pytester.parseconfig())) == given != default


def test_the_command_line_beats_the_ini_file(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nintercode_limit = 5\n")
    assert Settings.of(pytester.parseconfig("--intercode-limit=3")).limit == 3


def test_the_ini_file_selects(pytester: pytest.Pytester, bundled: list[Task]) -> None:
    pytester.makeini("[pytest]\nintercode_env = bash\nintercode_limit = 1\n")
    assert collected(pytester.runpytest("--co", "-q")) == [node(bundled[0].id)]


def test_paths_in_the_ini_file_start_at_its_folder(
    pytester: pytest.Pytester, small_suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]\nintercode_dataset = suite.yaml\nintercode_results = r.jsonl\n")
    monkeypatch.chdir(pytester.mkdir("sub"))
    assert len(collected(pytester.runpytest("--co", "-q"))) == 3
    assert Settings.of(pytester.parseconfig()).results == pytester.path / "r.jsonl"


# -- what the ini file names, with the project's own tests


@pytest.fixture
def project(pytester: pytest.Pytester, small_suite: Path) -> pytest.Pytester:
    """A project with tests of its own and two suites, one of them outside of its tests."""
    folder = pytester.mkdir("tests")
    (folder / "test_unit.py").write_text("def test_x(): pass\ndef test_y(): pass\n")
    small_suite.rename(folder / "inside.yaml")
    (pytester.mkdir("evals") / "outside.yaml").write_text(SUITE)
    return pytester


def ini(pytester: pytest.Pytester, *lines: str) -> None:
    pytester.makeini("\n".join(["[pytest]", "intercode_limit = 1", *lines]))


def short(result: pytest.RunResult) -> str:
    """Return the files that a quiet collection names, and whether all of our suite is there."""
    return " ".join(dict.fromkeys(line.split("::")[0] for line in collected(result)))


BASH, UNIT = "intercode/bash", "tests/test_unit.py"
BOTH = f"{UNIT} {BASH}"
LEFT_OUT = "intercode: intercode_env = bash (ini) is ignored, as {}: --intercode-env=bash runs it"
PATHS, TESTPATHS = LEFT_OUT.format("paths are given"), LEFT_OUT.format("testpaths is set")
BESIDE = "intercode: intercode_env = bash (ini) runs with the project's own tests"
REPLACED = "intercode: testpaths is ignored, as no path is given: only what the options name is run"


@pytest.mark.parametrize(
    ("testpaths", "arguments", "found", "note"),
    [
        ("", "", BOTH, BESIDE),
        ("", "tests", UNIT, PATHS),
        ("", "tests/test_unit.py::test_x", UNIT, PATHS),
        ("", "tests/test_unit.py::test_x --intercode-env=bash", BOTH, ""),
        ("", "--intercode-env=bash", BASH, ""),
        ("", f"{BASH}::test_solves[IDENTIFIER]", BASH, PATHS),
        ("", f"{BASH} tests/test_unit.py", BOTH, PATHS),
        ("tests", "", UNIT, TESTPATHS),
        ("tests", "--intercode-env=bash", BASH, REPLACED),
        ("tests intercode/bash", "", BOTH, TESTPATHS),
        ("tests", "evals/outside.yaml", "evals/outside.yaml", PATHS),
    ],
)
def test_the_ini_file_adds_where_nothing_else_is_named(
    project: pytest.Pytester,
    bundled: list[Task],
    testpaths: str,
    arguments: str,
    found: str,
    note: str,
) -> None:
    ini(project, "intercode_env = bash", f"testpaths = {testpaths}" if testpaths else "")
    words = arguments.replace("IDENTIFIER", bundled[0].id).split()
    result = project.runpytest(*words, "--co", "-q", "-v", "-p", "no:cacheprovider")
    names = ["evals/outside.yaml"] * ("evals" in found)
    text = result.stdout.str()
    names += [UNIT] * ("<Module test_unit.py>" in text) + [BASH] * (f"<Suite {BASH}>" in text)
    assert " ".join(names) == found
    notes = [line for line in result.outlines if line.startswith("intercode: ")][1:]
    assert notes == ([note] if note else [])


def test_suite_patterns_outside_of_testpaths(project: pytest.Pytester) -> None:
    ini(project, "testpaths = tests", "intercode_suites = evals/*.yaml tests/*.yaml")
    inside, outside = "tests/inside.yaml", "evals/outside.yaml"
    assert short(project.runpytest("--co", "-q")) == f"{inside} {UNIT} {outside}"
    assert short(project.runpytest("tests", "--co", "-q")) == f"{inside} {UNIT}"
    assert short(project.runpytest(f"{UNIT}::test_x", "--co", "-q")) == UNIT
    assert short(project.runpytest("--co", "-q", "-k", "prints")) == f"{inside} {outside}"


def test_the_ini_file_with_last_failed(project: pytest.Pytester) -> None:
    (project.path / "conftest.py").write_text(PRETEND)
    ini(project, "intercode_env = bash", "intercode_agent = agents:Idle")
    (project.path / "agents.py").write_text("class Idle:\n    def act(self, o): return 'submit'\n")
    project.runpytest().assert_outcomes(passed=2, failed=1)
    result = project.runpytest("--lf")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"FAILED {BASH}::*"])


@pytest.mark.slow
def test_the_ini_file_under_xdist(project: pytest.Pytester) -> None:
    (project.path / "conftest.py").write_text(PRETEND)
    ini(project, "intercode_env = bash", "intercode_agent = oracle")
    result = project.run(sys.executable, "-m", "pytest", "-n2")
    result.assert_outcomes(passed=3)


# -- the plugin when it is not asked for


def test_inert_without_an_option(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing_is_imported():
            heavy = {"docker", "pydantic", "yaml", "requests", "asyncio"} & set(sys.modules)
            ours = {name for name in sys.modules if name.startswith("pytest_intercode.")}
            assert not heavy
            assert ours == {
                "pytest_intercode.core",
                "pytest_intercode.core.presets",
                "pytest_intercode.core.values",
                "pytest_intercode.plugin",
                "pytest_intercode.plugin.fixtures",
                "pytest_intercode.plugin.hookspecs",
                "pytest_intercode.plugin.episode_items",
                "pytest_intercode.plugin.errors",
                "pytest_intercode.plugin.ini",
                "pytest_intercode.options",
                "pytest_intercode.options.models",
                "pytest_intercode.options.option",
                "pytest_intercode.options.parsers",
                "pytest_intercode.options.runs",
                "pytest_intercode.options.sandboxes",
                "pytest_intercode.options.table",
                "pytest_intercode.options.tasks",
                "pytest_intercode.plugin.options",
            }
        """
    )
    pytester.path.joinpath("some.yaml").write_text("a: 1\n")
    others = ("-p", "no:xdist", "-p", "no:anyio", "-p", "no:recording")
    result = pytester.run(sys.executable, "-m", "pytest", *others)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("intercode:*")


def test_a_tag_that_is_a_mark_which_acts_is_none(pytester: pytest.Pytester) -> None:
    tasks = "".join(
        f"  - {{id: {tag}, query: q, gold: 'true', tags: [{tag}]}}\n" for tag in ("flaky", "easy")
    )
    pytester.makefile(".yaml", suite=f"env: bash\ntasks:\n{tasks}")
    for expression, found in (
        ("flaky", []),
        ("easy", ["easy"]),
        ("bash", ["flaky", "easy"]),
        ("intercode(env='bash')", ["flaky", "easy"]),
    ):
        result = pytester.runpytest("suite.yaml", "--co", "-q", "-m", expression)
        ids = [line.partition("[")[2][:-1] for line in result.outlines if "::" in line]
        assert ids == found
