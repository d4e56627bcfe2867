"""``--intercode-resume`` with project tests: what has not changed is not run again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import results
from tests.support.git import git

AGENTS = """\
class Agent:
    def __init__(self, word="a"):
        pass

    def run(self, task, env):
        with open({played!r}, "a") as file:
            file.write(task.id.replace(" ", "") + "\\n")
        env.step("cat README.md helped 2>/dev/null")
        env.submit("Done.")
"""
TEST = """\
import pytest

def test_passes(intercode_project):
    assert intercode_project.run("First.").answer == "Done."
    intercode_project.run("Second.", project="example")

@pytest.mark.parametrize("name", ["x", "y"])
def test_fails(intercode_project, name):
    assert intercode_project.run("First.").created(name)
"""
OPTIONS = ("--intercode-results=r.jsonl", "--intercode-resume", "-p", "no:cacheprovider")
ALL = ["test_fails[x]", "test_fails[y]", "test_passes", "test_passes#2"]

pytestmark = pytest.mark.usefixtures("needs_sandboxes")


@pytest.fixture
def played(pytester: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file in which the agent notes what it played; a repository with tests, and one run."""
    folder = pytester.path
    played = tmp_path_factory.mktemp("played") / "played"
    (folder / "agents.py").write_text(AGENTS.format(played=str(played)))
    (folder / "README.md").write_text("A project.\n")
    (folder / "example").mkdir()
    (folder / "example/README.md").write_text("An example.\n")
    (folder / "test_rules.py").write_text(TEST)
    (folder / "test_other.py").write_text("def test_other(intercode_project): ...\n")
    (folder / "conftest.py").write_text("")
    (folder / ".gitignore").write_text("std*\nrunpytest-*\n")  # pytester's
    git(folder, "init", "-q")
    run(pytester).assert_outcomes(passed=1, failed=2)
    assert take(played) == ALL
    return played


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(
        "test_rules.py", "--intercode-agent=agents.py:Agent", *OPTIONS, *arguments
    )


def take(played: Path) -> list[str]:
    names = played.read_text().split() if played.exists() else []
    played.unlink(missing_ok=True)
    return sorted(names)


def test_nothing_that_is_there_is_run(pytester: pytest.Pytester, played: Path) -> None:
    path = pytester.path / "r.jsonl"
    before = path.read_bytes()
    (pytester.path / "test_other.py").write_text("# another test\n# intercode_project\n")
    result = run(pytester, "-v")
    result.assert_outcomes(passed=1, failed=2)
    assert take(played) == []
    assert path.read_bytes() == before
    result.stdout.fnmatch_lines(
        [
            "*test_passes?Agent? PASSED*",
            "failed, reward 0.00 after 2 turns: the test failed (reused from the resumed run)",
            "4 episodes reused from the resumed run",
            "4 episodes in *r.jsonl",
        ]
    )
    result.stdout.no_fnmatch_line("*ran again*")
    passed_record = json.loads(before.splitlines()[1])
    assert passed_record["test_runs"] == 2
    assert {"project example", "test", "repository"} < passed_record["test_digest"].keys()


@pytest.mark.slow
def test_all_runs_of_a_test_are_taken_or_none(pytester: pytest.Pytester, played: Path) -> None:
    path = pytester.path / "r.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + "".join(lines[2:-1]))  # killed between two runs, and before the end
    run(pytester, "-n2").assert_outcomes(passed=1, failed=2)
    assert take(played) == ["test_fails[y]", "test_passes", "test_passes#2"]
    run(pytester).assert_outcomes(passed=1, failed=2)
    assert take(played) == []


def test_a_changed_test_is_run_again_and_says_why(pytester: pytest.Pytester, played: Path) -> None:
    changes = {
        "test_rules.py": "its module or a conftest.py",
        "example/README.md": "the files of the repository, the project*",
    }
    for path, reason in changes.items():
        with (pytester.path / path).open("a") as file:
            file.write("# changed\n")
        result = run(pytester)
        assert take(played) == ALL
        result.stdout.fnmatch_lines([f"* of the resumed run ran again: changed: {reason}"])
    assert len(results(pytester.path / "r.jsonl")) == 12
    run(pytester)  # the later results count
    assert take(played) == []


def test_answers_to_patterns(pytester: pytest.Pytester, played: Path) -> None:
    (pytester.path / "test_rules.py").write_text(
        "import re\nimport pytest\n\n"
        "@pytest.mark.intercode(answers={re.compile('which'): 'This one.', 'sure?': 'Yes.'})\n"
        "def test_it(intercode_project):\n    intercode_project.run('First.')\n"
    )
    run(pytester).assert_outcomes(passed=1)
    assert take(played) == ["test_it"]
    run(pytester).assert_outcomes(passed=1)
    assert take(played) == []


@pytest.mark.slow
def test_other_arguments_marks_and_faults(pytester: pytest.Pytester, played: Path) -> None:
    run(pytester, "--intercode-agent-arg", "word=b").assert_outcomes(passed=1, failed=2)
    assert take(played) == ALL
    path = pytester.path / "r.jsonl"
    rows = results(path)[:4]
    rows[3]["outcome"] = "infrastructure-error"
    del rows[2]["test_digest"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = run(pytester)
    assert take(played) == ["test_fails[x]", "test_fails[y]"]
    result.stdout.fnmatch_lines(["1 test of the * ran again: it is not known what it was made of"])
    # What its marks make of a result is pytest's to say.
    marks = "import pytest\ndef pytest_itemcollected(item):\n    item.add_marker(pytest.mark.{})\n"
    conftest = pytester.path / "conftest.py"
    conftest.write_text(marks.format("xfail(reason='known')"))
    run(pytester).assert_outcomes(xpassed=1, xfailed=2)
    assert take(played) == ALL
    run(pytester).assert_outcomes(xpassed=1, xfailed=2)
    assert take(played) == []
    # What is not in the repository may be another one by now.
    (played.parent / "gh").write_text("#!/bin/sh\n")
    fake = f"{{'gh': '{played.parent}/gh'}}"
    (pytester.path / "test_rules.py").write_text(
        f"def test_it(intercode_project): intercode_project.run('First.', fake={fake})\n"
    )
    for _ in range(2):
        run(pytester)
        assert take(played) == ["test_it"]
    (pytester.path / "test_rules.py").write_text(TEST)
    result = run(pytester, "--intercode-record=missing")  # each is recorded now
    assert take(played) == ALL
    result.stdout.fnmatch_lines(["3 tests of the resumed run ran again: it has no recording"])
