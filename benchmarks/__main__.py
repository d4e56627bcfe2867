"""Run the benchmarks by name, or all of them."""

from __future__ import annotations

import sys

from benchmarks import action_latency, collection, episodes, mbpp, spider, startup

BENCHMARKS = {
    "action-latency": action_latency.main,
    "episodes": episodes.main,
    "collection": collection.main,
    "startup": startup.main,
    "mbpp": mbpp.main,
    "spider": spider.main,
}


def main(names: list[str]) -> None:
    for name in names or list(BENCHMARKS):
        if name not in BENCHMARKS:
            sys.exit(f"there is no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
        print(f"== {name}")
        BENCHMARKS[name]()
        print()


if __name__ == "__main__":
    main(sys.argv[1:])
