"""The command: measures the named parts, prints the table, and writes Markdown and a plot."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from benchmarks.machine import facts
from benchmarks.measuring import Scale, Unavailable
from benchmarks.plot import svg
from benchmarks.table import Part, aligned, check_markers, duration, markdown, put_between

# Each part is a module with a function ``measure``; the value describes what it measures.
PARTS = {
    "action-latency": "actions against execs",
    "lifecycle": "an episode alone, against bare containers",
    "services": "an episode with two services, against its bare containers",
    "swe": "an episode with a repository and its tests, against its own commands",
    "bundled": "the bundled bash suite on both backends",
    "throughput": "concurrency 4 against the engine's own speed",
    "hidden": "container work behind an agent that thinks",
    "concurrency": "episodes side by side, against the ideal; memory",
    "long-run": "a thousand episodes in one run",
    "live": "what a run pays for being looked at, by top and on its page",
    "collection": "collecting 10,000 tasks",
    "projects": "project tests eight at a time, and a replay against its agent alone",
    "startup": "what the plugin costs others",
    "sql": "statements against raw drivers",
    "gateway": "requests to a model through the gateway, against the direct connection",
    "paper": "GPT-4's NL2Bash replay against InterCode's own chain; only when it is named",
    "datasets": "MBPP and Spider; only when it is named",
    "runtimes": "Docker's runtimes against each other; only when it is named",
    "growth": "speed by concurrency and by tasks, with the limit; only when it is named",
    "gate": "how often comparing two runs errs; only when it is named",
}
BY_NAME = ("datasets", "gate", "growth", "paper", "runtimes")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure parts; return the exit status: 1 if a part failed, 2 for a wrong argument, else 0."""
    parser = _parser()
    options = parser.parse_args(arguments)
    names = options.part or [name for name in PARTS if name not in BY_NAME]
    try:
        _check(names, options.markdown, options.plot)
    except ValueError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    notes = facts()
    if options.quick:
        notes.append("quick: the numbers mean nothing")
    parts: dict[str, Part] = {}
    took: dict[str, float] = {}
    failed = False
    for name in names:
        print(f"{name}: {PARTS[name]}", file=sys.stderr, flush=True)
        began = time.monotonic()
        try:
            parts[name] = _measure(name, Scale(options.quick))
        except Unavailable as reason:
            parts[name] = Part(PARTS[name], notes=[f"Not measured: {reason}"])
        except Exception as error:  # the other parts are still useful
            failed = True
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
            parts[name] = Part(PARTS[name], notes=[f"Failed: {type(error).__name__}"])
        took[name] = time.monotonic() - began
    durations = ", ".join(f"{name} {duration(seconds)}" for name, seconds in took.items())
    notes.append(f"measured in {duration(sum(took.values()))}: {durations}")
    tables = list(parts.values())
    sys.stderr.flush()
    print("\n".join([*notes, "", aligned(tables), "", verdict(parts)]))
    if options.markdown:
        put_between(options.markdown, f"{markdown(tables, notes)}\n\n{verdict(parts)}")
    if options.plot:
        panels = [panel for part in tables for panel in part.panels]
        options.plot.write_text(svg(panels, f"{notes[0]}. {notes[2]}."), encoding="utf-8")
    return 1 if failed else 0


def verdict(parts: Mapping[str, Part]) -> str:
    """Describe how many bounds are met, and which are not."""
    judged = [(name, row) for name, part in parts.items() for row in part.rows if row.bound]
    missed = [f"{name}: {row.what}" for name, row in judged if not row.met]
    sentence = f"{len(judged) - len(missed)} of {len(judged)} bounds are met."
    return f"{sentence} Not met: {'; '.join(missed)}." if missed else sentence


def _parser() -> argparse.ArgumentParser:
    part_lines = "\n".join(f"  {name:16}{description}" for name, description in PARTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure pytest-intercode side by side with what it stands on.",
        epilog=f"parts:\n{part_lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("part", nargs="*", help="what to measure; all by default")
    parser.add_argument("--quick", action="store_true", help="tiny counts, to see that it works")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="put the tables between FILE's two markers"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw how the cost grows")
    return parser


def _check(names: Sequence[str], text: Path | None, plot: Path | None) -> None:
    """Check the arguments before measuring, which takes minutes.

    Raises:
        ValueError: an argument is wrong; the message says how to fix it.
    """
    for name in names:
        if name not in PARTS:
            near = get_close_matches(name, PARTS, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"there is no part {name!r}; there are {', '.join(PARTS)}{hint}")
    if text is not None:
        check_markers(text)
    if plot is not None and (plot.suffix != ".svg" or not plot.parent.is_dir()):
        raise ValueError(f"--plot {plot}: it is a file NAME.svg in a folder that is there")


def _measure(name: str, scale: Scale) -> Part:
    module = importlib.import_module(f"benchmarks.{name.replace('-', '_')}")
    part: Part = module.measure(scale)
    return part


if __name__ == "__main__":
    sys.exit(main())
