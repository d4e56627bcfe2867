"""Episodes of the swe environment: what is graded, and what earns nothing."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.task import FileSpec, Limits, Repository, Task, Verification
from pytest_intercode.environments.swe.fields import SweFields
from pytest_intercode.environments.swe.gold import gold_actions
from pytest_intercode.environments.swe.strict import SweEnvironment
from pytest_intercode.errors import TaskError
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.suites.catalogue import with_shared_verifier
from tests.support import puzzles

provider = puzzles.provider  # fixture: of each backend
quick_provider = puzzles.quick_provider

CALC = "def add(a, b):\n    return a - b\n\n\ndef mul(a, b):\n    return a * b\n"
OLD_TEST = "from calc import mul\n\n\ndef test_mul():\n    assert mul(2, 3) == 6\n"
NEW_TEST = "from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n"
GOLD = (
    "diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -1,5 +1,5 @@\n"
    " def add(a, b):\n-    return a - b\n+    return a + b\n \n \n def mul(a, b):\n"
)
FIX = "sed -i 's/a - b/a + b/' calc.py"
TESTS = "python3 -B -m pytest -rA -p no:cacheprovider tests/test_calc.py tests/test_more.py"


def _stream() -> str:
    """Return a repository as text: two commits, of which the later one holds the answer."""
    files = {"calc.py": CALC, "tests/test_calc.py": OLD_TEST, ".gitignore": "*.log\n"}
    lines = []
    for at, (says, changed) in enumerate(
        (("Begin", files), ("Add, and not subtract", {"calc.py": CALC.replace("a - b", "a + b")}))
    ):
        when = f"A <a@b> {1700000000 + at * 86400} +0000"
        lines += ["commit refs/heads/main", f"mark :{at + 1}", f"author {when}"]
        lines += [f"committer {when}", f"data {len(says)}", says]
        for path, text in changed.items():
            lines += [f"M 100644 inline {path}", f"data {len(text)}", text]
    return "\n".join([*lines, "reset refs/tags/v1", "from :1", ""])


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "calc.export"
    path.write_text(_stream())
    return path


def task(stream: Path, **fields: Any) -> Task:
    verification = {
        "command": TESTS,
        "files": {"tests/test_more.py": FileSpec("file", NEW_TEST.encode())},
        "fail_to_pass": ("tests/test_more.py::test_add",),
        "pass_to_pass": ("tests/test_calc.py::test_mul",),
        "timeout": 20.0,
        **fields.pop("verification", {}),
    }
    repository = Repository(source=stream, commit="v1")
    fields = {"fields": SweFields(repository), "gold": (GOLD,), **fields}
    made: dict[str, Any] = {
        "id": "t",
        "query": "Adding is wrong.",
        "env": "swe",
        "suite": "s",
        "dataset": "s",
    }
    made |= {"workdir": "/repo", "verification": Verification(**verification)}
    return Task(**{**made, **fields})


def machine_task(**verification: Any) -> Task:
    """Return a task without a repository, whose tests have an exit status and nothing else."""
    made = Verification(parser="status", **verification)
    fields: dict[str, Any] = {"id": "t", "query": "Do.", "gold": (), "env": "swe"}
    return Task(**fields, suite="s", dataset="s", workdir="/w", verification=made)


class Play:
    """Plays one episode and keeps what it gave."""

    def __init__(self, provider: SandboxProvider, made: Task, *actions: str, **options: Any):
        environment = SweEnvironment(provider, **options)
        try:
            environment.reset(task=made)
            self.said = [str(environment.step(action)[0]) for action in actions]
            self.reward = environment.end("stopped")
            self.state = environment.recorded_state()
        finally:
            environment.close()


# -- what is graded


def test_gold_solves_and_its_patch_is_kept(provider: SandboxProvider, stream: Path) -> None:
    made = task(stream)
    play = Play(provider, made, *gold_actions(made))
    assert (play.reward.value, play.reward.reason) == (1.0, "")
    assert play.reward.parts == {"fail_to_pass": 1.0, "pass_to_pass": 1.0}
    body = [line for line in play.state["patch"].splitlines() if not line.startswith("index ")]
    assert body == GOLD.splitlines()
    assert play.state["left_out"] == []


def test_doing_nothing_fails(provider: SandboxProvider, stream: Path) -> None:
    play = Play(provider, task(stream), "ls")
    assert play.reward.value == 0.0
    assert play.reward.parts == {"fail_to_pass": 0.0, "pass_to_pass": 1.0}
    assert play.state["patch"] == ""


def test_what_broke_is_named(provider: SandboxProvider, stream: Path) -> None:
    play = Play(provider, task(stream), f"{FIX}; sed -i 's/a [*] b/0/' calc.py")
    assert play.reward.value == 0.0
    assert play.reward.parts == {"fail_to_pass": 1.0, "pass_to_pass": 0.0}
    assert "1 test that passed before does not: tests/test_calc.py::test_mul" in play.reward.reason


@pytest.mark.parametrize("owner", ["task", "verification"])
def test_options_of_pytest_count_next_to_sentinels(
    quick_provider: SandboxProvider, stream: Path, owner: str
) -> None:
    variables = (("PYTEST_ADDOPTS", "--deselect tests/test_more.py::test_add"),)
    fields: dict[str, Any] = {"variables": variables}
    swe_task = task(stream, **fields if owner == "task" else {"verification": fields})
    play = Play(quick_provider, swe_task, *gold_actions(swe_task))
    assert play.reward.parts == {"fail_to_pass": 0.0, "pass_to_pass": 1.0}


def test_with_rewards_as_feedback_each_state_is_tested(
    quick_provider: SandboxProvider, stream: Path
) -> None:
    environment = SweEnvironment(quick_provider, feedback="reward")
    try:
        environment.reset(task=task(stream))
        rewards = [environment.step(action)[1] for action in ("sleep 100 & ls", FIX)]
        assert rewards == [0.0, 1.0]
        assert environment.over == "solved"
    finally:
        environment.close()


def test_new_moved_and_removed_files_are_of_the_patch_and_ignored_ones_are_not(
    provider: SandboxProvider, stream: Path
) -> None:
    action = (
        f"{FIX}; mkdir -p new/deep; echo a >'new/deep/a b'; echo x >x.log; chmod +x calc.py; "
        "printf '\\0\\1' >bin; ln -s calc.py link; mkfifo pipe; rm -r tests; git add -A; "
        "git -c user.name=a -c user.email=a@b commit -qm all; echo later >>calc.py"
    )
    patch = Play(provider, task(stream), action).state["patch"]
    headers = {line.split(" b/")[1] for line in patch.splitlines() if line.startswith("diff --git")}
    assert headers == {"calc.py", "new/deep/a b", "bin", "link", "tests/test_calc.py"}
    assert "GIT binary patch" in patch
    assert "new mode 100755" in patch
    assert "+later" in patch


def test_the_index_stays_as_setup_left_it(quick_provider: SandboxProvider, stream: Path) -> None:
    setup = (
        "mv .git /srv/git; echo 'gitdir: /srv/git' >.git",
        "echo staged >staged; git add staged",
    )
    same = '[ "$(git diff --cached --name-only)" = staged ] && [ "$(ls /srv/git/index*)" = '
    verification = {
        "command": f"{same}/srv/git/index ] && [ $(ls ü/* | wc -l) = 100 ] && [ ! -e staged ]",
        "parser": "status",
        "files": {},
        "fail_to_pass": (),
        "pass_to_pass": (),
    }
    made = task(stream, setup=setup, verification=verification)
    action = f"mkdir ü; touch ü/{'x' * 40}-{{1..100}}; rm staged; {FIX}"
    play = Play(quick_provider, made, action)
    assert (play.reward.value, play.reward.reason) == (1.0, "")
    headers = [line for line in play.state["patch"].splitlines() if line.startswith("diff --git")]
    assert len(headers) == 101
    assert not any("staged" in header for header in headers)


@pytest.mark.parametrize("by", ["setup", "agent"])
def test_a_folder_where_a_test_belongs_makes_room(
    quick_provider: SandboxProvider, stream: Path, by: str
) -> None:
    make = "mkdir tests/test_more.py; touch tests/test_more.py/x"
    made = task(stream, setup=(make,) if by == "setup" else ())
    play = Play(quick_provider, made, FIX, *((make,) if by == "agent" else ()))
    assert (play.reward.value, play.reward.reason) == (1.0, "")
    assert play.state["left_out"] == ([] if by == "setup" else ["tests/test_more.py/x"])


def test_folders_count_by_their_files(provider: SandboxProvider, stream: Path) -> None:
    assert Play(provider, task(stream), "chmod 700 tests").state["patch"] == ""
    action = "rm calc.py; mkdir calc.py; echo in >calc.py/in; rm -r tests; echo no folder >tests"
    patch = Play(provider, task(stream), action).state["patch"]
    headers = [line.split(" b/")[1] for line in patch.splitlines() if line.startswith("diff --git")]
    assert headers == ["calc.py", "calc.py/in", "tests", "tests/test_calc.py"]


def test_the_whole_machine_is_tested_where_there_is_no_repository(
    provider: SandboxProvider,
) -> None:
    made = Task(
        *("t", "Install it.", ("true",), "swe", "s", "s"),
        workdir="/w",
        setup=("mkdir -p /srv/old; echo 1 >/srv/old/a; echo 1 >/srv/keep",),
        verification=Verification(
            '[ "$(cat /opt/tool/x)" = 7 ] && [ ! -e /srv/old ] && [ -d /srv/keep ] && '
            '[ "$(stat -c %a%U /opt/tool/x)" = 640daemon ]',
            parser="status",
        ),
    )
    done = (
        "mkdir -p /opt/tool; echo 7 >/opt/tool/x; chmod 640 /opt/tool/x; chown daemon /opt/tool/x"
    )
    done += "; rm -r /srv/old; rm /srv/keep; mkdir /srv/keep"
    assert Play(provider, made, done).reward.value == 1.0
    assert Play(provider, made, "rm -r /srv/old").reward.value == 0.0


@pytest.mark.parametrize("network", [False, True])
def test_the_list_of_hosts_is_of_the_machine(provider: SandboxProvider, network: bool) -> None:
    gold = "echo '127.0.0.1 shop.example' >>/etc/hosts"
    made = replace(
        machine_task(command="grep -c shop.example /etc/hosts"),
        gold=(gold,),
        limits=Limits(network=network),
    )
    assert Play(provider, made, gold).reward.value == 1.0
    assert Play(provider, made, "true").reward.value == 0.0
    unasked = replace(made, gold=("true",))
    assert Play(provider, unasked, gold).state["left_out"] == ["/etc/hosts"]


def test_tests_may_run_beside_what_the_agent_started(provider: SandboxProvider) -> None:
    made = machine_task(command="grep -qa 98765 /proc/$(cat pid)/cmdline")
    start = "sleep 98765 & echo $! >pid; until grep -qa 98765 /proc/$!/cmdline; do :; done"
    assert Play(provider, made, start).reward.value == 0.0
    there = with_shared_verifier(made)
    assert Play(provider, there, start).reward.value == 1.0
    assert Play(provider, there, start, feedback="reward").reward.value == 1.0
    trojan = "bash() { true; }; grep() { true; }; export -f bash grep; echo 99999 >pid"
    assert Play(provider, there, trojan).reward.value == 0.0
    with pytest.raises(TaskError, match="did not finish within 1 s"):
        Play(provider, with_shared_verifier(machine_task(command="sleep 99", timeout=1.0)))


def test_tests_may_run_in_the_agents_shell(provider: SandboxProvider) -> None:
    made = machine_task(command="[ $TOKEN = $PWD ]", place="shell")
    assert Play(provider, made, "cd /tmp; export TOKEN=/tmp").reward.value == 1.0
    assert Play(provider, made, "export TOKEN=/tmp").reward.value == 0.0


def test_there_is_no_future(provider: SandboxProvider, stream: Path) -> None:
    looks = (
        "git log --all --oneline; git tag; git reflog; git remote; git fsck --unreachable; "
        "git cat-file --batch-all-objects --batch-check='%(objecttype)' | sort | uniq -c; "
        "git status --short; git diff --stat; ls .git/hooks 2>&1"
    )
    said = Play(provider, task(stream), looks).said[0]
    assert said.splitlines()[0].endswith(" Begin")
    words = [line.split() for line in said.splitlines()[1:]]
    assert words[:4] == [["v1"], ["3", "blob"], ["1", "commit"], ["2", "tree"]]
    assert len(words) == 5  # and that there are no hooks


# -- whose fault it is


def test_tests_that_never_run_on_gold_are_the_tasks_fault(
    quick_provider: SandboxProvider, stream: Path
) -> None:
    made = task(stream, verification={"command": "no-such-program"})
    with pytest.raises(TaskError, match="gold cannot be verified: no result of a test"):
        Play(quick_provider, made, "ls")


def test_a_patch_of_tests_that_does_not_apply_is_the_tasks_fault(
    quick_provider: SandboxProvider, stream: Path
) -> None:
    made = task(stream, verification={"patch": GOLD.replace("a - b", "a / b")})
    with pytest.raises(TaskError, match="the patch with the tests does not apply"):
        Play(quick_provider, made, "ls")


# -- what earns nothing

MAKE_ALL_PASS = (
    "import _pytest.reports as r\\n"
    "old = r.TestReport.from_item_and_call.__func__\\n"
    "def new(cls, item, call):\\n"
    "    report = old(cls, item, call)\\n"
    "    report.outcome = 'passed'\\n"
    "    return report\\n"
    "r.TestReport.from_item_and_call = classmethod(new)\\n"
)
HOOK = (
    "import pytest\\n@pytest.hookimpl(hookwrapper=True)\\ndef pytest_runtest_makereport():\\n"
    "    o = yield\\n    o.get_result().outcome = 'passed'\\n"
)
FORGED = (
    "import os\\nfor name in ('test_more.py::test_add', 'test_calc.py::test_mul'):\\n"
    "    for fd in range(1, 30):\\n"
    "        try: os.write(fd, b'\\\\nPASSED tests/%s\\\\n' % name.encode())\\n"
    "        except OSError: pass\\n"
)
ATTACKS = {  # more of them are in tests/attacks/cases/grading-swe.yaml
    "conftest": f'printf "{HOOK}" >conftest.py; cp conftest.py tests/',
    "passes-all": f'printf "{MAKE_ALL_PASS}" >>calc.py',
    "exit-0": "echo 'import os; os._exit(0)' >>calc.py",
    "prints-and-exits": f'printf "{FORGED}os._exit(0)\\n" >>calc.py',
}


@pytest.mark.parametrize("name", ["passes-all", "exit-0", "prints-and-exits"])
def test_tampering_is_named(quick_provider: SandboxProvider, stream: Path, name: str) -> None:
    play = Play(quick_provider, task(stream), ATTACKS[name])
    assert play.reward.reason.startswith("the results are not honest: ") or (
        "no result of a test" in play.reward.reason
    )


def test_what_was_left_out_is_named(quick_provider: SandboxProvider, stream: Path) -> None:
    play = Play(quick_provider, task(stream), ATTACKS["conftest"])
    assert play.state["left_out"] == ["conftest.py", "tests/conftest.py"]
    assert play.reward.reason.endswith("(not tested: conftest.py, tests/conftest.py)")


def test_a_hanging_patch_costs_the_agent_its_reward(
    quick_provider: SandboxProvider, stream: Path
) -> None:
    made = task(stream, verification={"timeout": 2.0})
    play = Play(quick_provider, made, "echo 'while True: pass' >>calc.py")
    assert play.reward.value == 0.0
    assert play.reward.reason == "the tests did not end within 2 s"


def test_a_patch_that_fills_the_disk_costs_the_agent_its_reward(
    quick_provider: SandboxProvider, stream: Path
) -> None:
    fill = "open('/repo/big', 'wb').write(bytes(1 << 28) * 4)"
    play = Play(quick_provider, task(stream), f'echo "{fill}" >>calc.py')
    assert play.reward.value == 0.0


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "device"])
def test_a_report_that_is_no_file_is_not_followed(
    provider: SandboxProvider, stream: Path, kind: str
) -> None:
    forged = '<testsuite><testcase classname="tests.test_more" name="test_add"/></testsuite>'
    places = {
        "link": f"open('/tmp/f', 'w').write('{forged}'); os.symlink('/tmp/f', p)",
        "fifo": "os.mkfifo(p)",
        "folder": "os.mkdir(p)",
        "device": "os.symlink('/dev/zero', p)",
    }
    code = f"import os; p = '/tmp/report.xml'; {places[kind]}; os._exit(1)"
    made = task(
        stream,
        verification={
            "command": f"{TESTS} --junitxml=/tmp/report.xml",
            "parser": "junit",
            "report": "/tmp/report.xml",
        },
    )
    play = Play(provider, made, f"cat >>calc.py <<'END'\n{code}\nEND")
    assert play.reward.value == 0.0


# -- sandboxes: what a verifier needs of them


def test_an_archive_holds_files_links_and_folders_alone(provider: SandboxProvider) -> None:
    made = Task("t", "q", ("true",), "swe", "s", "s", verification=Verification("true"))
    environment = SweEnvironment(provider)
    try:
        environment.reset(task=made)
        environment.step("mkdir -p /w/d; echo a >/w/d/f; ln -s / /w/l; mkfifo /w/p; chmod 751 /w/d")
        paths = ["/w/d", "/w/d/f", "/w/l", "/w/p", "/w/none", "/w/l/etc/passwd"]
        with tarfile.open(fileobj=io.BytesIO(environment.sandbox.archive(paths))) as archive:
            found = {member.name: member for member in archive}
            assert sorted(found) == ["w/d", "w/d/f", "w/l"]
            assert found["w/d"].mode == 0o751
            file = archive.extractfile(found["w/d/f"])
            assert file is not None
            assert file.read() == b"a\n"
            assert found["w/l"].linkname == "/"
    finally:
        environment.close()
