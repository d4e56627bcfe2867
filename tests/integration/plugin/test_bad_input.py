"""Whatever is wrong in what the user gives is one clear line, and no traceback of ours."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path

import pytest

from tests.conftest import PRETEND, SUITE


def assert_usage_error(result: pytest.RunResult, message: str) -> None:
    """Check that a run ended at once, with one line."""
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = [line for line in result.errlines if line]
    assert len(said) == 1, said
    result.stderr.fnmatch_lines([f"ERROR: {message}"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")
    result.stdout.no_fnmatch_line("* in *s")  # no summary: nothing was run


def assert_collection_error(result: pytest.RunResult, message: str) -> None:
    """Check that a file could not be collected, and that the reason is one line."""
    assert result.ret == pytest.ExitCode.INTERRUPTED
    start = next(n for n, line in enumerate(result.outlines) if "_ ERROR collecting" in line)
    end = next(n for n, line in enumerate(result.outlines) if "short test summary" in line)
    said = result.outlines[start + 1 : end]
    assert len(said) == 1, said
    result.stdout.fnmatch_lines([message])


def brief(value: str) -> str:
    """Return what a test's name shows of a value: short ones as they are, of others nothing."""
    return value if len(value) <= 45 and value.isprintable() and "*" not in value else ""


# -- options


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            "--intercode-env=bsah",
            "--intercode-env=bsah: allowed are bash, sql, python, ctf, swe, all. "
            "Did you mean 'bash'?",
        ),
        (
            "--intercode-profile=papr",
            "--intercode-profile=papr: allowed are strict, paper. Did you mean 'paper'?",
        ),
        (
            "--intercode-feedback=rewards",
            "--intercode-feedback=rewards: allowed are observation, reward. Did you mean 'reward'?",
        ),
        (
            "--intercode-dataset=nl2bahs",
            "--intercode-dataset=nl2bahs: there is no such dataset. Did you mean 'nl2bash'? "
            "Allowed: *nl2bash*",
        ),
        (
            "--intercode-max-turns=0",
            "--intercode-max-turns=0: a whole number above 0 is needed, found '0'",
        ),
        ("--intercode-max-turns=-3", "--intercode-max-turns=-3: a whole number above 0 *'-3'"),
        ("--intercode-max-turns=1.5", "--intercode-max-turns=1.5: a whole number above 0 *'1.5'"),
        ("--intercode-limit=some", "--intercode-limit=some: a whole number above 0 *'some'"),
        (
            "--intercode-timeout=soon",
            "--intercode-timeout=soon: a number of seconds above 0 is needed, found 'soon'",
        ),
        ("--intercode-timeout=nan", "--intercode-timeout=nan: a number of seconds *'nan'"),
        ("--intercode-timeout=inf", "--intercode-timeout=inf: a number of seconds *'inf'"),
        ("--intercode-action-timeout=-1", "--intercode-action-timeout=-1: a number of *'-1'"),
        (
            "--intercode-agent-arg=value",
            "--intercode-agent-arg value: the form KEY=VALUE is needed, found 'value'",
        ),
        ("--intercode-base-image==x", "--intercode-base-image =x: the form NAME=REPLACEMENT *"),
    ],
    ids=brief,
)
@pytest.mark.parametrize("beside", ["--intercode-env=bash", "suite.yaml"])
def test_values_of_options(
    pytester: pytest.Pytester, small_suite: Path, option: str, message: str, beside: str
) -> None:
    assert_usage_error(pytester.runpytest(beside, option), message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "--intercode-docker-host=far --intercode-docker-host=far",
            "--intercode-docker-host=far: is given twice; name each once",
        ),
        (
            "--intercode-docker-host=tcp://far",
            "--intercode-docker-host=tcp://far: unix://PATH, * is needed, found 'tcp://far'",
        ),
        (
            "--intercode-docker-host=no-such-context",
            "--intercode-docker-host=no-such-context: there is no such Docker context in *",
        ),
        (
            "--intercode-docker-host=far --intercode-sandbox=bubblewrap",
            "--intercode-docker-host=far: bubblewrap has no hosts, only docker does; remove it*",
        ),
        (
            "--intercode-docker-host=far --intercode-cluster=local:2",
            "--intercode-docker-host: a cluster's nodes have their own engines; leave out *",
        ),
    ],
    ids=brief,
)
@pytest.mark.usefixtures("small_suite")
def test_docker_hosts(pytester: pytest.Pytester, options: str, message: str) -> None:
    assert_usage_error(pytester.runpytest("suite.yaml", *options.split()), message)


@pytest.mark.parametrize("line", ["intercode_limit = x", "intercode_network = perhaps"])
def test_values_of_the_ini_file(pytester: pytest.Pytester, small_suite: Path, line: str) -> None:
    pytester.makeini(f"[pytest]\nintercode_suites = suite.yaml\n{line}\n")
    value = line.rpartition(" ")[2]
    assert_usage_error(pytester.runpytest("--intercode-env=bash"), f"*{value}*")
    assert_usage_error(pytester.runpytest("suite.yaml"), f"*{value}*")
    assert_collection_error(pytester.runpytest("."), f"*{value}*")


def test_an_option_that_is_not_there(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("--intercode-nothing=1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.usefixtures("small_suite")
@pytest.mark.parametrize("path", ["agents.py/r.jsonl", "folder"])
def test_results_that_cannot_be_written(pytester: pytest.Pytester, path: str) -> None:
    pytester.mkdir("folder")
    result = pytester.runpytest(
        "suite.yaml", "--intercode-agent=oracle", f"--intercode-results={path}"
    )
    assert_usage_error(result, f"--intercode-results=*{path}: cannot be written: *")


@pytest.mark.usefixtures("pretend")
def test_results_of_the_ini_file_that_cannot_be_written(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nintercode_results = agents.py/r.jsonl\nintercode_agent = oracle\n")
    message = "--intercode-results=*agents.py/r.jsonl: cannot be written: *"
    assert_usage_error(pytester.runpytest("suite.yaml"), message)


@pytest.mark.usefixtures("pretend")
def test_results_that_cannot_be_written_by_the_controller(pytester: pytest.Pytester) -> None:
    """Where nothing on the command line is ours, the first report is what opens the file."""
    pytester.makeini(
        "[pytest]\nintercode_results = agents.py/r.jsonl\nintercode_agent = oracle\n"
        "intercode_suites = suite.yaml\n"
    )
    result = pytester.runpytest(".")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["!*--intercode-results=*agents.py/r.jsonl: cannot be written: *!"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


@pytest.mark.usefixtures("small_suite")
def test_a_dry_run_leaves_the_results_alone(pytester: pytest.Pytester) -> None:
    Path("r.jsonl").write_text("precious\n")
    pytester.runpytest("suite.yaml", "--co", "--intercode-results=r.jsonl")
    assert Path("r.jsonl").read_text() == "precious\n"


# -- agents

MODULES = {
    "raising": "raise RuntimeError('no key given')\n",
    "needy": "import not_installed_anywhere\n",
    "wrong": "def f(:\n    pass\n",
    "kinds": """
class Neither:
    def action(self, observation): ...

class Fine:
    def act(self, observation): ...

fine = Fine()
number = 3

def three(a, b, c): ...
def none(): ...
""",
}


@pytest.mark.usefixtures("small_suite")
@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("agent", "--intercode-agent=agent: an agent is module:Attr, path/to/file.py:Attr, *"),
        (
            "agents",
            "--intercode-agent=agents: name the class or function, too: agents:Solver, agents:Idle "
            "or agents:OnlyPrints",
        ),
        ("raising.py", "*/raising.py has no class with act(observation) or run(task, env), and *"),
        ("wrong.py", "*/wrong.py:1: not valid Python: *"),
        ("no/file.py", "--intercode-agent=no/file.py: there is no file */no/file.py"),
        ("orcale", "--intercode-agent=orcale: an agent is *. Did you mean 'oracle'?"),
        (":Agent", "--intercode-agent=:Agent: an agent is *"),
        ("agents:", "--intercode-agent=agents:: an agent is *"),
        ("nowhere:Agent", "--intercode-agent=nowhere:Agent: there is no module 'nowhere' in *"),
        ("agents.more:Agent", "--intercode-agent=agents.more:Agent: *no*module*agents.more*"),
        ("no/file.py:Agent", "--intercode-agent=no/file.py:Agent: there is no file */no/file.py"),
        (
            "agents:Solvr",
            "--intercode-agent=agents:Solvr: agents has no 'Solvr'. Did you mean 'Solver'?",
        ),
        ("agents.py:Solvr", "*: agents.py has no 'Solvr'. Did you mean 'Solver'?"),
        (
            "raising:Agent",
            "*: importing raising raised RuntimeError: no key given (*raising.py:1)",
        ),
        ("needy:Agent", "*: importing needy raised ModuleNotFoundError: *(*needy.py:1)"),
        ("wrong:Agent", "*: importing wrong raised SyntaxError: *(*wrong.py:1)"),
        ("wrong.py:Agent", "*: importing wrong.py raised SyntaxError: *(*wrong.py:1)"),
        ("kinds:Neither", "*: the class has neither act(observation) nor run(task, env)"),
        ("kinds:fine", "*: this is an instance; name its class, so that every episode gets *"),
        ("kinds:number", "*: 3 is neither a class nor a callable"),
        (
            "kinds:three",
            "*: a callable takes (observation) or (task, env), but this one takes 3 positional *",
        ),
        ("kinds:none", "*: a callable takes (observation) or (task, env), but this one takes 0 *"),
        ("replay:nowhere.jsonl", "*nowhere.jsonl: there is no such results file"),
        ("replay:agents.py", "*agents.py:1: not JSON: *"),
        ("replay:some.json", "*some.json, row 0: not a recorded episode: it has no turn_history*"),
    ],
    ids=brief,
)
def test_agents(pytester: pytest.Pytester, agent: str, message: str) -> None:
    pytester.makepyfile(**MODULES)
    Path("some.json").write_text('[{"task_id": 1}]')
    result = pytester.runpytest("suite.yaml", f"--intercode-agent={agent}")
    assert_usage_error(result, message)


@pytest.mark.usefixtures("small_suite")
@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("agents:Solver", "*Solver() cannot be called with the arguments given by *'nothing'*"),
        ("oracle", "--intercode-agent-arg nothing=...: the agent 'oracle' takes no arguments"),
        ("functions:step", "--intercode-agent-arg nothing=...: * takes no arguments"),
    ],
    ids=brief,
)
def test_arguments_of_agents(pytester: pytest.Pytester, agent: str, message: str) -> None:
    pytester.makepyfile(functions="def step(observation): ...")
    result = pytester.runpytest(
        "suite.yaml", f"--intercode-agent={agent}", "--intercode-agent-arg=nothing=1"
    )
    assert_usage_error(result, message)


@pytest.mark.usefixtures("small_suite")
def test_an_agent_under_xdist(pytester: pytest.Pytester) -> None:
    result = pytester.run(
        *(sys.executable, "-m", "pytest", "-n2", "suite.yaml", "--intercode-agent=agents:Solvr")
    )
    assert_usage_error(result, "*: agents has no 'Solvr'. Did you mean 'Solver'?")


@pytest.mark.usefixtures("pretend")
def test_no_agent_ends_the_run_once(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("suite.yaml")
    result.assert_outcomes(errors=1)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["no agent to test: give --intercode-agent=module:Attr *"])


@pytest.mark.usefixtures("pretend")
def test_no_agent_is_said_once(pytester: pytest.Pytester) -> None:
    text = pytester.runpytest("suite.yaml", "-k", "prints").stdout.str()
    failures = text.partition("= ERRORS =")[2].partition("= short test summary")[0]
    assert failures.count("no agent to test") == 1
    assert "During handling" not in text


@pytest.mark.usefixtures("pretend")
def test_a_test_of_the_users_is_skipped_without_an_agent(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_mine="""
        import pytest

        @pytest.mark.intercode(suite="suite.yaml", ids="prints")
        def test_prints(intercode_episode):
            assert intercode_episode.reward == 1.0

        def test_ordinary():
            pass
        """
    )
    pytester.makeini("[pytest]\nintercode_suites = *.yaml\n")
    result = pytester.runpytest("-rs")
    result.assert_outcomes(passed=1, skipped=4)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "intercode: no agent to test, 4 tests skipped: give --intercode-agent=AGENT, or set "
            "intercode_agent in the ini file",
            "SKIPPED * no agent to test: give --intercode-agent=*",
        ]
    )
    result = pytester.runpytest("--intercode-agent=agents:Solver")
    result.assert_outcomes(passed=5)
    result.stdout.no_fnmatch_line("*no agent*")


@pytest.mark.usefixtures("pretend")
@pytest.mark.parametrize(
    "options",
    [(), ("-q",), pytest.param(("-n2",), marks=pytest.mark.slow)],
    ids=["inline", "quiet", "xdist"],
)
def test_a_run_of_nothing_but_tests_without_an_agent_fails(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    pytester.makepyfile(
        test_mine="""
        import pytest

        @pytest.mark.intercode(suite="suite.yaml", ids="prints")
        def test_prints(intercode_episode):
            assert intercode_episode.reward == 1.0

        @pytest.mark.skip
        def test_another():
            pass
        """
    )
    result = pytester.runpytest_subprocess("test_mine.py", *options)
    result.assert_outcomes(skipped=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["intercode: no agent to test, 1 test skipped: *; no other test ran, so the run fails"]
    )


# -- hooks of the user's

HOOK = """
def helper():
    raise ValueError("no\\nluck")

def pytest_intercode_{}:
    helper()
"""


@pytest.mark.usefixtures("small_suite")
@pytest.mark.parametrize(
    ("hook", "outcomes"),
    [
        ("modify_tasks(tasks)", {"errors": 1}),
        ("make_agent(task)", {"errors": 3}),
        ("make_environment(task)", {"errors": 3}),
        ("log_episode(episode)", {"failed": 3}),
    ],
)
@pytest.mark.parametrize("concurrency", ["1", "2"])
def test_a_hook_that_raises(
    pytester: pytest.Pytester, hook: str, outcomes: dict[str, int], concurrency: str
) -> None:
    environment = PRETEND if hook.startswith("log") else ""
    Path("conftest.py").write_text(environment + HOOK.format(hook))
    line = (environment + HOOK.format(hook)).splitlines().index("    helper()") + 1
    result = pytester.runpytest(
        "suite.yaml", "--intercode-agent=oracle", f"--intercode-concurrency={concurrency}"
    )
    result.assert_outcomes(**outcomes)
    name = hook.partition("(")[0]
    said = f"the hook pytest_intercode_{name} at */conftest.py:{line} raised ValueError: no luck (*"
    result.stdout.fnmatch_lines([said])
    assert "Traceback" not in result.stdout.str()
    assert "fixtures.py" not in result.stdout.str()


@pytest.mark.usefixtures("small_suite")
@pytest.mark.parametrize(
    ("hook", "errors", "message"),
    [
        (
            "modify_tasks(tasks):\n    tasks.append(5)",
            1,
            "modify_tasks at */conftest.py:1 left 5 in the list*",
        ),
        (
            "modify_tasks(tasks):\n    return tasks[:1]",
            1,
            "modify_tasks at */conftest.py:1 returned *: edit the list of tasks in place*",
        ),
        (
            "make_environment(task):\n    return str",
            3,
            "make_environment at */conftest.py:1 returned <class 'str'>, which is neither an Env*",
        ),
        (
            "make_agent(task):\n    return 3",
            3,
            "make_agent at */conftest.py:1 returned what is not an agent: the agent 3 is *",
        ),
    ],
)
def test_a_hook_that_gives_something_else(
    pytester: pytest.Pytester, hook: str, errors: int, message: str
) -> None:
    Path("conftest.py").write_text(f"def pytest_intercode_{hook}\n")
    result = pytester.runpytest("suite.yaml", "--intercode-agent=oracle")
    result.assert_outcomes(errors=errors)
    result.stdout.fnmatch_lines([f"*the hook pytest_intercode_{message}"])
    result.stdout.no_fnmatch_line("*pytest_intercode/*.py:*")


def test_a_hook_that_raises_before_the_first_item(pytester: pytest.Pytester) -> None:
    pytester.syspathinsert()
    pytester.makepyfile(mine="def pytest_intercode_modify_tasks(tasks):\n    1 / 0\n")
    result = pytester.runpytest("-pmine", "--intercode-env=bash", "--intercode-agent=oracle")
    assert_usage_error(
        result,
        "the hook pytest_intercode_modify_tasks of the plugin mine at */mine.py:2 raised "
        "ZeroDivisionError: division by zero (*/mine.py:2)",
    )


@pytest.mark.usefixtures("pretend")
def test_no_agent_lets_ordinary_tests_run(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_ordinary="def test_ordinary(): pass")
    pytester.runpytest("suite.yaml", "test_ordinary.py").assert_outcomes(errors=3, passed=1)


@pytest.mark.usefixtures("pretend")
def test_a_fixture_that_returns_no_agent(pytester: pytest.Pytester, pretend: Path) -> None:
    conftest = pretend.with_name("conftest.py")
    conftest.write_text(
        conftest.read_text()
        + """

@pytest.fixture
def intercode_agent():
    return 3
"""
    )
    result = pytester.runpytest("suite.yaml", "-k", "prints")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [
            "*_ ERROR at setup of *",
            "the agent 3 is not callable, and has neither act(observation) nor *",
        ]
    )
    result.stdout.no_fnmatch_line("*fixtures.py*")


# -- suites


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    gold: echo hello\n", "", "*suite.yaml:5: task 'prints': gold: this field is missing"),
        ("  - id: prints\n    query", "  - query", "*suite.yaml:5: task '#1': id: *is missing"),
        ("env: bash\n", "", "*suite.yaml:*env: this field is missing"),
        ("env: bash", "env: bsah", "*suite.yaml:1: env: 'bsah' is not one of * mean 'bash'?"),
        (
            "query: Print the word hello.",
            "query: 7",
            "*suite.yaml:6: task 'prints': query: a string is needed, found 7 (int)",
        ),
        (
            "hardness: easy",
            "max_turns: many",
            "*suite.yaml:8: task 'prints': max_turns: *whole number*'many'*",
        ),
        ("hardness: easy", "max_turns: 0", "*suite.yaml:8: task 'prints': max_turns: *(found 0)"),
        (
            "hardness: easy",
            "hardnes: easy",
            "*suite.yaml:8: task 'prints': hardnes: there is no such field. "
            "Did you mean 'hardness'? Allowed: *",
        ),
        (
            "hardness: easy",
            "limits: {memroy: 5m}",
            "*suite.yaml:8: task 'prints': limits.memroy: *Did you mean 'memory'?*",
        ),
        ("workdir: /work", "workdir: work", "*suite.yaml:3: defaults.workdir: *(found 'work')"),
        ("tags: [text]", "tags: [a b]", "*suite.yaml:9: task 'prints': tags.0: *'a b'*"),
        ("id: writes", "id: prints", "*suite.yaml:10: the id 'prints' is used twice; *"),
        ("id: writes", "id: a/b", "*suite.yaml:10: task 'a/b': id: an id has letters, *'a/b'*"),
        ("tasks:", "tasks: [", "*suite.yaml:*: not YAML: *"),
        ("tasks:", "rows: 7\ntasks:", "*suite.yaml:4: rows: * is needed, found 7 *"),
        ("tasks:", "task:", "*suite.yaml:4: task: there is no such field. Did you mean 'tasks'?*"),
        (
            "hardness: easy",
            "reward: {normalise: [{pattern: '('}]}",
            "*suite.yaml:8: task 'prints': reward.normalise*: not a regular expression: *'('*",
        ),
        (
            "hardness: easy",
            "reward: {normalise: [line-ordre]}",
            "*suite.yaml:8: task 'prints': reward.normalise*'line-ordre'*",
        ),
        (
            "hardness: easy",
            "archive: nowhere.tar",
            "*suite.yaml*: task 'prints': archive: *nowhere.tar is not a file*",
        ),
        (
            "hardness: easy",
            "dockerfile: nowhere",
            "*suite.yaml*: task 'prints': dockerfile: *nowhere* is not a file*",
        ),
        (
            "hardness: easy",
            "files: {a: {text: x, base64: y}}",
            "*suite.yaml:8: task 'prints': files.a*: *",
        ),
    ],
    ids=brief,
)
def test_suites(
    pytester: pytest.Pytester, small_suite: Path, old: str, new: str, message: str
) -> None:
    assert old in SUITE
    small_suite.write_text(SUITE.replace(old, new, 1))
    assert_collection_error(pytester.runpytest("suite.yaml"), message)
    assert_usage_error(pytester.runpytest("--intercode-dataset=suite.yaml"), message)


@pytest.mark.parametrize("text", ["", "- 1\n- 2\n", "just words\n", "\0"])
def test_files_that_are_no_suites(pytester: pytest.Pytester, text: str) -> None:
    Path("suite.yaml").write_text(text)
    assert_collection_error(pytester.runpytest("suite.yaml"), "*suite.yaml*: *")


def test_a_suite_that_is_not_text(pytester: pytest.Pytester) -> None:
    Path("suite.yaml").write_bytes(b"env: \xff\xfe\n")
    assert_collection_error(pytester.runpytest("suite.yaml"), "*suite.yaml: *")


def test_a_suite_that_is_not_there(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("--intercode-dataset=nowhere.yaml")
    assert_usage_error(result, "*nowhere.yaml: cannot be read: *")


def test_an_unknown_hardness_is_fine(pytester: pytest.Pytester, small_suite: Path) -> None:
    small_suite.write_text(SUITE.replace("hardness: easy", "hardness: infernal"))
    result = pytester.runpytest("suite.yaml", "-m", "intercode(hardness='infernal')", "--co", "-q")
    result.stdout.fnmatch_lines(["suite.yaml::test_solves[[]prints[]]"])


@pytest.mark.usefixtures("needs_docker")
def test_a_dockerfile_that_does_not_build(pytester: pytest.Pytester, small_suite: Path) -> None:
    Path("broken.Dockerfile").write_text(
        "ARG BASE=debian:bookworm-slim\nFROM ${BASE}\nRUN echo the last words; exit 7\n"
    )
    small_suite.write_text(SUITE.replace("hardness: easy", "dockerfile: broken.Dockerfile"))
    result = pytester.runpytest("suite.yaml", "--intercode-agent=agents:Solver", "-k", "prints")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [
            "intercode: building pytest-intercode/broken:* for prints (first use)",
            "infrastructure error: *broken.Dockerfile does not build: *returned a non-zero code: 7",
            "    the last words",
        ]
    )


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("path", ["/usr/local/bin/uv", "/proc/uv", "/bin/bash/uv"])
def test_files_that_have_no_place_in_the_sandbox(
    pytester: pytest.Pytester, small_suite: Path, path: str
) -> None:
    small_suite.write_text(SUITE.replace("hardness: easy", f"files: {{{path}: x}}"))
    result = pytester.runpytest(
        *("suite.yaml", "--intercode-agent=oracle", "-k", "prints"),
        "--intercode-sandbox=bubblewrap",
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [f"task error: *task 'prints': its files have no place in this sandbox: *{path[1:]}*"]
    )


@pytest.mark.usefixtures("small_suite")
def test_a_folder_as_archive_is_in_the_workdir(
    pytester: pytest.Pytester, quick_sandbox: str
) -> None:
    Path("data").mkdir()
    Path("data/notes.txt").write_text("a\n")
    tasks = "[{id: prints, query: q, gold: cat notes.txt, workdir: /work, archive: data}]"
    Path("folder.yaml").write_text(f"env: bash\ntasks: {tasks}\n")
    result = pytester.runpytest("folder.yaml", "--intercode-agent=oracle", quick_sandbox)
    result.assert_outcomes(passed=1)


@pytest.mark.usefixtures("pretend")
def test_an_archive_that_is_none(pytester: pytest.Pytester, pretend: Path) -> None:
    Path("some.tar").write_bytes(b"this is no archive" * 100)
    pretend.write_text(SUITE.replace("hardness: easy", "archive: some.tar"))
    conftest = pretend.with_name("conftest.py")
    conftest.write_text(
        conftest.read_text().replace(
            "        self.last = None\n",
            "        from pytest_intercode.system.archives import build_archive\n"
            "        build_archive(task, 0.0)\n"
            "        self.last = None\n",
        )
    )
    result = pytester.runpytest("suite.yaml", "--intercode-agent=oracle", "-k", "prints")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*some.tar: not a readable tar archive: *"])
    result.stdout.no_fnmatch_line("*files.py*")


# -- rows and datasets

GOOD = {"query": "Print 1.", "gold": "echo 1"}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("rows.json", "[{]", "*rows.json:1: not JSON: *"),
        (
            "rows.json",
            '"words"',
            "*rows.json: a JSON file of rows must be a list of objects, not *",
        ),
        (
            "rows.json",
            json.dumps([GOOD, 3]),
            "*rows.json, row 1: a row must be an object *, not a number",
        ),
        (
            "rows.json",
            json.dumps([GOOD, {"query": "Print 2."}]),
            "*rows.json, row 1: gold: this field is missing",
        ),
        (
            "rows.jsonl",
            json.dumps(GOOD) + "\n\n{'query'}\n",
            "*rows.jsonl:3: not JSON: *",
        ),
        (
            "rows.jsonl",
            json.dumps(GOOD) + "\n" + json.dumps({**GOOD, "max_turns": "many"}),
            "*rows.jsonl:2: max_turns: *'many'*",
        ),
        (
            "rows.csv",
            "query,gold\nPrint 1.,echo 1\nPrint 2.\n",
            "*rows.csv:3: does not have as many *",
        ),
        ("rows.csv", "query,gold\nPrint 1.,\n", "*rows.csv:2: gold: this field is missing"),
        ("rows.csv", 'query,gold\n"Print 1.,echo 1\n', "*rows.csv:*: *"),
        ("rows.tsv", "query\tgold\na\tb\tc\n", "*rows.tsv:2: does not have as many fields as *"),
        ("rows.jsonl", "\n", "*rows.jsonl: contains no rows"),
        ("rows.json", "[]", "*rows.json: contains no rows"),
        ("rows.csv", "", "*rows.csv: contains no rows"),
    ],
    ids=brief,
)
def test_rows(pytester: pytest.Pytester, name: str, text: str, message: str) -> None:
    Path(name).write_text(text)
    result = pytester.runpytest(f"--intercode-dataset={name}", "--intercode-env=bash")
    assert_usage_error(result, message)
    Path("suite.yaml").write_text(f"env: bash\nrows: {{path: {name}}}\n")
    assert_collection_error(pytester.runpytest("suite.yaml"), message)


@pytest.mark.parametrize("name", ["rows.pkl", "rows.pickle", "rows.pkl.gz"])
def test_pickles_are_refused(pytester: pytest.Pytester, name: str) -> None:
    Path(name).write_bytes(gzip.compress(b"cos\nsystem\n(S'touch ran'\ntR."))
    result = pytester.runpytest(f"--intercode-dataset={name}", "--intercode-env=bash")
    assert_usage_error(
        result,
        f"*{name}: pickle files are refused, because loading one runs whatever code is in it. *",
    )
    assert not Path("ran").exists()


def test_rows_that_are_not_there(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("--intercode-dataset=no.jsonl", "--intercode-env=bash")
    assert_usage_error(result, "*no.jsonl: there is no such file")


def test_rows_without_an_environment(pytester: pytest.Pytester) -> None:
    Path("rows.jsonl").write_text(json.dumps(GOOD))
    assert_usage_error(
        pytester.runpytest("--intercode-dataset=rows.jsonl"),
        "*rows.jsonl: a file of rows does not say what its gold is written in; give one *",
    )


def test_a_dataset_of_another_environment(pytester: pytest.Pytester, small_suite: Path) -> None:
    result = pytester.runpytest("--intercode-dataset=suite.yaml", "--intercode-env=sql")
    assert_usage_error(result, "--intercode-dataset=suite.yaml has no task of --intercode-env=sql")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            (),
            "--intercode-dataset=nl2bash: its data are missing. Get them with: pytest-intercode "
            "fetch nl2bash; or name a folder of your own, * with --intercode-data=DIR",
        ),
        (
            ("--intercode-data=nowhere",),
            "--intercode-data=*/nowhere: there is no such folder. Get them with: pytest-intercode "
            "fetch nl2bash --to */nowhere; or name *",
        ),
        (
            ("--intercode-data=empty",),
            "*empty/nl2bash/nl2bash_fs_1.json: there is no such file. Get them with: "
            "pytest-intercode fetch nl2bash --to *empty; or name *",
        ),
    ],
)
def test_data(pytester: pytest.Pytester, options: tuple[str, ...], message: str) -> None:
    pytester.mkdir("empty")
    assert_usage_error(pytester.runpytest("--intercode-dataset=nl2bash", *options), message)


def test_a_part_of_a_dataset_that_is_not_there(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest("--intercode-dataset=nl2bash-fs9", "--intercode-data=.")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


# -- marks


@pytest.mark.usefixtures("small_suite")
@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("hardness='easy'", "*uses an intercode fixture, so it has to name its tasks: *"),
        ("envv='bash'", "*has no argument 'envv'. Did you mean 'env'? Allowed: *"),
        ("suite='suite.yaml', ids=['print']", "*there is no task 'print'. Did you mean 'prints'?"),
        (
            "suite='suite.yaml', tags=['none']",
            "*no task matches *(suite='suite.yaml', tags=[[]'none'[]])",
        ),
        (
            "env='bsh'",
            "*::test_mine: @pytest.mark.intercode(env='bsh'): there is no bundled suite *",
        ),
        (
            "dataset='spidr'",
            "*::test_mine: @pytest.mark.intercode(dataset='spidr'): there is no such dataset. *",
        ),
        ("suite='suite.yaml', ids=5", "*@pytest.mark.intercode(ids=5): a text, or a list of *"),
        ("suite='suite.yaml', tags=[['a']]", "*(tags=[[][[]'a'[]][]]): a text, or a list of *"),
        ("suite='nowhere.yaml'", "*nowhere.yaml: cannot be read: *"),
        ("env='bsah'", "*bsah*"),
        ("dataset='nl2bahs'", "*Did you mean 'nl2bash'? *"),
    ],
    ids=brief,
)
def test_marks(pytester: pytest.Pytester, mark: str, message: str) -> None:
    pytester.makepyfile(
        f"""
        import pytest

        @pytest.mark.intercode({mark})
        def test_mine(intercode_episode): ...
        """
    )
    assert_collection_error(pytester.runpytest(), message)


def test_a_mark_of_a_test_that_takes_no_task(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.intercode(suite="suite.yaml")
        def test_mine(): ...
        """
    )
    assert_collection_error(
        pytester.runpytest(),
        "*::test_mine: @pytest.mark.intercode needs a test that takes intercode_episode, *",
    )


def test_no_mark(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_mine(intercode_episode): ...")
    result = pytester.runpytest()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["no task: the test needs @pytest.mark.intercode(env=...)*"])
    result.stdout.no_fnmatch_line("*fixtures.py*")


# -- no engine


@pytest.mark.usefixtures("small_suite")
def test_no_engine_ends_the_run_once(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    result = pytester.runpytest(
        "suite.yaml", "--intercode-agent=oracle", "--intercode-results=r.jsonl"
    )
    result.assert_outcomes(errors=1)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    message = "no Docker engine answers at tcp://127.0.0.1:1: Connection refused. "
    message += "Start it (*), or set DOCKER_HOST; *"
    result.stdout.fnmatch_lines([f"infrastructure error: {message}", f"!*{message} !*"])
    result.stdout.no_fnmatch_line("*engine.py*")


@pytest.mark.slow
@pytest.mark.usefixtures("small_suite")
def test_no_engine_under_xdist(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    result = pytester.run(
        *(sys.executable, "-m", "pytest", "-n2", "suite.yaml", "--intercode-agent=oracle"),
        "--intercode-sandbox=docker",
        timeout=60,
    )
    assert result.ret != 0
    assert 1 <= result.parseoutcomes()["errors"] <= 3
    line = "*no Docker engine answers at unix:///nowhere.sock: No such file or directory. *"
    result.stdout.fnmatch_lines([line])


@pytest.mark.usefixtures("needs_docker")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.skipif("DOCKER_HOST" in os.environ, reason="the engine is not at its usual socket")
def test_a_socket_that_may_not_be_opened(pytester: pytest.Pytester) -> None:
    script = pytester.makepyfile(
        """
        import os

        import docker.errors
        from pytest_intercode.errors import EngineUnavailable
        from pytest_intercode.sandboxes.docker.engine import connect

        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        try:
            connect()
        except EngineUnavailable as error:
            print(error)
        """
    )
    result = pytester.run(sys.executable, script)
    result.stdout.fnmatch_lines(
        ["no permission to use the Docker engine at unix:///var/run/docker.sock. Add the user to *"]
    )
