"""The command of the campaigns: runs one whole, prints its figures, and can publish them."""

from __future__ import annotations

import argparse
import os
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.environments.registry import BUILTIN_ENVIRONMENTS
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings
from pytest_intercode.statistics.rates import wilson
from pytest_intercode.suites.catalogue import bundled_tasks, data_folder, dataset_tasks
from tests.campaigns import endurance as long_run
from tests.campaigns import judge as judge_test
from tests.campaigns.faults import FAULTS, FEW_DESCRIPTORS, Disturbed, Laboratory, Setting, disturb
from tests.campaigns.verdicts import Verdicts, busy, play

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"judge": DOCS / "conformance.md"}
PAGE = DOCS / "reliability.md"  # of all others

SETTINGS = [
    Setting(backend, concurrency, workers)
    for backend in ("bubblewrap", "docker")
    for concurrency in (1, 4)
    for workers in (0, 2)
]


def faults(folder: Path, arguments: argparse.Namespace) -> list[str]:
    """Make ``--count`` faults, chosen by ``--seed``."""
    chance = random.Random(arguments.seed)
    laboratory = Laboratory(folder, chance)
    lasts = {setting: laboratory.measure(setting) for setting in SETTINGS}
    disturbances: list[Disturbed] = []
    while len(disturbances) < arguments.count:
        setting, name = chance.choice(SETTINGS), chance.choice([*FAULTS, FEW_DESCRIPTORS])
        began = time.monotonic()
        disturbed = disturb(laboratory, setting, name, chance.uniform(0.1, 0.95) * lasts[setting])
        if disturbed is None:
            continue
        disturbances.append(disturbed)
        text = "; ".join(disturbed.problems) or f"held, {disturbed.infrastructure_errors} failed"
        seconds = time.monotonic() - began
        text = f"{disturbed.fault} at {disturbed.after:.2f} s: {text} ({seconds:.0f} s)"
        print(f"{len(disturbances)}/{arguments.count} {text}", flush=True)
    kinds, broke, failed = Counter[str](), Counter[str](), Counter[str]()
    for disturbed in disturbances:
        kind = disturbed.fault.partition(" (")[0]
        kinds[kind] += 1
        broke[kind] += bool(disturbed.problems)
        failed[kind] += disturbed.infrastructure_errors
    lines = [
        "| fault | made | did not hold | episodes to be run again |",
        "| --- | --- | --- | --- |",
        *(f"| {n} | {kinds[n]} | {broke[n]} | {failed[n]} |" for n in sorted(kinds)),
    ]
    return [
        *lines,
        "",
        f"{len(disturbances)} faults, seed {arguments.seed}: {broke.total()} did not hold.",
    ]


# Tasks that are told to be wrong there, and rightly: gold writes to /usr, which is the machine's.
_LACKING = {"bubblewrap": {"nl2bash-fs3-00032"}, "docker": set[str]()}


def verdicts(folder: Path, arguments: argparse.Namespace) -> list[str]:
    """Play all tasks beside eight busy loops; bundled ones ``--count`` times on bubblewrap.

    It takes hours: ``--game`` plays some of it, and published rows of other games stay.
    """
    xfail = {
        task.id for env in BUILTIN_ENVIRONMENTS for task in bundled_tasks(env, "") if task.xfail
    }
    # Docker takes five times as long for an episode.
    games: dict[tuple[str, ...], tuple[str, int]] = {
        (backend, env, agent): (f"--intercode-env={env}", -(-arguments.count // share))
        for backend, share in (("bubblewrap", 1), ("docker", 5))
        for env in BUILTIN_ENVIRONMENTS
        for agent in ("oracle", "idle")
    }
    data = os.environ.get("INTERCODE_DATA")
    for name in ("nl2bash", "mbpp") if data else ():
        xfail |= {task.id for task in dataset_tasks(name, data_folder(data, ""), "") if task.xfail}
        for backend, share in (("bubblewrap", 5), ("docker", 20)):
            options = (f"--intercode-dataset={name}", -(-arguments.count // share))
            games[backend, name, "oracle"] = options
    selected = {tuple(each.split("-")) for each in arguments.game} or set(games)
    if selected - games.keys():
        raise SystemExit(f"--game: known are {', '.join(map('-'.join, games))}")
    rows = _published_rows() if arguments.publish else {}
    with busy(8):
        for game in (each for each in games if each in selected):
            (backend, _, agent), (which, times) = game, games[game]
            counted = Verdicts()
            place = folder / "-".join(game)
            place.mkdir()
            counted.add(agent, play(place, agent, times, backend, which), xfail | _LACKING[backend])
            false = len(counted.false_failures) + len(counted.false_passes)
            rows[game] = (counted.episodes, false, len(counted.infrastructure))
            print(*game, *rows[game], *counted.wrong, sep="\n  ", flush=True)
            if arguments.publish:
                publish("verdicts", _verdict_lines(rows))
    return _verdict_lines(rows)


def _verdict_lines(rows: dict[tuple[str, ...], tuple[int, ...]]) -> list[str]:
    episodes = sum(row[0] for row in rows.values())
    wrong = sum(sum(row[1:]) for row in rows.values())
    low, high = wilson(wrong, episodes)
    return [
        "| backend | tasks | agent | episodes | false verdicts | infrastructure errors |",
        "| --- | --- | --- | --- | --- | --- |",
        *(f"| {' | '.join(map(str, (*game, *row)))} |" for game, row in sorted(rows.items())),
        "",
        f"{wrong} of {episodes} episodes, 95 % interval {100 * low:.3f} to {100 * high:.3f} %.",
    ]


def _published_rows() -> dict[tuple[str, ...], tuple[int, ...]]:
    matches = re.findall(
        r"^\| (bubblewrap|docker) \| (\w+) \| (oracle|idle) \| (\d+) \| (\d+) \| (\d+) \|$",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    return {(a, b, c): (int(d), int(e), int(f)) for a, b, c, d, e, f in matches}


def endurance(folder: Path, arguments: argparse.Namespace) -> list[str]:
    """Run ``--count`` episodes at concurrency 16 on bubblewrap, and 3 for 20 of them on Docker."""
    lines = [
        "| backend | episodes | seconds | KB, each | descriptors, each | threads, each "
        "| control groups, each | mounts, each | temporary files, each |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for backend, count in (("bubblewrap", arguments.count), ("docker", arguments.count * 3 // 20)):
        place = folder / backend
        place.mkdir()
        began = time.monotonic()
        samples = long_run.run(place, backend, count, concurrency=16)
        seconds = time.monotonic() - began
        keys = ("kilobytes", "descriptors", "threads", "groups", "mounts", "files")
        slopes = [long_run.slope(samples, key) for key in keys]
        text = " | ".join(f"{s.value:.4f} ({s.low:.4f} to {s.high:.4f})" for s in slopes)
        lines.append(f"| {backend} | {count} | {seconds:.0f} | {text} |")
        print(lines[-1], flush=True)
    return lines


def judge(folder: Path, arguments: argparse.Namespace) -> list[str]:
    """Have both profiles judge ``--count`` equivalent pairs of ALFA's, and shuffled ones."""
    images = dict(each.split("=", 1) for each in arguments.base_image)
    provider = SandboxProvider(
        SandboxSettings(arguments.sandbox, rootfs=arguments.rootfs, base_images=images),
        progress=print,
    )
    tasks = dataset_tasks("alfa", data_folder(None, ""), "judge")
    tasks = tasks[:: max(1, len(tasks) // arguments.count)][: arguments.count]
    judged_pairs = judge_test.pairs(tasks, arguments.seed)
    judges: dict[str, judge_test.Judged] = {}
    played: list[tuple[Task, EpisodeRecord]] = []
    try:
        for number, (pair, judged, record) in enumerate(
            judge_test.judge(judged_pairs, provider), 1
        ):
            if pair.equivalent and record is not None:
                played.append((pair.task, record))
            for name, accepted in judged.items():
                judges.setdefault(name, judge_test.Judged()).add(pair.equivalent, accepted)
                if accepted != pair.equivalent:
                    answer = (
                        f"accepts {pair.command!r}" if accepted else "refuses its second command"
                    )
                    print(
                        f"{number}/{len(judged_pairs)} {pair.task.id}: {name} {answer}", flush=True
                    )
    finally:
        provider.close()
    count = f"{len(tasks)} equivalent pairs and as many shuffled ones (seed {arguments.seed})"
    machines = f": {arguments.machines}" if arguments.machines else ""
    place = f"on {provider.choice.backend}{machines}"
    crossed, fooled = judge_test.crossed(played)
    shares = ", ".join(f"`{name}` {each / crossed:.2%}" for name, each in fooled.items())
    return [
        *judge_test.table(judges),
        "",
        f"{count}, {place}.",
        "",
        "What each second command printed, held against the gold of every other task of its "
        f"machine ({crossed:,} pairs that change no file): accepted are by {shares}.",
    ]


CAMPAIGNS: dict[str, tuple[Callable[[Path, argparse.Namespace], list[str]], int]] = {
    "faults": (faults, 200),
    "verdicts": (verdicts, 20),
    "endurance": (endurance, 20_000),
    "judge": (judge, 300),
}


def publish(name: str, lines: list[str]) -> None:
    """Put figures between the marks of a campaign in its page."""
    page = PAGES.get(name, PAGE)
    text = page.read_text(encoding="utf-8")
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"{page} has no place for {name}")
    whole = "\n".join([begin, *lines, "", end])
    page.write_text(pattern.sub(lambda _: whole, text), encoding="utf-8")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns", description=__doc__)
    parser.add_argument("campaign", choices=CAMPAIGNS)
    parser.add_argument("--count", type=int, help="faults, tries of each task, or episodes")
    parser.add_argument("--seed", type=int, default=1, help="of the faults, or of the shuffling")
    parser.add_argument(
        "--game", action="append", default=[], help="of verdicts: such as bubblewrap-sql-oracle"
    )
    parser.add_argument("--publish", action="store_true", help="write into the page in docs/")
    alfa = parser.add_argument_group("judge", "with ALFA's data where INTERCODE_DATA says")
    alfa.add_argument("--sandbox", default="auto", help="the backend")
    alfa.add_argument("--rootfs", type=Path, help="as --intercode-rootfs")
    alfa.add_argument("--base-image", action="append", default=[], metavar="NAME=REPLACEMENT")
    alfa.add_argument("--machines", default="", help="what the images are made of, for the page")
    arguments = parser.parse_args()
    campaign, count = CAMPAIGNS[arguments.campaign]
    arguments.count = arguments.count or count
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        lines = campaign(Path(folder), arguments)
    print("\n".join(lines))
    if arguments.publish:
        publish(arguments.campaign, lines)


if __name__ == "__main__":
    main()
