"""The benchmarks as a command: with tiny counts, whose numbers mean nothing."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from benchmarks import cluster
from benchmarks.plot import svg
from benchmarks.table import BEGIN, END, Bound, Part, Row, aligned
from pytest_intercode.sandboxes.choice import choose

ROOT = Path(__file__).parents[3]


def benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_quick_run_prints_its_table_and_writes_it_and_the_plot(
    bubblewrap: object, tmp_path: Path
) -> None:
    page, plot = tmp_path / "page.md", tmp_path / "plot.svg"
    page.write_text(f"before\n{BEGIN}\nan old table\n{END}\nafter\n")
    parts = "action-latency", "concurrency"
    done = benchmarks("--quick", "--markdown", str(page), "--plot", str(plot), *parts)
    assert done.returncode == 0, done.stderr
    assert "quick: the numbers mean nothing" in done.stdout
    heading, *rows = [line.split("  ") for line in done.stdout.splitlines() if "  " in line]
    assert " ".join(heading).split() == ["what", "ours", "against", "ratio", "bound", "met"]
    names = [row[0] for row in rows]
    if choose()[0].name == "docker":
        assert "`:` on docker" in names
        assert "docker, 50 ms a turn, concurrency 2" in names
    assert "bubblewrap, 50 ms a turn, concurrency 2" in names
    assert "memory of an episode more at the same time, bubblewrap" in names
    assert "bounds are met" in done.stdout.splitlines()[-1]
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "an old table" not in text
    assert "| bubblewrap, 50 ms a turn, concurrency 2 | 2 in " in text
    drawn = {element.text for element in ElementTree.parse(plot).iter() if element.text}
    assert {"episodes at a time", "episodes per second", "bubblewrap, 0 ms agent"} <= drawn


@pytest.mark.slow
def test_a_run_that_is_looked_at(bubblewrap: object) -> None:
    result = benchmarks("--quick", "live")
    assert result.returncode == 0, result.stderr
    for kind in ("nobody asks", "`top` asks once a second", "a page is in sight"):
        assert f"{kind}: the run loop" in result.stdout
    assert "one answer of the run, with 8 episodes under way" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["colection"], "there is no part 'colection'; there are action-latency, "),
        (["startup", "--markdown", "no/such.md"], "--markdown no/such.md: No such file"),
        (["startup", "--markdown", "README.md"], "--markdown README.md: it has no line '<!-- "),
        (["startup", "--plot", "plot.png"], "--plot plot.png: it is a file NAME.svg"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_measured(arguments: list[str], said: str) -> None:
    done = benchmarks(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"benchmarks: {said}")
    assert done.stderr.count("\n") == 1


def test_a_bound_judges_the_ratio_or_the_value_and_says_so() -> None:
    most, least = Bound("at most", 1 / 40), Bound("at least", 0.85)
    rows = [
        Row("kept", "1 ms", "x: 50 ms", 0.02, most),
        Row("missed", "1 ms", "x: 30 ms", 1 / 30, most),
        Row("fast enough", "9/s", "x: 10/s", 0.9, least),
        Row("by value", "4 MB", bound=Bound("at most", 3e6, "3 MB"), value=4e6),
        Row("only told", "1 ms", "x: 1 ms", 1.0),
    ]
    assert [row.met for row in rows] == [True, False, True, False, None]
    lines = aligned([Part("all", rows)]).splitlines()
    assert " ".join(lines[3].split()) == "kept 1 ms x: 50 ms 1/50 at most 1/40 yes"
    assert " ".join(lines[6].split()) == "by value 4 MB at most 3 MB NO"


def test_the_growth_of_a_cluster_is_a_table_and_a_plot_with_its_limit() -> None:
    found = {
        (nodes, concurrency): {
            "seconds": 12.5,
            "whole run": 20.0,
            "ideal": 10.0,
            "ratio": 1.25,
            "episodes": 2.0 * concurrency,
        }
        for nodes in (1, 2, 4)
        for concurrency in (16, 256)
    }
    part = cluster.grown(found)
    assert [row.what for row in part.rows][::3] == [
        "1 node, 16 at a time",
        "2 nodes, 256 at a time",
    ]
    assert part.rows[1].cells()[1:4] == (
        *("512 in 12.5 s, 41/s (whole: 20 s)", "thinking alone: 10 s", "1.25"),
    )
    speed, over = part.panels
    assert [line.name for line in speed.lines] == [
        *("1 node", "2 nodes", "4 nodes", "limit: thinking alone")
    ]
    assert speed.lines[-1].points == ((16.0, 3.2), (256.0, 51.2))
    assert over.lines[0].points == ((16.0, 1.25), (256.0, 1.25))
    drawn = ElementTree.fromstring(svg(part.panels, "On a machine."))
    assert "limit: thinking alone" in {each.text for each in drawn.iter()}


def test_the_page_has_the_markers_that_the_tables_go_between() -> None:
    text = (ROOT / "docs" / "reference" / "measurements.md").read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    assert text.index(BEGIN) < text.index(END)
