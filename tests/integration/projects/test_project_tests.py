"""Project tests as pytest runs them: items, outcomes, records, and what is wrong with a test."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytest_intercode.system.extras import has_extra
from tests.conftest import results
from tests.support.git import git
from tests.support.junit import properties_of

AGENTS = """\
class Agent:
    def run(self, task, env):
        env.step("cat AGENTS.md 2>/dev/null; echo requests >>pyproject.toml")
        env.submit(f"I did: {task.query}")

class Broken:
    def run(self, task, env):
        raise RuntimeError("it broke")

class Endless:
    def run(self, task, env):
        while True:
            env.step(":")
"""

pytestmark = pytest.mark.usefixtures("needs_sandboxes")


@pytest.fixture
def project(pytester: pytest.Pytester) -> Path:
    """Return a repository with agents, and a treatment."""
    folder = pytester.path
    (folder / "agents.py").write_text(AGENTS)
    (folder / "pyproject.toml").write_text('[project]\nname = "x"\n')
    (folder / "treatments/rules").mkdir(parents=True)
    (folder / "treatments/rules/AGENTS.md").write_text("Use uv.\n")
    git(folder, "init", "-q")
    return folder


def run(
    pytester: pytest.Pytester, test: str, *arguments: str, agent: str = "Agent"
) -> pytest.RunResult:
    pytester.makepyfile(test_rules=f"import pytest\n\n{test}")
    return pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", f"--intercode-agent=agents.py:{agent}", *arguments
    )


@pytest.mark.usefixtures("project")
def test_a_record_has_the_result_of_its_test(pytester: pytest.Pytester) -> None:
    test = """\
def test_adds(intercode_project):
    run = intercode_project.run("Add requests.")
    assert run.changed("pyproject.toml")
    assert run.unchanged("treatments/")
    assert run.answer == "I did: Add requests."
    assert run.read("pyproject.toml").endswith("requests\\n")
    assert run.check("grep requests pyproject.toml").status == 0
    with pytest.raises(TypeError, match="a command is a text for bash, found .'true'."):
        run.check(["true"])
    assert len(run.turns) == 2

def test_breaks(intercode_project):
    run = intercode_project.run("Add requests.")
    assert run.unchanged("pyproject.toml")
"""
    result = run(pytester, test, "--intercode-results=r.jsonl")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            'E       assert run.unchanged("pyproject.toml")',
            "E         the agent",
            "E           changed pyproject.toml <-",
        ]
    )
    solved, failed = results(pytester.path / "r.jsonl")
    assert (solved["outcome"], solved["test_passed"], solved["summary"]["max_reward"]) == (
        *("solved", True),
        1.0,
    )
    assert (failed["outcome"], failed["test_passed"], failed["reason"]) == (
        *("failed", False),
        "the test failed",
    )
    assert solved["environment"] == "ic_project"
    assert (solved["task_id"], solved["suite"]) == ("test_adds", "test_rules.py")
    assert solved["end_state"]["project"]["changed"] == ["pyproject.toml"]


@pytest.mark.usefixtures("project")
def test_what_an_agent_ran_is_said(pytester: pytest.Pytester) -> None:
    test = """\
def test_runs(intercode_project):
    run = intercode_project.run("Add requests.")
    assert run.ran("echo requests", ok=True)
    assert run.order("cat AGENTS.md", "echo")
    assert not run.called("tickets.create")
    assert not run.loaded_skill("release")
    assert [(c.words[0], c.turn, c.source) for c in run.commands[:1]] == [("cat", 1, "action")]
    assert run.ran("uv add")
    assert not run.ran("cat")
"""
    result = run(pytester, test)
    result.assert_outcomes(failed=1)
    lines = [line for line in result.outlines if line.startswith("E  ")]
    assert lines[:2] == ['E       assert run.ran("uv add")', "E         the agent ran 2 commands:"]
    assert lines[2].startswith("E           1  cat AGENTS.md 2>/dev/null")
    assert lines[2].endswith("(?)    <- not allowed by the next line")
    assert lines[3].startswith("E           2  echo requests >>pyproject.toml  (0")


@pytest.mark.usefixtures("project")
def test_treatments_tries_and_runs(pytester: pytest.Pytester) -> None:
    test = """\
@pytest.mark.intercode(treatments="treatments", repeat=2)
@pytest.mark.parametrize("name", ["a", "b"])
def test_uses_uv(intercode_project, name):
    intercode_project.run("First.")
    run = intercode_project.run(f"Second {name}.")
    assert "Use uv." in run.turns[0].observation
"""
    result = run(pytester, test, "--intercode-results=r.jsonl", "-v")
    result.assert_outcomes(passed=4, failed=4)
    records = results(pytester.path / "r.jsonl")
    assert len(records) == 16
    keys = {(r["task_id"], r["treatment"], r["repeat"]) for r in records}
    ids = ["test_uses_uv[a]", "test_uses_uv[a] #2", "test_uses_uv[b]", "test_uses_uv[b] #2"]
    cells = [(treatment, repeat) for treatment in ("control", "rules") for repeat in (1, 2)]
    assert keys == {(identity, *cell) for identity in ids for cell in cells}
    assert all((r["outcome"] == "solved") == (r["treatment"] == "rules") for r in records)
    result.stdout.fnmatch_lines(["*test_uses_uv?*-rules-2* PASSED*"])
    selected = run(pytester, test, "--intercode-treatment=rules", "--collect-only", "-q")
    selected.stdout.fnmatch_lines(["4 tests collected*"])


@pytest.mark.usefixtures("project")
def test_no_agent_is_shown_what_runs_write(pytester: pytest.Pytester) -> None:
    test = """\
def test_runs(intercode_project):
    run = intercode_project.run("First.")
    assert "r." not in run.check("ls -a").output
"""
    outputs = ["--intercode-results=r.jsonl", "--junitxml=r.xml"]
    if has_extra("otel"):
        outputs.append("--intercode-otel=r.spans.jsonl")
    for _ in range(3):  # the first writes results and their statistics, the second keeps those
        run(pytester, test, *outputs).assert_outcomes(passed=1)
    names = {path.name for path in pytester.path.glob("r.*")}
    assert {"r.jsonl", "r.summary.json", "r.xml"} < names


@pytest.mark.usefixtures("project")
def test_no_agent_is_shown_what_earlier_runs_came_to(pytester: pytest.Pytester) -> None:
    """Neither a baseline, which says what passed, nor results that this run does not know of."""
    test = """\
def test_runs(intercode_project):
    run = intercode_project.run("First.")
    assert not {"earlier.jsonl", "earlier.summary.json", "main.jsonl"} & {*run.read("ls").split()}
"""
    agents = pytester.path / "agents.py"
    agents.write_text(agents.read_text().replace("cat AGENTS.md", "ls >ls; cat AGENTS.md"))
    for name in ("earlier", "main"):
        result = run(pytester, test, f"--intercode-results={name}.jsonl")
        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines([f"1 episode in *{name}.jsonl"])
    options = ["--intercode-results=new.jsonl", "--intercode-baseline=main.jsonl"]
    run(pytester, test, *options).assert_outcomes(passed=1)
    (pytester.path / "pyproject.toml").write_text('[project]\nname = "y"\n')
    run(pytester, test, *options).assert_outcomes(passed=1)
    compared = pytester.run(
        *(sys.executable, "-m", "pytest_intercode", "compare", "main.jsonl", "new.jsonl")
    )
    assert compared.stderr.str() == ""  # what changed is what is tested
    run(pytester, f"# another\n{test}", *options).assert_outcomes(passed=1)
    compared = pytester.run(
        *(sys.executable, "-m", "pytest_intercode", "compare", "main.jsonl", "new.jsonl")
    )
    compared.stderr.fnmatch_lines(
        "*warning: the test itself (its code, marks or parameters) differs in 1 task (*"
    )


@pytest.mark.usefixtures("project")
def test_junit_says_what_the_test_came_to(pytester: pytest.Pytester) -> None:
    test = """\
@pytest.mark.parametrize("answer", ["I did: First.", "another"])
def test_answers(intercode_project, answer):
    assert intercode_project.run("First.").answer == answer
"""
    run(pytester, test, "--junitxml=r.xml").assert_outcomes(passed=1, failed=1)
    cases = ElementTree.parse(pytester.path / "r.xml").iter("testcase")
    properties = list(map(properties_of, cases))
    assert [case["intercode_outcome"] for case in properties] == ["solved", "failed"]
    assert [case["intercode_reward"] for case in properties] == ["1.0000", "0.0000"]


@pytest.mark.usefixtures("project")
def test_a_check_that_fails_is_false(pytester: pytest.Pytester) -> None:
    test = """\
def test_checks(intercode_project):
    run = intercode_project.run("First.")
    assert run.check("true")
    assert not run.check("sleep 5", timeout=0.5)
    assert run.check("echo no; false")
"""
    result = run(pytester, test)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines("E * assert CommandResult(status=1, output='no\\n')")


@pytest.mark.usefixtures("project")
def test_all_of_a_tests_sandboxes_end_whatever_one_of_them_raises(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest("""
from pytest_intercode.environments.project.environment import ProjectEnvironment
from pytest_intercode.plugin.run import run_of


class Rude(ProjectEnvironment):
    def close(self):
        super().close()
        print("closed", self.task.id)
        if self.task.id.endswith("#2"):
            raise OSError("it is rude")


def pytest_intercode_make_environment(config, task):
    return Rude(run_of(config).composition.provider)
""")
    test = """\
def test_it(intercode_project):
    intercode_project.run("First.")
    intercode_project.run("Second.")
"""
    result = run(pytester, test)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*OSError: it is rude"])
    _, teardown = result.stdout.str().split("Captured stdout teardown")
    assert "closed test_it #2" in teardown
    assert "closed test_it\n" in teardown


@pytest.mark.slow
@pytest.mark.usefixtures("project")
def test_the_tasks_of_tests_that_are_over_are_not_kept(pytester: pytest.Pytester) -> None:
    """pytest keeps its items to the end of a run; what their runs were made of is freed."""
    pytester.makeconftest("""\
import gc

def pytest_sessionfinish(session):
    gc.collect()
    tasks = [value for value in gc.get_objects() if type(value).__name__ == "Task"]
    print(f"{len(session.items)} items, {len(tasks)} tasks")
""")
    test = """\
@pytest.mark.parametrize("number", range(3))
def test_runs(intercode_project, number):
    intercode_project.run("First.")
    intercode_project.run("Second.")
"""
    result = run(pytester, test, "-s")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*3 items, 0 tasks"])


@pytest.mark.usefixtures("project")
def test_a_mistake_counts_against_no_agent_and_is_not_expected(pytester: pytest.Pytester) -> None:
    test = """\
@pytest.mark.xfail
def test_runs(intercode_project):
    intercode_project.run("First.")
    intercode_project.run("Second.", dockerfile="typo")
"""
    result = run(pytester, test, "--intercode-results=r.jsonl")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*dockerfile='typo': * is not a file*"])
    [record] = results(pytester.path / "r.jsonl")
    assert record["outcome"] == "task-error"
    assert record["reason"].startswith("dockerfile='typo'")


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("agent", "outcome", "message"),
    [
        ("Broken", "agent-error", "*agent error after 0/50 turns: RuntimeError: it broke*"),
        ("Endless", "out-of-budget", "*assert run.created*"),
    ],
)
def test_agents_that_do_not_come_to_an_end(
    pytester: pytest.Pytester, agent: str, outcome: str, message: str
) -> None:
    test = """\
def test_it(intercode_project):
    run = intercode_project.run("Do it.")
    assert run.created("x")
"""
    result = run(pytester, test, "--intercode-results=r.jsonl", agent=agent)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([message])
    assert [r["outcome"] for r in results(pytester.path / "r.jsonl")] == [outcome]


MISTAKES = (
    ("", '""', "*intercode_project.run(): a prompt has to be a text that is not empty, found ''*"),
    ("", '"x", imag="y"', "*has no argument 'imag'. Did you mean 'image'*"),
    # What a mark alone may say.
    ("", "'x', repeat=5", "*has no argument 'repeat'. Give it to the test's mark*Allowed: *"),
    ("repeat=1", "'x', pass_rate=0.8", "*has no argument 'pass_rate'. Give it to the test's mark*"),
    ("", "'x', treatments='t'", "*has no argument 'treatments'. Give it to the test's mark*"),
    ("project='typo'", '"x"', "*project='typo': neither a folder next to the test nor a*"),
    ("dockerfile='typo'", '"x"', "*dockerfile='typo': * is not a file*"),
    ("max_turns=0", '"x"', "*max_turns: a number of turns from 1 is needed, found 0*"),
    ("timeout='soon'", '"x"', "*timeout: a number of seconds above 0 is needed, found 'soon'*"),
    (
        "",
        "'x', setup='make'",
        "*intercode_project.run(setup='make'): it has to be a list of commands*",
    ),
    ("", "'x', setup=[5]", "*run(setup=[[]5[]]): it has to be a list of commands*"),
    ("", "'x', project=5", "*run(project=5): it has to be a folder or a revision"),
    ("", "'x', image=5", "*run(image=5): it has to be the name of an image"),
    ("", "'x', dockerfile=5", "*run(dockerfile=5): it has to be the path of a file"),
    ("setup=['false']", '"x"', "*the setup command 'false' ended with status 1*"),
    ("", "'x', fake={'bin/gh': 'x'}", "*fake=*bin/gh*"),
    ("", "'x', fake={'gh': 'typo.sh'}", "*typo.sh*"),
    ("", "'x', answers='Yes'", "*answers=*"),
    ("", "'x', answers=['Yes'], user='a user'", "*answers= and user= are both given*"),
    ("", "'x', user='a user'", "*user=: no model is given*user_model=NAME*"),
    ("", "'x', mcp={'tickets': ''}", "*mcp={'tickets': ''}: a command line is needed*"),
    ("", "'x', mcp={'tickets': 'false'}", "*mcp: the server 'tickets' (false)*"),
    ("", "'x', replay='all'", "*replay='all' is not one of agent and observations*"),
)


@pytest.mark.usefixtures("project")
def test_what_is_wrong_is_one_line(pytester: pytest.Pytester) -> None:
    test = "".join(
        f"@pytest.mark.intercode({mark})\n"
        f"def test_{number}(intercode_project):\n    intercode_project.run({call})\n\n"
        for number, (mark, call, _) in enumerate(MISTAKES)
    )
    result = run(pytester, test)
    for number, (*_, message) in enumerate(MISTAKES):
        result.stdout.re_match_lines([rf"_+ (ERROR at setup of )?test_{number}\[Agent\] _+"])
        result.stdout.fnmatch_lines([message])
    outcomes = result.parseoutcomes()
    assert outcomes.get("failed", 0) + outcomes.get("errors", 0) == len(MISTAKES)
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*pytest_intercode/*.py:*")


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("projec=1", "*has no argument 'projec' for a test with*Did you mean 'project'*"),
        (
            "treatments=5",
            "*@pytest.mark.intercode(treatments=5): it has to be the path of a folder",
        ),
        ("setup='make'", "*(setup='make'): it has to be a list of commands, such as *"),
        ("'control'", "*@pytest.mark.intercode('control'): use keyword arguments"),
        ("treatments='typo'", "*treatments='*typo': No such file or directory*"),
    ],
)
def test_a_mark_that_is_wrong_is_one_line(
    pytester: pytest.Pytester, mark: str, message: str
) -> None:
    test = f"@pytest.mark.intercode({mark})\ndef test_it(intercode_project): ...\n"
    result = run(pytester, test)
    result.stdout.fnmatch_lines([message])
    assert result.ret != 0
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*pytest_intercode/*.py:*")


@pytest.mark.usefixtures("project")
def test_a_mistake_is_shown_where_the_test_makes_it(pytester: pytest.Pytester) -> None:
    messages = {
        'run.ran(re="(")': "ValueError: ran(): re='(' is not a regular expression: missing ), *",
        "run.ran()": "TypeError: ran() takes either the words *",
        'run.order("git add")': "TypeError: order() takes at least two commands",
        'run.read("NOPE.md")': "FileNotFoundError: NOPE.md",
        'run.created("/etc")': "ValueError: run.created('/etc'): the path has to be relative to *",
        'Fake({"pr list": 7})': "*.ConfigurationError: Fake(*",
        "Fake({\"pr 'list\": 'a'})": "*.ConfigurationError: Fake(): the pattern *",
    }
    tests = [
        f"def test_{number}(intercode_project):\n    run = intercode_project.run('x')\n    {call}\n"
        for number, call in enumerate(messages)
    ]
    result = run(pytester, "\n".join(["from pytest_intercode import Fake\n", *tests]))
    result.assert_outcomes(failed=len(messages))
    for call, message in messages.items():
        result.stdout.fnmatch_lines([f">   *{call}".replace("[", "[[]"), f"E  *{message}"])
    result.stdout.no_fnmatch_line("*pytest_intercode/*.py:*")
    result.stdout.no_fnmatch_line("*/re/*.py:*")


def test_without_an_agent_it_is_skipped(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(intercode_project): ...")
    result = pytester.runpytest_subprocess("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*no agent to test: give --intercode-agent=AGENT*"])
    assert result.ret == 1  # nothing was tested


def test_a_project_without_a_repository(pytester: pytest.Pytester) -> None:
    (pytester.path / "agents.py").write_text(AGENTS)
    result = run(pytester, 'def test_it(intercode_project):\n    intercode_project.run("x")\n')
    result.stdout.fnmatch_lines(["*is not in a git repository*project=FOLDER*"])
    result.assert_outcomes(failed=1)


TALKATIVE = """\
import subprocess

class Talkative:
    def run(self, task, env):
        if task.query == "Release it.":
            env.step("gh release create v1 --draft; git status >/dev/null; ls")
            return "Shall I publish it?"
        env.step(f"echo {task.query!r} >reply; cat reply; {' '.join(task.mcp)}")
        return "Done."
"""


@pytest.mark.usefixtures("project")
def test_fakes_watches_and_answers(pytester: pytest.Pytester) -> None:
    (pytester.path / "agents.py").write_text(TALKATIVE)
    test = """\
from pytest_intercode import Fake, Project

GH = Fake({"release create *": "https://example.org/1"})

def test_it(intercode_project: Project):
    seen = []

    def answer(message, run):
        seen.append((message, len(run.turns)))
        return "No, keep it." if message.endswith("?") else None

    run = intercode_project.run(
        "Release it.", fake={"gh": GH}, watch=["git"], answers=answer
    )
    assert [(call.program, call.status) for call in run.calls] == [("gh", 0), ("git", 0)]
    assert run.ran("gh release create v1 --draft", ok=True)
    assert run.questions == (("Shall I publish it?", "No, keep it."), ("Done.", None))
    assert seen == [("Shall I publish it?", 1), ("Done.", 2)]
    assert run.messages == ("Shall I publish it?", "Done.")
    assert run.answer == "Done."
    assert run.turns[0].observation.startswith("https://example.org/1\\n")
    assert run.read("reply") == "No, keep it.\\n"
    assert run.created == ("reply",)
    assert not run.ran("gh release publish")
"""
    result = run(pytester, test, agent="Talkative")
    result.assert_outcomes(passed=1)


@pytest.mark.slow
@pytest.mark.usefixtures("project")
def test_what_failed_in_the_baseline_may_fail(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = """\
import os

@pytest.mark.parametrize("name", ["pyproject.toml", "other"])
def test_changes(intercode_project, name):
    run = intercode_project.run("Add requests.")
    assert run.changed(name) and "BREAK" not in os.environ
"""
    run(pytester, test, "--intercode-results=base.jsonl").assert_outcomes(passed=1, failed=1)
    baseline = "--intercode-baseline=base.jsonl"
    result = run(pytester, test, baseline, "-rx")
    result.assert_outcomes(passed=1, xfailed=1)
    result.stdout.fnmatch_lines(["XFAIL *other* - 0 of 1 tries solved in base.jsonl"])
    monkeypatch.setenv("BREAK", "1")
    run(pytester, test, baseline).assert_outcomes(failed=1, xfailed=1)
    broken = 'def test_changes(intercode_project):\n    intercode_project.run("")\n'
    run(pytester, broken, baseline).assert_outcomes(failed=1)


_CLOSED = """
class Closed(Agent):
    def close(self):
        with open("closed", "w") as file:
            file.write(type(self).__name__)

class AsyncClosed(Closed):
    async def close(self):
        super().close()
"""


@pytest.mark.slow
@pytest.mark.usefixtures("project")
def test_what_a_hook_makes_is_not_recorded(pytester: pytest.Pytester) -> None:
    test = """\
def test_it(intercode_project):
    assert intercode_project.run("Do it.").answer == "I did: Do it."
"""
    hook = "import agents\n\ndef pytest_intercode_make_agent(task): return {}\n"
    with (pytester.path / "agents.py").open("a") as file:
        file.write(_CLOSED)
    pytester.makeconftest(hook.format("None"))
    run(pytester, test, "--intercode-record=missing").assert_outcomes(passed=1)
    for class_name, options in (("Closed", ()), ("AsyncClosed", ("--intercode-record=all",))):
        pytester.makeconftest(hook.format(f"agents.{class_name}()"))
        result = run(pytester, test, *options)
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["the hook pytest_intercode_make_agent makes the agent of *"])
        result.stdout.no_fnmatch_line("*Traceback*")
        assert (pytester.path / "closed").read_text() == class_name
    (recording,) = (pytester.path / "recordings/test_rules").iterdir()
    recording.unlink()
    run(pytester, test).assert_outcomes(passed=1)


@pytest.mark.usefixtures("project")
def test_calls_are_in_the_record_and_in_what_is_played(pytester: pytest.Pytester) -> None:
    (pytester.path / "agents.py").write_text(TALKATIVE)
    test = """\
from pytest_intercode import Fake

def test_it(intercode_project):
    run = intercode_project.run("Release it.", fake={"gh": Fake({"*": "ok"})}, watch=["git"])
    assert [(call.program, call.status) for call in run.calls] == [("gh", 0), ("git", 0)]
    assert run.ran("gh release create v1 --draft", ok=True)
"""
    options = ("--intercode-results=r.jsonl", "--intercode-html=p.html")
    run(pytester, test, *options, "--intercode-record=missing", agent="Talkative")
    (first,) = results(pytester.path / "r.jsonl")
    call = first["calls"][0]
    assert (call["program"], call["arguments"]) == ("gh", ["release", "create", "v1", "--draft"])
    assert (call["directory"], call["status"]) == ("/project", 0)
    assert [call["program"] for call in first["calls"]] == ["gh", "git"]
    result = run(pytester, test, *options, "--intercode-record=none", agent="Talkative")
    result.assert_outcomes(passed=1)  # no agent has played
    assert results(pytester.path / "r.jsonl")[0]["calls"] == first["calls"]


COUNTER = """\
NAMES = ("mcp_tickets_count", "tickets_count", "tickets-count", "tickets__count")

class Counter:
    def run(self, task, env):
        for name in NAMES:
            env.record_turn(f"{name}({{}})", "3", tool=name)
        env.submit("There are 3.")
"""


@pytest.mark.usefixtures("project")
def test_a_server_has_its_name_in_what_is_played(pytester: pytest.Pytester) -> None:
    """Whatever the client makes of it; none but the test says which servers there are."""
    (pytester.path / "agents.py").write_text(COUNTER)
    test = """\
def test_it(intercode_project):
    run = intercode_project.run("Count.", mcp={"tickets": "https://tickets.example/mcp"})
    assert run.called("tickets.count")
    assert [(call.server, call.name) for call in run.tool_calls] == [("tickets", "count")] * 4
"""
    for mode in ("missing", "none"):
        result = run(pytester, test, f"--intercode-record={mode}", agent="Counter")
        result.assert_outcomes(passed=1)
