"""The page in a real browser: ten thousand episodes, two runs, keys, and hostile text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from pytest_intercode.core.record import EpisodeRecord, Outcome
from pytest_intercode.page import write
from pytest_intercode.results.cells import Cell
from pytest_intercode.results.comment import Links
from pytest_intercode.results.format import from_row
from pytest_intercode.results.tries import key_of
from tests.support import page_rows
from tests.support.browser import Browser

pytest.importorskip("jinja2", reason="the page needs the extra html")

TASKS = 1_000
IN_SIGHT = "[...document.querySelectorAll('#body tr[data-n]')]"
IDS = f"{IN_SIGHT}.map(row => row.querySelector('.id').textContent)"
DIALOG = "document.getElementById('trajectory')"
COUNT = "document.getElementById('count').textContent"


@pytest.fixture
def browser(shared_browser: Browser) -> Iterator[Browser]:
    """The browser; whatever a page does, it has nothing to complain of and asks for nothing."""
    shared_browser.forget()
    yield shared_browser
    assert shared_browser.requests == []
    assert shared_browser.problems == []


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = tmp_path_factory.mktemp("page") / "large.html"
    rows = page_rows.placed(page_rows.run(10_000), 4, lanes=64)
    write(map(from_row, rows), page, "Ten thousand")
    return page


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = tmp_path_factory.mktemp("page") / "many.html"
    write(map(from_row, page_rows.run(TASKS)), page, "A thousand")
    return page


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: the second fails task 0, solves task 1, and does task 0 in another way."""
    page = tmp_path_factory.mktemp("page") / "two.html"
    before = page_rows.run(40)
    after = json.loads(json.dumps(before))
    for number, row in enumerate(before):
        row["outcome"] = after[number]["outcome"] = "failed" if number == 1 else "solved"
    after[0]["outcome"], after[1]["outcome"] = "failed", "solved"
    after[0]["turn_history"]["actions"][1:1] = ["a step that nobody took before"]
    old, new = (list(map(from_row, rows)) for rows in (before, after))
    write(old, page, "Two", other=new, names=("old", "new"))
    return page


def open_in_dialog(browser: Browser, *keys: str) -> None:
    browser.evaluate("document.getElementById('scroller').focus()")
    browser.press(*keys, "Enter")
    browser.wait(f"{DIALOG}.open")


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run of two agents with and without a skill; and its page next to one without a cell."""
    folder = tmp_path_factory.mktemp("page")
    before = [
        replace(record, agent=agent, task=replace(record.task, treatment=treatment))
        for seed, agent in enumerate(("codex", "claude"))
        for skill, treatment in ((0.2, "control"), (1.4, "skill"))
        for record in map(from_row, page_rows.run(20, seed=seed, skill=skill, repeats=2))
    ]
    after = [
        replace(record, outcome="failed") if record.agent == "claude" else record
        for record in before
        if (record.agent, record.task.treatment) != ("codex", "control")
    ]
    write(before, folder / "one.html", "One")
    write(before, folder / "two.html", "Two", other=after, names=("old", "new"))
    return folder / "one.html", folder / "two.html"


# -- ten thousand episodes


@pytest.mark.slow
def test_ten_thousand_episodes_are_light(browser: Browser, large: Path) -> None:
    browser.open(large)
    assert browser.evaluate(COUNT) == "10,000 tasks"
    paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    times = [browser.evaluate(paint)]
    while min(times) >= 2000 and len(times) < 3:  # others may be at work on this machine
        browser.open(large)
        times.append(browser.evaluate(paint))
    assert min(times) < 2000  # ms, by the browser's own clock; on an idle machine 300
    assert browser.evaluate("document.querySelectorAll('*').length") < 2500
    assert large.stat().st_size < 3_000_000


@pytest.mark.slow
def test_the_table_shows_what_is_scrolled_to(browser: Browser, large: Path) -> None:
    browser.open(large)
    browser.evaluate("document.getElementById('scroller').scrollTop = 5000 * 36")
    browser.wait(f"{IDS}.includes('bash-05000')")
    assert len(browser.evaluate(IDS)) < 80
    browser.evaluate("document.getElementById('scroller').focus()")
    browser.press("End")
    browser.wait(f"{IDS}.includes('ctf-09999')")
    active = browser.evaluate(
        "document.getElementById(document.getElementById('scroller')"
        ".getAttribute('aria-activedescendant')).textContent"
    )
    assert active.startswith("ctf-09999")


@pytest.mark.slow
def test_scrolling_makes_rows_only_where_there_are_none(browser: Browser, many: Path) -> None:
    browser.open(many)
    scrolled = "new Promise(requestAnimationFrame).then(() => new Promise(requestAnimationFrame))"
    browser.evaluate(f"{IN_SIGHT}.forEach(row => {{ row.isOld = true; }})")
    browser.evaluate("document.getElementById('scroller').scrollTop = 5 * 36")
    browser.evaluate(f"{scrolled}.then(() => 1)")
    assert browser.evaluate(f"{IN_SIGHT}.every(row => row.isOld)")
    browser.evaluate("document.getElementById('scroller').scrollTop = 500 * 36")
    browser.wait(f"{IDS}.includes('bash-00500')")
    assert browser.evaluate(f"{IN_SIGHT}.filter(row => row.isOld).length") == 0
    # Where rows end, those of what comes next are there before anybody sees them missing.
    for place in range(500, 520):
        browser.evaluate(f"document.getElementById('scroller').scrollTop = {place} * 36")
        browser.evaluate(f"{scrolled}.then(() => 1)")
        shown = browser.evaluate(f"{IN_SIGHT}.map(row => Number(row.dataset.n))")
        seen = browser.evaluate("document.getElementById('scroller').clientHeight / 36")
        assert shown[0] <= place
        assert shown[-1] >= place + seen - 1


# -- several cells

HEADS = "[...document.querySelectorAll('#head th')].map(head => head.textContent)"


def choose(browser: Browser, name: str, value: str) -> None:
    browser.evaluate(
        f"document.getElementById('choose-{name}').value = '{value}';"
        f"document.getElementById('choose-{name}').dispatchEvent(new Event('change'))"
    )


def test_cells_are_columns_and_can_be_filtered(browser: Browser, cells: tuple[Path, Path]) -> None:
    browser.open(cells[0])
    names = ["codex-control", "codex-skill", "claude-control", "claude-skill"]
    assert [head for head in browser.evaluate(HEADS) if "-" in head] == names
    assert browser.evaluate(COUNT) == "20 tasks"
    differences = "[...document.querySelectorAll('.cells .change')].map(node => node.textContent)"
    assert browser.evaluate(differences)[:2] == ["better", "better"]
    choose(browser, "agent", "claude")
    choose(browser, "treatment", "skill")
    assert [head for head in browser.evaluate(HEADS) if "-" in head] == ["claude-skill"]
    chips = "[...document.querySelectorAll('.chip[data-kind=outcome] .count')]"
    assert browser.evaluate(f"{chips}[0].textContent") == "20"  # solved by that cell
    browser.wait("/agent=claude&treatment=skill/.test(location.hash)")


def test_a_trajectory_offers_the_tries_of_all_cells(
    browser: Browser, cells: tuple[Path, Path]
) -> None:
    browser.open(cells[0])
    open_in_dialog(browser)
    groups = f"[...{DIALOG}.querySelectorAll('.tries')].map(group => group.textContent)"
    assert [text.split("1")[0] for text in browser.evaluate(groups)] == [
        *("codex-control", "codex-skill", "claude-control", "claude-skill")
    ]
    browser.evaluate(
        f"{DIALOG}.querySelectorAll('.tries')[3].querySelectorAll('button')[1].click()"
    )
    browser.wait("/try=2&cell=claude-skill/.test(location.hash)")
    pressed = f"[...{DIALOG}.querySelectorAll('[aria-pressed=true]')].length"
    assert browser.evaluate(pressed) == 1
    browser.wait(f"{DIALOG}.querySelector('.facts-of').textContent.includes('solved')")


def test_two_runs_have_a_row_for_each_task_and_cell(
    browser: Browser, cells: tuple[Path, Path]
) -> None:
    browser.open(cells[1])
    assert browser.evaluate(COUNT) == "80 rows"
    verdict = browser.evaluate("document.querySelector('.verdict').textContent")
    assert verdict.startswith("regressed of 3 cells, with Holm's correction")
    choose(browser, "agent", "codex")
    choose(browser, "treatment", "control")
    assert browser.evaluate(COUNT) == "20 of 80 rows"
    only = "[...document.querySelectorAll('#body .change')].map(node => node.textContent)"
    assert set(browser.evaluate(only)) == {"only before"}
    open_in_dialog(browser)
    assert "not played in this run" in browser.evaluate(f"{DIALOG}.textContent")


@pytest.mark.parametrize("page", [0, 1])
def test_a_link_of_a_comment_names_task_and_cell(
    browser: Browser, cells: tuple[Path, Path], page: int
) -> None:
    """It does not depend on whether the page is of one run, or of two."""
    key = key_of(from_row(page_rows.run(20)[0]))
    links = Links(page="https://pages.example/report.html")
    address = links.task(key, Cell("claude", "skill"))
    browser.open(cells[page], address.removeprefix(links.page))
    browser.wait(f"{DIALOG}.open")
    text = browser.evaluate(f"{DIALOG}.textContent")
    assert key.task in text
    assert re.search("claude-?skill", text)


# -- a thousand


def test_filters_and_their_address(browser: Browser, many: Path) -> None:
    rows = page_rows.run(TASKS)
    browser.open(many)
    browser.evaluate(
        "const select = document.getElementById('choose-env'); select.value = 'sql';"
        "select.dispatchEvent(new Event('change'))"
    )
    browser.click(".chip[data-value='timed-out']")
    browser.evaluate(
        "const body = document.getElementById('body'), made = body.replaceChildren; body.times = 0;"
        "body.replaceChildren = (...rows) => { body.times++; made.apply(body, rows); }"
    )
    browser.evaluate("document.querySelector(\".chip[data-value='failed']\").click()")
    assert browser.evaluate("document.getElementById('body').times") == 1  # twice is a layout more
    wanted = [
        row["task_id"]
        for row in rows
        if row["environment"] == "ic_sql" and row["outcome"] in ("timed-out", "failed")
    ]
    assert browser.evaluate(COUNT) == f"{len(wanted):,} of 1,000 tasks"
    assert browser.evaluate(IDS) == wanted[: len(browser.evaluate(IDS))]
    browser.wait("/env=sql&outcome=timed-out%2Cfailed/.test(location.hash)")
    linked = browser.evaluate("location.hash")

    browser.open(many, linked)
    assert browser.evaluate(COUNT) == f"{len(wanted):,} of 1,000 tasks"
    assert browser.evaluate("document.getElementById('choose-env').value") == "sql"
    browser.click("#clear")
    assert browser.evaluate(COUNT) == "1,000 tasks"


def test_search_is_over_ids_and_queries(browser: Browser, many: Path) -> None:
    browser.open(many)
    browser.press("/")
    assert browser.evaluate("document.activeElement.id") == "q"
    browser.send("Input.insertText", text="NUMBER 321 says")
    assert browser.evaluate(IDS) == ["sql-00321"]
    browser.evaluate("document.getElementById('q').select()")
    browser.send("Input.insertText", text="ctf-00003")
    assert browser.evaluate(IDS) == ["ctf-00003"]
    browser.evaluate("document.getElementById('q').select()")
    browser.send("Input.insertText", text="nothing is called this")
    assert browser.evaluate(IDS) == []
    assert "No task is like this" in browser.evaluate("document.body.innerText")


def test_search_is_in_trajectories_too(browser: Browser, tmp_path: Path) -> None:
    rows = page_rows.run(3_000)
    texts = {
        "actions": "grep Needle x",
        "observations": "a NEEDLE and thread",
        "thoughts": "needle?",
    }
    for at, (column, text) in enumerate(texts.items()):
        rows[700 * at + 11]["turn_history"][column] = [text] * 2
    rows[2_900]["test_output"] = "E  needle is not hay"
    rows[2_950]["end_state"] = {"agent": "needle", "gold": "needle"}
    write(map(from_row, rows), tmp_path / "page.html", "Hay")
    browser.open(tmp_path / "page.html")
    ids = {at: rows[at]["task_id"] for at in (11, 711, 1411, 2900)}
    for text, found in {
        "nEEdle": [*ids.values()],
        "needle thread 711": [ids[711]],  # a word of the id among them
        "needle nowhere": [],
    }.items():
        browser.press("/")
        browser.evaluate("document.getElementById('q').select()")
        browser.send("Input.insertText", text=text)
        browser.wait(f"{COUNT} === '{len(found)} of 3,000 tasks'")
        assert browser.evaluate(IDS) == found
        browser.press("Escape")
    browser.click("#clear")
    assert browser.evaluate(COUNT) == "3,000 tasks"


def test_sorting(browser: Browser, many: Path) -> None:
    rewards = "[...document.querySelectorAll('#body tr[data-n] .number')].map(e => e.textContent)"
    browser.open(many)
    button = "th[data-column='seconds'] button"
    browser.click(button)
    first = [float(each) for each in browser.evaluate(rewards)[2::3]]
    assert first == sorted(first)
    assert first[0] == pytest.approx(min(row["seconds"] for row in page_rows.run(TASKS)), abs=0.006)
    assert browser.evaluate(
        "document.querySelector('th[data-column=seconds]').getAttribute('aria-sort')"
    ) == ("ascending")
    browser.click(button)
    last = [float(each) for each in browser.evaluate(rewards)[2::3]]
    assert last == sorted(last, reverse=True)
    assert last[0] > first[0]
    browser.click(button)
    assert browser.evaluate(IDS)[:2] == ["bash-00000", "sql-00001"]
    # Of ten thousand texts, localeCompare takes half a second.
    browser.evaluate("String.prototype.localeCompare = () => { throw new Error('it is slow'); }, 1")
    browser.click("th[data-column='task'] button")
    assert browser.evaluate(IDS)[:2] == ["bash-00000", "bash-00004"]


def test_a_trajectory_by_keys_alone(browser: Browser, many: Path) -> None:
    rows = page_rows.run(TASKS)
    browser.open(many)
    open_in_dialog(browser, "j", "ArrowDown", "k", "j", "j")
    title = "document.getElementById('trajectory-title').textContent"
    assert browser.evaluate(title) == "ctf-00003"
    assert browser.evaluate("document.activeElement.id") == "trajectory-title"
    actions = browser.evaluate(f"[...{DIALOG}.querySelectorAll('.action')].map(e => e.textContent)")
    assert actions == rows[3]["turn_history"]["actions"]
    said = browser.evaluate(f"{DIALOG}.innerText")
    for part in (*rows[3]["turn_history"]["observations"], rows[3]["query"], "Flags submitted"):
        assert part in said
    browser.press("j")
    browser.wait(f"{title} === 'bash-00004'")
    browser.press("Escape")
    browser.wait(f"!{DIALOG}.open")
    browser.wait("!location.hash.includes('open=')")
    assert browser.evaluate("document.activeElement.id") == "scroller"
    browser.evaluate("history.back()")
    browser.wait(f"{DIALOG}.open && {title} === 'bash-00004'")


@pytest.mark.parametrize("runs", [1, 2])
def test_a_conversation_is_between_the_turns(browser: Browser, tmp_path: Path, runs: int) -> None:
    [row] = page_rows.run(1)
    row["dialogue"] = [
        {"turn": 0, "message": "What is <b>cheap</b>?", "reply": "Ten."},
        {"turn": 1, "message": "Is that all?", "reply": "Needle. DONE", "is_last": True},
        {"turn": 2, "message": "Hello?"},
    ]
    row["user_usage"] = {"requests": 2, "input_tokens": 70, "output_tokens": 7, "cost": None}
    record = from_row(row)
    write([record], tmp_path / "page.html", "One", other=[record] if runs == 2 else None)
    browser.open(tmp_path / "page.html")
    open_in_dialog(browser, "j")
    texts = browser.evaluate(
        f"[...{DIALOG}.querySelectorAll('.said, .reply, .action, .talk .nothing')]"
        ".map(e => e.textContent)"
    )
    first, second, *_ = row["turn_history"]["actions"]
    expected = ["What is <b>cheap</b>?", "Ten.", first, "Is that all?", "Needle. DONE", second]
    assert list(dict.fromkeys(texts))[: len(expected) + 2] == [
        *expected,
        "Hello?",
        "nobody answered",
    ]
    words = browser.evaluate(f"{DIALOG}.innerText")
    assert "ended the conversation with it" in words
    assert "the user: 77 tokens" in words


def test_a_link_to_a_trajectory(browser: Browser, many: Path) -> None:
    browser.open(many, "#open=python%2Fpython-suite%2Fpython-00998")
    browser.wait(f"{DIALOG}.open")
    assert "python-00998" in browser.evaluate(f"{DIALOG}.innerText")
    assert "Hidden tests" in browser.evaluate(f"{DIALOG}.innerText")


def test_a_link_to_a_task_that_is_not_here(browser: Browser, many: Path) -> None:
    browser.open(many, "#open=bash%2Fother%2F%3Cb%3Egone")
    browser.wait("!document.getElementById('trouble').hidden")
    told = browser.evaluate("document.getElementById('trouble').textContent")
    assert told == "This page has no task bash/other/<b>gone."
    assert not browser.evaluate(f"{DIALOG}.open")


def test_long_texts_are_cut_until_they_are_asked_for(browser: Browser, tmp_path: Path) -> None:
    (row,) = page_rows.run(1)
    row["turn_history"]["observations"][0] = "\n".join(f"line {n}" for n in range(3000))
    write([from_row(row)], tmp_path / "page.html", "Long")
    browser.open(tmp_path / "page.html")
    open_in_dialog(browser)
    lines = f"{DIALOG}.querySelector('.observation').textContent.split('\\n').length"
    assert browser.evaluate(lines) == 40
    browser.click("#trajectory .more")
    assert browser.evaluate(lines) == 3000
    assert not browser.evaluate(f"Boolean({DIALOG}.querySelector('.more'))")


# -- a run of several tries, two runs


def test_tries_of_a_task(browser: Browser, tmp_path: Path) -> None:
    rows = page_rows.run(8, repeats=3)
    for row in rows[1:]:
        row["outcome"] = row["outcome"].replace("infrastructure-error", "failed")
    write([from_row(row) for row in rows], tmp_path / "page.html", "Three tries")
    browser.open(tmp_path / "page.html")
    assert browser.evaluate(COUNT) == "8 tasks"
    solved = sum(row["outcome"] == "solved" for row in rows[:3])
    graded = sum(row["outcome"] != "infrastructure-error" for row in rows[:3])
    assert f"{solved}/{graded} solved" in browser.evaluate(f"{IN_SIGHT}[0].innerText")
    assert "pass@2" in browser.evaluate("document.body.innerText")
    open_in_dialog(browser)
    browser.click("#trajectory .tries .chip:nth-child(3)")
    observation = rows[2]["turn_history"]["observations"][0]
    browser.wait(f"{DIALOG}.innerText.includes({json.dumps(observation)})")
    assert "try=3" in browser.evaluate("location.hash")


def test_each_row_says_why(browser: Browser, tmp_path: Path) -> None:
    rows = page_rows.run(8)
    for at, row in enumerate(rows):
        row.update(outcome="failed" if at else "solved", reason=f"why <b>\x1b {at}" if at else "")
    results = tmp_path / "base.jsonl"
    results.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    new = [from_row({**row, "item": at}) for at, row in enumerate(rows)][::-1]
    write(new, tmp_path / "page.html", "New", baseline=results, names=("base", "new"), notes=["n"])
    browser.open(tmp_path / "page.html", "#sort=task")
    whys = f"{IN_SIGHT}.map(row => row.querySelector('.w-reason').textContent)"
    said = browser.evaluate(whys)
    assert set(said) == {"", *(f"why <b>\\x1b {at}" for at in range(1, 8))}
    assert browser.evaluate("document.querySelector('.notes li').textContent") == "n"
    browser.open(tmp_path / "page.html")
    by_suite = sorted(
        rows, key=lambda row: ("bash", "sql", "python", "ctf").index(row["task_id"][:-6])
    )
    assert browser.evaluate(IDS) == [row["task_id"] for row in by_suite]


def test_two_runs_side_by_side(browser: Browser, two: Path) -> None:
    browser.open(two)
    kind = browser.evaluate("document.querySelector('.verdict strong').textContent")
    assert kind in ("regressed", "improved", "no significant difference", "too few samples")
    assert browser.evaluate(IDS)[:2] == ["bash-00000", "sql-00001"]  # worse, better
    changes = browser.evaluate(f"{IN_SIGHT}.map(row => row.querySelector('.change').textContent)")
    assert changes[:3] == ["failed now", "solved now", "same"]
    browser.click(".keys a")
    browser.wait(f"{DIALOG}.open")
    parted = browser.evaluate(f"{DIALOG}.querySelector('.part').textContent")
    assert parted == "They part here: the actions of turn 2 are not the same."
    order = browser.evaluate(
        f"[...{DIALOG}.querySelectorAll('.part, .turn')].map(e => e.className + e.textContent)"
    )
    assert [each.startswith("part") for each in order[:4]] == [False, False, True, False]
    assert "a step that nobody took before" in order[4]
    browser.press("Escape")
    browser.wait(f"!{DIALOG}.open")
    open_in_dialog(browser, "End")
    assert "Both runs took the same actions." in browser.evaluate(f"{DIALOG}.innerText")


def test_what_differs_from_gold_comes_before_the_turns(browser: Browser, two: Path) -> None:
    browser.open(two)
    open_in_dialog(browser)
    sections = f"[...{DIALOG}.querySelectorAll('.state, .turn')]"
    order = browser.evaluate(f"{sections}.map(e => e.getAttribute('aria-label'))")
    assert order[:3] == ["Result", "Result", "Turn 1"]
    assert order[-2:] == ["End", "End"]


def test_the_end_of_what_tests_printed_is_whole(browser: Browser, tmp_path: Path) -> None:
    printed = "\n".join(f"line {n} \x1b[31m<b>" for n in range(60))
    (row,) = page_rows.run(1, skill=0.0)
    row |= {"environment": "ic_swe", "outcome": "failed", "test_output": printed}
    row["end_state"] = {"patch": "\n".join(f"+{n}" for n in range(100)), "left_out": []}
    write([from_row(row)], tmp_path / "page.html", "Printed")
    browser.open(tmp_path / "page.html")
    open_in_dialog(browser)
    text = browser.evaluate(f"{DIALOG}.querySelector('.printed').textContent")
    assert text == printed.replace("\x1b", "\\x1b")
    patch = f"{DIALOG}.querySelectorAll('.state .line').length"
    assert browser.evaluate(patch) == 40
    browser.click("#trajectory .state .more")
    assert browser.evaluate(patch) == 100


@pytest.mark.parametrize("width", [1400, 800, 420])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_ids_can_be_read(browser: Browser, two: Path, many: Path, width: int, theme: str) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.send("Emulation.setDeviceMetricsOverride", **size)
    colours = [{"name": "prefers-color-scheme", "value": theme}]
    browser.send("Emulation.setEmulatedMedia", features=colours)
    box = "getBoundingClientRect()"
    for page in (two, many):
        browser.open(page)
        cells = f"{IN_SIGHT}.map(row => row.querySelector('.w-task').{box}.width)"
        assert min(browser.evaluate(cells)) >= 180
        heights = browser.evaluate(f"{IN_SIGHT}.map(row => row.{box}.height)")
        assert {*map(round, heights)} == {60 if width == 420 else 36}
        browser.evaluate("document.getElementById('scroller').focus()")
        browser.press("End")
        row = f"document.querySelector('#body tr.active').{box}"
        scroller = f"document.getElementById('scroller').{box}"
        assert browser.evaluate(f"{row}.bottom <= {scroller}.bottom + 1")
        assert browser.evaluate(f"{row}.top >= {scroller}.top")
    browser.send("Emulation.setEmulatedMedia", features=[])
    browser.send("Emulation.clearDeviceMetricsOverride")


# -- text that would do harm

MARK = "<script>window.harm = 1</script>"
HOSTILE = {
    "script": f"</script>{MARK}<!--<script>",
    "handler": "\"'><img src=x onerror='window.harm=1'><svg onload=window.harm=1>",
    "address": "<a href='javascript:window.harm=1'>x</a><meta http-equiv=refresh content=0>",
    "template": "{{ 7 * 7 }}{% raw %}${7*7}",
    "bidi": "left \u202e right \u2066 \u200e \u061c",
    "ansi": "\x1b[31mred\x1b]0;title\x07\x1b[2J\x08\r\x00\x9b0m",
    "blanks": "no\u00a0break zero\u200bwidth \ufeff line\u2028end",
    "half": "a half \ud800 of a pair",
    "name": "__proto__",
}


def hostile_records() -> list[EpisodeRecord]:
    rows = page_rows.run(len(HOSTILE), skill=0.0)
    for row, text in zip(rows, HOSTILE.values(), strict=True):
        everywhere = text + MARK
        row.update(
            task_id=f"{text} id",
            query=everywhere,
            reason=everywhere,
            detail=everywhere,
            log=everywhere,
            test_output=everywhere,
            run_name=text,
            suite=text,
            hardness=text,
            tags=[text],
            agent=everywhere,
            agent_arguments={text: everywhere},
            image=text,
            node_id=text,
            left_behind=[text],
            attempts=[text],
            reward_parts={text: 0.5},
            outcome="failed",
        )
        history = row["turn_history"]
        turns = len(history["actions"])
        for name in ("actions", "observations", "thoughts"):
            history[name] = [everywhere] * turns
        history["valid_action"] = [False] * turns
        row["turn_logs"] = row["turn_answers"] = [everywhere] * turns
        if row["environment"] == "ic_bash":
            row["end_state"]["agent"]["output"] = everywhere
            row["end_state"]["gold"]["touched"] = [everywhere]
        row["end_state"]["turn"] = 1
    rows.append({**rows[0], "task_id": "odd env", "environment": f"ic_{MARK}"})
    odd = from_row({**rows[0], "task_id": "odd outcome"})
    odd = replace(odd, outcome=cast("Outcome", f"{MARK} \x1b[0m"))  # no file can hold it
    return [*map(from_row, rows), odd]


def test_hostile_text_is_only_text(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    rows = hostile_records()
    write(rows, page, f"A title {HOSTILE['script']} {HOSTILE['ansi']}", other=rows[::-1])
    source = page.read_text(encoding="utf-8")
    assert MARK not in source
    assert not [sign for sign in "\x1b\x00\u202e\u2066\u200b\x9b\u2028" if sign in source]
    browser.open(page)
    elements = "document.querySelectorAll('script:not([type]), img, iframe, meta').length"
    counted = browser.evaluate(elements)
    texts = browser.evaluate("document.body.innerText")
    for number in range(len(rows)):
        key = browser.evaluate(f"{IN_SIGHT}.find(row => row.dataset.n === '{number}').innerText")
        texts += key
        browser.click(f"#row-{number}")
        browser.wait(f"{DIALOG}.open")
        browser.evaluate(f"{DIALOG}.querySelectorAll('details').forEach(e => e.open = true)")
        texts += browser.evaluate(f"{DIALOG}.innerText")
        assert browser.evaluate(elements) == counted
        browser.press("Escape")
        browser.wait(f"!{DIALOG}.open")
    assert browser.evaluate("window.harm") is None
    assert browser.evaluate("document.title").startswith("A title </script>")
    hidden = set("\x1b\x00\x07\x08\x9b\u202e\u2066\u200e\u061c\u200b\ufeff\u2028\ud800")
    assert not hidden & set(texts)
    for shown in (r"\u202e", r"\x1b[31m", r"\x00", r"\u200b", r"\ud800", MARK, "{{ 7 * 7 }}"):
        assert shown in texts


def test_the_policy_refuses_what_the_page_does_not_know(shared_browser: Browser, two: Path) -> None:
    shared_browser.open(two)
    shared_browser.evaluate(
        "document.body.append(Object.assign(document.createElement('script'),"
        "{textContent: 'window.harm = 1'}));"
        "document.body.append(Object.assign(document.createElement('img'), {src: 'x.png'}))"
    )
    assert shared_browser.evaluate("window.harm") is None
    refused = " ".join(shared_browser.problems)
    assert "Content Security Policy" in refused
    assert shared_browser.requests == []


# -- how it looks


def test_dark_and_light(browser: Browser, two: Path) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    browser.open(two)
    seen = {}
    for wanted in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": wanted}
        browser.send("Emulation.setEmulatedMedia", features=[feature])
        seen[wanted] = browser.evaluate(paper)
    assert seen["light"] != seen["dark"]
    browser.click("#theme")
    assert browser.evaluate(paper) == seen["light"]
    browser.click("#theme")
    assert browser.evaluate(paper) == seen["dark"]
    browser.click("#theme")
    browser.send("Emulation.setEmulatedMedia", features=[])
    assert browser.evaluate(paper) == seen["light"]


def test_print_has_the_summary_and_no_table(browser: Browser, two: Path) -> None:
    browser.open(two)
    browser.send("Emulation.setEmulatedMedia", media="print")
    visible = "[...document.querySelectorAll('main > section')].map(e => e.offsetHeight > 0)"
    assert browser.evaluate(visible) == [True, True, True, True, True, True, False]
    browser.send("Emulation.setEmulatedMedia", media="")


def test_nothing_is_wider_than_a_telephone(browser: Browser, two: Path) -> None:
    size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.send("Emulation.setDeviceMetricsOverride", **size)
    browser.open(two)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    browser.send("Emulation.clearDeviceMetricsOverride")


def test_what_ran_where(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "placed.html"
    write(map(from_row, page_rows.placed(page_rows.run(300), 3)), page, "Placed")
    browser.open(page)
    bars = "[...document.querySelectorAll('.timeline rect')].map(e => e.getBoundingClientRect())"
    outside = (
        "(box => %s.filter(e => e.left < box.left - 1 || e.right > box.right + 1 || "
        "e.bottom > box.bottom || e.width <= 0).length)"
        "(document.querySelector('.timeline').getBoundingClientRect())"
    )
    assert browser.evaluate(f"{bars}.length") > 300
    assert browser.evaluate(outside % bars) == 0
    says = "document.querySelector('.timeline rect:not(.preparation) title').textContent"
    assert browser.evaluate(says).startswith("bash-00000: ")
    size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.send("Emulation.setDeviceMetricsOverride", **size)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser.evaluate(outside % bars) == 0
    browser.send("Emulation.clearDeviceMetricsOverride")


def test_every_chart_has_a_name_and_a_table(browser: Browser, two: Path) -> None:
    browser.open(two)
    charts = browser.evaluate(
        "[...document.querySelectorAll('figure')].map(e => [e.querySelector('title').textContent,"
        "e.querySelector('desc').textContent, e.querySelectorAll('td').length])"
    )
    assert [each[0] for each in charts] == ["Solved by turn", "Rewards", "Turns taken"]
    assert all(each[1] and each[2] > 5 for each in charts)
    unnamed = browser.evaluate(
        "[...document.querySelectorAll('button, select, input')].filter(e => !e.hidden &&"
        "!(e.textContent.trim() || e.closest('label') || e.ariaLabel)).length"
    )
    assert unnamed == 0
