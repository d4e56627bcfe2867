"""What answers of models come to; the recorded ones are in ``tests/conformance``."""

from __future__ import annotations

import time

import pytest

from pytest_intercode.agents.chat.parsing import (
    ParsedAnswer,
    parse_fenced,
    parse_plan,
    parse_react,
    split_thought,
)
from pytest_intercode.environments.ctf.fields import CtfFields
from pytest_intercode.environments.registry import builtin_kinds, kind_of
from pytest_intercode.suites.loader import load_suite
from pytest_intercode.system.files import bundled_folder


def executed(parsed: ParsedAnswer) -> str:
    assert parsed.kind == "execute", parsed
    return parsed.text


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("```bash\nls -l\n```", "ls -l"),
        ("```\nls -l\n```", "ls -l"),
        ("```sh\nls -l\n```", "ls -l"),
        ("``` bash\nls -l\n```", "ls -l"),
        ("```Bash\nls -l\n```\n", "ls -l"),
        ("~~~bash\nls -l\n~~~", "ls -l"),
        ("````bash\necho '```'\n````", "echo '```'"),
        ("I list the files:\n\n```bash\nls -l\n```\n\nThis shows them.", "ls -l"),
        ("I list the files: ```bash\nls -l\n```", "ls -l"),
        ("```bash\nls -l\n``` This shows them.", "ls -l"),
        ("```bash\nls -l```", "ls -l"),
        ("```bash\nls -l", "ls -l"),
        ("```bash ls -l```", "ls -l"),
        ("```bash ls -l\n```", "ls -l"),
        ("```ls -l```", "ls -l"),
        ("`ls -l`", "ls -l"),
        ("1. List them:\n   ```bash\n   cd /tmp\n   ls -l\n   ```", "cd /tmp\nls -l"),
        ("> ```bash\n> ls -l\n> ```", "ls -l"),
        (
            "```bash\n\n  for f in *; do\n    echo $f\n  done\n\n```",
            "for f in *; do\n  echo $f\ndone",
        ),
        ("<think>I could use ```bash\nrm -rf /\n``` but no.</think>\n```bash\nls\n```", "ls"),
        ("I could do ```bash\nrm -rf /\n``` but no.</think>\n```bash\nls\n```", "ls"),
        ("```json\n{}\n```\n```bash\nls\n```", "ls"),
        ("```bash\r\nls\r\npwd\r\n```", "ls\npwd"),
    ],
)
def test_a_code_block_is_found(answer: str, code: str) -> None:
    assert executed(parse_fenced(answer, "bash")) == code


def test_the_first_of_several_blocks_is_run_and_the_model_is_told() -> None:
    parsed = parse_fenced(
        "First:\n```bash\nmkdir a\n```\nThen:\n```bash\ncd a\n```\n```text\na\n```", "bash"
    )
    assert executed(parsed) == "mkdir a"
    assert parsed.note == "[only the first of 2 code blocks was run]"
    assert parsed.thought == "First:"
    assert parse_fenced("```bash\nls\n```\n```text\na  b\n```", "bash").note == ""


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("", "the answer is empty"),
        ("   \n", "the answer is empty"),
        ("<think>Hmm, ```bash\nls\n```", "the answer is empty"),
        ("I am sorry, but I cannot do that.", "there is no code block in the answer"),
        ("ls -l", "there is no code block in the answer"),
        ("Use `ls` to list and `rm` to remove.", "there is no code block in the answer"),
        ("```bash\n```", "the code block is empty"),
        ("```bash\n  \n```", "the code block is empty"),
        ("```python\nprint(1)\n```", "the code block is marked as 'python', not as bash"),
        ("Submit when you are done, please: what else?", "there is no code block in the answer"),
    ],
)
def test_an_answer_without_code_says_why(answer: str, problem: str) -> None:
    parsed = parse_fenced(answer, "bash")
    assert (parsed.kind, parsed.problem) == ("none", problem)
    assert parsed.excerpt


def test_an_answer_that_was_cut_off_is_not_run() -> None:
    half = "```bash\nrm -rf /tmp/"
    assert executed(parse_fenced(half, "bash")) == "rm -rf /tmp/"
    cut = parse_fenced(half, "bash", cut_off=True)
    assert cut.kind == "none"
    assert "cut off at its limit of tokens" in cut.problem
    whole = "```bash\nls\n```\nThis will"
    assert executed(parse_fenced(whole, "bash", cut_off=True)) == "ls"
    assert "cut off" in parse_fenced("Let me think", "bash", cut_off=True).problem
    assert "cut off" in parse_fenced("", "bash", cut_off=True).problem
    assert "cut off" in parse_react("Action: execute[rm -rf /tmp/", "bash", cut_off=True).problem
    assert executed(parse_react("Action: execute[ls]\nObserva", "bash", cut_off=True)) == "ls"


@pytest.mark.parametrize(
    ("answer", "env", "submitted"),
    [
        ("submit", "bash", ""),
        ("Submit.", "sql", ""),
        ("`submit`", "sql", ""),
        ("**submit**", "sql", ""),
        ("The task is done.\n\nsubmit", "bash", ""),
        ("```bash\nsubmit\n```", "bash", ""),
        ("```\nsubmit FLAG{a b}\n```", "ctf", "FLAG{a b}"),
        ("submit FLAG{x}", "ctf", "FLAG{x}"),
        ("submit `FLAG{x}`", "ctf", "FLAG{x}"),
        ("submit 'FLAG{x}'", "ctf", "FLAG{x}"),
        ("submit[FLAG{[x]}]", "ctf", "FLAG{[x]}"),
        ("submit double", "python", "double"),
        ("submit(double)", "python", "double"),
        ("submit Solution.double.", "python", "Solution.double"),
        ("submit[42]", "bash", "42"),
    ],
)
def test_a_submission_is_found(answer: str, env: str, submitted: str) -> None:
    for parsed in (parse_fenced(answer, env), parse_react(f"Thought: done\nAction: {answer}", env)):
        assert (parsed.kind, parsed.text) == ("submit", submitted), (answer, parsed)


def test_prose_behind_submit_is_not_graded() -> None:
    parsed = parse_react("Thought: done\nAction: submit the answer", "sql")
    assert (parsed.kind, parsed.text) == ("submit", "")
    assert parse_react("I submit the answer now.", "sql").kind == "none"
    assert parse_fenced("submit the answer above", "sql").kind == "none"


@pytest.mark.parametrize(
    ("action", "code"),
    [
        ("execute[ls -l]", "ls -l"),
        ("execute[ ls -l ]", "ls -l"),
        ("Execute[ls -l]", "ls -l"),
        ("execute [ls -l]", "ls -l"),
        ("`execute[ls -l]`", "ls -l"),
        ("**execute[ls -l]**", "ls -l"),
        ("execute[ls -l].", "ls -l"),
        ("\nexecute[ls -l]", "ls -l"),
        ("execute[ls -l] to list the files", "ls -l"),
        ("execute[ls -l]\nThis lists the files [all of them].", "ls -l"),
        ("execute[ls a[0]] and then look at [x]", "ls a[0]"),
        ("execute[if [ -f x ]; then echo yes; fi]", "if [ -f x ]; then echo yes; fi"),
        ("execute[if [[ -f x ]]\nthen echo yes\nfi]", "if [[ -f x ]]\nthen echo yes\nfi"),
        ('execute[echo "${a[@]}" b[0]]', 'echo "${a[@]}" b[0]'),
        ('execute[grep "]" file]', 'grep "]" file'),
        ('execute[grep "[" file]', 'grep "[" file'),
        ("execute[grep -E '[^]]+' file]", "grep -E '[^]]+' file"),
        ("execute[echo it's [done]]", "echo it's [done]"),
        ("execute[x = [1,\n     2]\nprint(x[0])]", "x = [1,\n     2]\nprint(x[0])"),
        ("execute[[1, 2][0]]", "[1, 2][0]"),
        ("execute[\ndef f(x):\n    return x\n]", "def f(x):\n    return x"),
        ("execute[def f(x):\n    return x[1:]]", "def f(x):\n    return x[1:]"),
        ("execute[SELECT [a b] FROM t]", "SELECT [a b] FROM t"),
        ("execute[```sql\nSELECT 1\n```]", "SELECT 1"),
        ("execute[```bash ls```]", "ls"),
        ("execute[echo '```x```']", "echo '```x```'"),
        ("```bash\nexecute[ls]\n```", "ls"),
        ("```bash\nls\n```", "ls"),
        ("execute[ls]\nObservation 1: a\nThought 2: b\nAction 2: execute[rm a]", "ls"),
        ("execute[ls]\nObservation", "ls"),
        ("execute[ls]\nAction 2: submit", "ls"),
        ("Action: execute[ls]", "ls"),
    ],
)
@pytest.mark.parametrize(
    "label",
    ["Action: ", "Action 3: ", "action 3 : ", "**Action:** ", "**Action 3**: ", "### Action: "],
)
def test_an_action_is_found(label: str, action: str, code: str) -> None:
    parsed = parse_react(f"Thought 3: I look.\n{label}{action}", "bash")
    assert executed(parsed) == code
    assert parsed.thought == "I look."
    assert "Observation 1" not in parsed.excerpt
    assert "rm a" not in parsed.excerpt


@pytest.mark.parametrize(
    ("answer", "code", "thought"),
    [
        ("execute[ls]", "ls", ""),
        ("I look first.\nexecute[ls]", "ls", "I look first."),
        ("I look with execute[ls] first.", "ls", "I look with"),
        ("Thought 1: I look. Action 1: execute[ls]", "ls", "I look."),
        ("Thought: I look.\n\n```bash\nls\n```", "ls", "I look."),
        ("<think>a plan</think>Thought: I look.\nAction: execute[ls]", "ls", "a plan\nI look."),
        ("a plan</think>Thought: I look.\nAction: execute[ls]", "ls", "a plan\nI look."),
        ("Thought: I will submit later.\nAction: execute[ls]", "ls", "I will submit later."),
        ("I will submit later.\nexecute[ls]", "ls", "I will submit later."),
        ("Thought: it says\nThought: I look.\nAction: execute[ls]", "ls", "it says\nI look."),
    ],
)
def test_an_action_is_found_without_its_label(answer: str, code: str, thought: str) -> None:
    parsed = parse_react(answer, "bash")
    assert executed(parsed) == code
    assert parsed.thought == thought


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("", "there is no action"),
        ("Thought: I do not know.", "neither execute[...] nor submit"),
        ("Thought: a\nAction: ls -l", "neither execute[...] nor submit"),
        ("Thought: a\nAction:", "there is no action"),
        ("Thought: execute[ls]\nAction 3: Observation 3: [('a',)]", "there is no action"),
        ("Observation: [1]\nAction: none", "neither execute[...] nor submit"),
        ("Action: execute[SELECT a FROM", "the bracket of execute[ is never closed"),
        ("Action: execute[SELECT a[0] FROM", "the bracket of execute[ is never closed"),
        ("Action: execute[SELECT a\nObservation: [(1,)]", "the bracket of execute[ is never"),
        ("Action: execute[]", "there is nothing between the brackets"),
        ("Action: execute[```\n```]", "there is nothing between the brackets"),
    ],
)
def test_an_answer_without_an_action_says_why(answer: str, problem: str) -> None:
    parsed = parse_react(answer, "sql")
    assert parsed.kind == "none", parsed
    assert problem in parsed.problem
    assert parsed.excerpt


def test_thoughts_in_tags() -> None:
    assert split_thought("<think>a\nb</think>\nc") == ("a\nb", "c")
    assert split_thought("\n<thinking>a</thinking>c") == ("a", "c")
    assert split_thought("<think>a") == ("a", "")
    assert split_thought("a</think>c") == ("a", "c")
    assert split_thought("a <think> b") == ("", "a <think> b")


@pytest.mark.parametrize(
    ("answer", "steps"),
    [
        ("1. Look.\n2. Write.", ["Look.", "Write."]),
        ("Here is the plan:\n\n1) Look.\n2) Write.\n", ["Look.", "Write."]),
        ("Step 1: Look.\nStep 2: Write.", ["Look.", "Write."]),
        ("**Step 1:** Look.\n**Step 2:** Write.", ["Look.", "Write."]),
        ("### 1. Look.\n### 2. Write.", ["Look.", "Write."]),
        ("1. Look\n   - here\n   - there\n2. Write.", ["Look\n   - here\n   - there", "Write."]),
        ("1. Look\n   1. here\n2. Write.", ["Look\n   1. here", "Write."]),
        ("- Look.\n- Write.", ["Look.", "Write."]),
        ("<think>1. no</think>Look at it and write.", ["Look at it and write."]),
        ("1.\n2.\n", ["1.\n2."]),
        ("", []),
    ],
)
def test_steps_of_a_plan(answer: str, steps: list[str]) -> None:
    assert parse_plan(answer) == steps


@pytest.mark.parametrize(
    "answer",
    [
        "execute[" + "]" * 100_000,
        "execute[" + "[" * 100_000,
        "Action: " * 20_000,
        "Action:" + " " * 100_000,
        "```" + " " * 100_000,
        "```" * 50_000,
        "``` a ```" * 10_000,
        "submit" + "`" * 100_000 + "x",
        ("`" * 3 + "\n") * 20_000,
        "#" * 100_000,
        "> " * 50_000 + "x",
        "thought" + "*" * 100_000,
        "<think>" * 20_000,
        "1" * 100_000,
        " " * 100_000 + "x",
        "action" + " " * 100_000,
        "action " + "1" * 100_000,
        "x ```a\nb```\n" * 10_000,
        "`" * 100_000 + "\nx",
        "~" * 100_000 + "\n",
        ("a" * 50 + " ") * 2_000,
        "execute [" * 10_000,
        "execute" + " " * 100_000,
        "'" * 100_000 + "execute[" + "'" * 100_000,
        "\n" * 100_000,
        "submit\n" * 10_000,
        "Thought: a\nAction: execute[\n" * 5_000,
    ],
    ids=range(27),
)
def test_no_answer_takes_long(answer: str) -> None:
    began = time.process_time()
    parse_react(answer, "bash")
    parse_fenced(answer, "bash")
    parse_plan(answer)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("env", [kind.name for kind in builtin_kinds()])
def test_real_code_comes_back_as_it_is(env: str) -> None:
    tasks = load_suite(bundled_folder("tasks") / f"{env}.yaml").tasks
    codes = [
        code
        for task in tasks
        for code in (CtfFields.of(task).solution if env == "ctf" else task.gold)
    ]
    assert len(codes) > 20
    for code in (code.strip() for code in codes):
        acted = f"Thought: x\nAction: execute[{code}]\nObservation: [1]"
        if env != "swe":  # a patch may hold any bracket, and ReAct's form ends with one
            assert executed(parse_react(acted, env)) == code
        block = f"So:\n```{kind_of(env).labels[0]}\n{code}\n```\nDone [x]."
        assert executed(parse_fenced(block, env)) == code
