"""The command of the campaigns: plays one whole, prints its figures, and can publish them."""

from __future__ import annotations

import argparse
import collections
import random
import tempfile
import time
from pathlib import Path

from tests.campaigns.faults import FAULTS, FEW_DESCRIPTORS, Disturbed, Laboratory, Setting, disturb

SETTINGS = [
    Setting(backend, concurrency, workers)
    for backend in ("bubblewrap", "docker")
    for concurrency in (1, 4)
    for workers in (0, 2)
]


def faults(count: int, seed: int) -> list[str]:
    """Make so many faults, chosen by a seed; return the figures as lines."""
    chance = random.Random(seed)
    done: list[Disturbed] = []
    names = [*FAULTS, FEW_DESCRIPTORS]
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
        laboratory = Laboratory(Path(folder), chance)
        lasts = {setting: laboratory.measure(setting) for setting in SETTINGS}
        while len(done) < count:
            setting, name = chance.choice(SETTINGS), chance.choice(names)
            began = time.monotonic()
            made = disturb(laboratory, setting, name, chance.uniform(0.1, 0.95) * lasts[setting])
            if made is None:
                continue
            done.append(made)
            said = "; ".join(made.problems) or f"held, {made.spoiled} spoiled"
            seconds = time.monotonic() - began
            print(
                f"{len(done)}/{count} {made.fault} at {made.after:.2f} s: {said} ({seconds:.0f} s)",
                flush=True,
            )
    kinds = collections.Counter(made.fault.partition(" (")[0] for made in done)
    broke = collections.Counter(made.fault.partition(" (")[0] for made in done if made.problems)
    lines = ["| fault | made | did not hold |", "| --- | --- | --- |"]
    lines += [f"| {name} | {kinds[name]} | {broke[name]} |" for name in sorted(kinds)]
    return [*lines, "", f"{len(done)} faults (seed {seed}), {sum(broke.values())} did not hold."]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns", description=__doc__)
    parser.add_argument("campaign", choices=["faults"])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print("\n".join(faults(arguments.count, arguments.seed)))


if __name__ == "__main__":
    main()
