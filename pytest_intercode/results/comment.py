"""A run as a comment on a pull request, in GitHub's Markdown. Pure: nothing is read or written.

The comment is posted with the rights of the job's token, and quotes texts of agents and suites. All
of these are in code spans, in which GitHub finds no mention, reference, link, image or HTML.
Addresses come from the caller, with characters that would end a link encoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.text import markdown_code, pluralize
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results.cell_comparison import ComparedCells
from pytest_intercode.results.cell_tables import cell_labels, difference_lines
from pytest_intercode.results.cells import Cell, by_cell, pair_tries
from pytest_intercode.results.comparison import KINDS, Change, Kind, Run
from pytest_intercode.results.summary import Summary, format_percent, summarise
from pytest_intercode.results.tries import TaskKey, by_task
from pytest_intercode.statistics.paired import Kind as VerdictKind

__all__ = ["MAX_COMMENT", "Links", "checked_url", "format_comment", "marker", "quoted_path"]

MAX_COMMENT = 65_536
"""Bytes of a comment. GitHub's message says that 65,536 characters are allowed, and its server has
accepted four times as many bytes, so this number is within the limit however it is counted."""

_MAX_ITEMS = 50  # lines of a list: more than people read in a comment
_MAX_REMAINDER = 48  # bytes of the line with the number of items that are left out
_MAX_URL = 2000  # characters
# Without two dashes in a row, which may end an HTML comment.
_NAME = re.compile(r"[A-Za-z0-9]+(?:[._ -][A-Za-z0-9]+)*")
_URL_CHARACTERS = ":/?#@!$&'*+,;=%~-._"  # kept; blanks, brackets and backslashes are encoded
_VERDICTS: dict[VerdictKind, str] = {
    "regressed": "Worse",
    "improved": "Better",
    "no difference": "No significant difference",
    "too few samples": "Too few tasks to tell",
}
_TITLES: dict[Kind, str] = {
    "broke": "Broke: solved before, in no try now",
    "less often": "Solved in fewer tries",
    "fixed": "Fixed: in no try before, solved now",
    "more often": "Solved in more tries",
    "only before": "Only in the baseline",
    "only after": "Not in the baseline",
}
_STATUSES = {
    1: "some tests failed",
    2: "it was interrupted",
    3: "an internal error",
    4: "wrong usage",
    5: "no tests were collected",
}


@dataclass(frozen=True)
class Links:
    """The targets of a comment's links; empty for links that do not exist.

    Attributes:
        page: the address of the run's page, as ``pytest-intercode view`` writes it.
        run: the address of the run on the CI server.
        source: returns the address of a test's file from its node id, or an empty text.
        commit: the commit that was tested.
    """

    page: str = ""
    run: str = ""
    source: Callable[[str], str] = lambda node_id: ""
    commit: str = ""

    def task(self, key: TaskKey, cell: Cell | None) -> str:
        """Return the address of a task's trajectories on the page, in a cell if one is given."""
        # As page/state.js reads it, with the key that page/packed.js makes.
        choices = {"open": "/".join(key)} | ({} if cell is None else {"cell": str(cell)})
        return f"{self.page}#{urlencode(choices, errors='replace')}" if self.page else ""


@dataclass(frozen=True)
class _List:
    """A part of the comment that may be shortened: its first lines, its items, and their noun."""

    head: Sequence[str]
    items: Sequence[str]
    noun: str
    plural: str = ""


def marker(name: str) -> str:
    """Return the first line of the comment with that name: hidden, but used to find the comment.

    Raises:
        ConfigurationError: the name has other characters than letters, digits and single ``._- ``.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"--name={name}: letters and digits are allowed, and single dots, dashes, underscores "
            "and blanks between them, as in agent-tests"
        )
    return f"<!-- pytest-intercode:{name} -->"


def checked_url(url: str, option: str) -> str:
    """Return an address for a Markdown link, with characters that would end the link encoded.

    Raises:
        ConfigurationError: it is not of http or https, or is longer than 2,000 characters.
    """
    encoded = quote(url, safe=_URL_CHARACTERS, errors="replace")
    if not re.match(r"https?://[^/]", encoded) or len(encoded) > _MAX_URL:
        raise ConfigurationError(
            f"{option}={url[:200]}: an address of http or https is needed, of at most "
            f"{_MAX_URL:,} characters"
        )
    return encoded


def quoted_path(path: str) -> str:
    """Return a path as a part of an address for a Markdown link."""
    return quote(path, safe="/-._~", errors="replace")


def format_comment(
    run: Run | None,
    compared: ComparedCells | None,
    links: Links,
    *,
    name: str,
    status: int | None = None,
    max_bytes: int = MAX_COMMENT,
) -> str:
    """Return the comment.

    Args:
        run: the run; None if it recorded no episode.
        compared: the run, compared with its baseline; None without one.
        links: the targets of links.
        name: distinguishes the comment from others of pytest-intercode.
        status: pytest's exit status, if it is known.
        max_bytes: the maximum length as UTF-8; lists are shortened, and say how much is left out.

    Raises:
        ConfigurationError: the name is not allowed.
    """
    head = [marker(name), f"### {_heading(run, compared, status)}"]
    if compared is not None and compared.single is not None and compared.verdicts:
        head += ["", f"{compared.sentence}."]
    lists: list[_List] = []
    if run is not None:
        lists += _changed(compared, links) if compared else _unsolved(run, links)
        lists += [_ungraded(run, links), _cells(run, compared), _differences(run)]
        lists.append(_usage(run, compared))
    if compared is not None:
        lists.append(_notes(compared))
    return _fit(head, [part for part in lists if part.items], _foot(links), max_bytes)


# -- one line


def _heading(run: Run | None, compared: ComparedCells | None, status: int | None) -> str:
    faults = []
    if status is not None and status > 1:
        faults.append(f"pytest ended with status {status}: {_STATUSES.get(status, 'a fault')}")
    if run is None:
        return "; ".join([*faults, "no episode was recorded"]).capitalize()
    summary = summarise(run.tries)
    if compared is None or not compared.verdicts:
        facts = [_solved(summary)]
        if compared is not None:
            facts.append("no graded task that the baseline has, too")
        elif summary.rate_interval:
            low, high = summary.rate_interval
            facts.append(f"95% interval {100 * low:.0f}-{100 * high:.0f}%")
        return "; ".join([*faults, ", ".join(facts)])
    kinds = [change.kind for part in compared.cells.values() for change in part.changes]
    counts = [(kinds.count(kind), kind) for kind in KINDS[:4]]
    changed = [f"{count} {kind}" for count, kind in counts if count] or ["nothing changed"]
    verdict = f"{_VERDICTS[compared.kind]}: {', '.join(changed)}"
    rate_before = format_percent(summarise(compared.before.tries).rate)
    return "; ".join([*faults, verdict, f"{_solved(summary)}, before {rate_before}"])


def _solved(summary: Summary) -> str:
    if not summary.graded:
        return f"none of {pluralize(summary.tries, 'try', 'tries')} was graded"
    noun = "" if summary.graded == summary.tasks else " tries"
    return f"{summary.solved} of {summary.graded}{noun} solved ({format_percent(summary.rate)})"


# -- lists


def _changed(compared: ComparedCells, links: Links) -> list[_List]:
    several = compared.single is None
    items: dict[Kind, list[str]] = {kind: [] for kind in _TITLES}
    for cell, cell_compared in compared.cells.items():
        tries = by_task(cell_compared.after.tries)
        for change in cell_compared.changes:
            if change.kind in items:
                task = _task(
                    change.key, tries.get(change.key, []), links, cell if several else None
                )
                items[change.kind].append(_change(change, task, tries.get(change.key, [])))
    return [
        _List([f"**{title}** ({len(items[kind])})", ""], items[kind], "task")
        for kind, title in _TITLES.items()
    ]


def _change(change: Change, task: str, tries: Sequence[EpisodeRecord]) -> str:
    facts = [task]
    if change.kind in KINDS[:4]:
        chance = f", within chance (p {change.p:.2g})" if change.p and change.by_chance else ""
        facts.append(f"{change.before} before, {change.after} now{chance}")
    if change.kind in ("broke", "less often", "only after"):
        facts += _reasons(tries)
    return f"- {': '.join(facts)}"


def _unsolved(run: Run, links: Links) -> list[_List]:
    items = [
        f"- {': '.join([task, *_reasons(tries)])}"
        for task, tries in _named_tasks(run, links)
        if any(record.graded and not record.succeeded for record in tries)
    ]
    return [_List([f"**Not always solved** ({len(items)})", ""], items, "task")]


def _ungraded(run: Run, links: Links) -> _List:
    items = [
        f"- {task}: {record.outcome.replace('-', ' ')}"
        + (f": {markdown_code(record.reason)}" if record.reason else "")
        for task, tries in _named_tasks(run, links)
        for record in tries
        if not record.graded
    ]
    title = f"**Not graded, and not counted** ({pluralize(len(items), 'try', 'tries')})"
    return _List([title, ""], items, "try", "tries")


def _named_tasks(run: Run, links: Links) -> Iterator[tuple[str, list[EpisodeRecord]]]:
    """Yield the tasks of each cell, as linked names, with their tries."""
    cells = by_cell(run.tries)
    for cell, cell_tries in cells.items():
        for key, tries in by_task(cell_tries).items():
            yield _task(key, tries, links, cell if len(cells) > 1 else None), tries


def _task(key: TaskKey, tries: Sequence[EpisodeRecord], links: Links, cell: Cell | None) -> str:
    """Return a task's name, linked if there is a page, its cell, and a link to its test."""
    address = links.task(key, cell)
    text = markdown_code(str(key))
    if address and len(address) <= _MAX_URL:
        text = f"[{text}]({address})"
    if cell is not None:
        text = f"{text} with {markdown_code(str(cell))}"
    source = next(filter(None, (links.source(record.node_id) for record in tries)), "")
    return f"{text} ([test]({source}))" if source else text


def _reasons(tries: Sequence[EpisodeRecord]) -> list[str]:
    """Return why the first unsolved try was not solved, as a list of one text or none."""
    for record in tries:
        if record.graded and not record.succeeded:
            outcome = "the test failed" if record.solved else record.outcome.replace("-", " ")
            return [f"{outcome} {markdown_code(record.reason)}" if record.reason else outcome]
    return []


# -- tables


def _cells(run: Run, compared: ComparedCells | None) -> _List:
    """Return the rates by agent and treatment, if there are several."""
    baseline = compared.before.tries if compared else []
    sides = {cell: tries for cell, tries in pair_tries(baseline, run.tries).items() if tries[1]}
    if len(sides) < 2:
        return _List([], [], "cell")
    names, labels = cell_labels(list(sides))
    heading = [*names, "solved", "rate", "95% interval"]
    heading += ["before", "verdict"] if compared else []
    rows = []
    for cell, (old_tries, tries) in sides.items():
        summary = summarise(tries)
        interval = summary.rate_interval
        row = [markdown_code(label, in_table=True) for label in labels[cell]]
        row += [f"{summary.solved}/{summary.graded}", format_percent(summary.rate)]
        row.append(f"{100 * interval.low:.0f}-{100 * interval.high:.0f}%" if interval else "-")
        if compared:
            verdict = compared.verdicts.get(cell)
            row.append(format_percent(summarise(old_tries).rate))
            row.append(_VERDICTS[verdict.kind].lower() if verdict else "-")
        rows.append(_row(row))
    rule = [*["---"] * len(names), *["---:"] * 3, *(["---:", "---"] if compared else [])]
    return _List([_row(heading), _row(rule)], rows, "cell")


def _differences(run: Run) -> _List:
    """Return how treatments differ from the control, and agents from each other."""
    heading, *sentences = difference_lines(by_cell(run.tries)) or [""]
    items = [f"- {markdown_code(sentence.strip(), 400)}" for sentence in sentences]
    return _List([f"**{heading[:1].upper()}{heading[1:].rstrip(':')}**", ""], items, "pair")


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _usage(run: Run, compared: ComparedCells | None) -> _List:
    """Return the run's usage: in all, and for a try at the tasks that the baseline also has."""
    summary = summarise(run.tries)
    if not summary.tokens and summary.cost is None:
        return _List([], [], "number")
    cached = f", {summary.cached_tokens:,.0f} of them cached" if summary.cached_tokens else ""
    cost = "" if summary.cost is None else f"; cost {summary.cost:.4f}"
    items = [f"- in all: {summary.tokens:,.0f} tokens{cached}{cost}"]
    if compared is not None and compared.verdicts:
        common = [part.groups()[-1] for part in compared.cells.values()]
        old, new = [group.before for group in common], [group.after for group in common]
        tokens = _mean([part.tokens for part in new], new)
        old_tokens = _mean([part.tokens for part in old], old)
        facts = [f"{tokens:,.0f} tokens{_against(tokens, old_tokens, ',.0f')}"]
        # A cell without a price says nothing about the cost of a try.
        priced = [group for group in common if group.after.cost is not None]
        priced = [group for group in priced if group.before.cost is not None] or priced
        if priced:
            old, new = [group.before for group in priced], [group.after for group in priced]
            mean = _mean([part.cost or 0.0 for part in new], new)
            old_mean = _mean([part.cost or 0.0 for part in old], old)
            facts.append(f"cost {mean:.4f}{_against(mean, old_mean, '.4f')}")
        items.append(f"- for each try of common tasks: {'; '.join(facts)}")
    return _List(["**Used up**", ""], items, "line")


def _mean(totals: Sequence[float], summaries: Sequence[Summary]) -> float:
    return sum(totals) / sum(summary.tries for summary in summaries)


def _against(value: float, old_value: float, form: str) -> str:
    if not old_value:
        return " (not known before)"
    return f" (before {old_value:{form}}, {100 * (value / old_value - 1):+.0f}%)"


def _notes(compared: ComparedCells) -> _List:
    notes = compared.warnings()
    for cells, place in ((compared.only_before, "baseline"), (compared.only_after, "newer run")):
        notes += [f"only the {place} has {cell}" for cell in cells]
    items = [f"- {markdown_code(line, 400)}" for line in notes]
    return _List(["**What makes the two runs hard to compare**", ""], items, "note")


def _foot(links: Links) -> list[str]:
    facts = [f"commit `{links.commit}`"] if links.commit else []
    facts += [f"[the run]({links.run})"] if links.run else []
    facts += [f"[trajectories]({links.page})"] if links.page else []
    return [f"<sub>{', '.join(['pytest-intercode', *facts])}</sub>"]


# -- the whole


def _fit(head: Sequence[str], lists: Sequence[_List], foot: Sequence[str], max_bytes: int) -> str:
    """Return the parts as a text; lists get as many items as fit, the first lists first."""
    room = max_bytes - _size([*head, "", *foot])
    room -= sum(_size(["", *part.head, "", ""]) + _MAX_REMAINDER for part in lists)
    lines = [*head]
    for part in lists:
        shown_items: list[str] = []
        for item in part.items[:_MAX_ITEMS]:
            if room < _size([item]):
                break
            room -= _size([item])
            shown_items.append(item)
        hidden_count = len(part.items) - len(shown_items)
        plural = part.plural or f"{part.noun}s"
        remainder = pluralize(hidden_count, f"more {part.noun}", f"more {plural}")
        lines += ["", *part.head, *shown_items]
        lines += ["", f"... and {remainder}"] if hidden_count else []
    return "\n".join([*lines, "", *foot, ""])


def _size(lines: Iterable[str]) -> int:
    """Return the size of lines in bytes, with their ends."""
    return sum(len(line.encode()) + 1 for line in lines)
