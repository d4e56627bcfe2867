"""The images that tasks need, and how many tasks need each; for commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_intercode.core.task import ImageSource, Task
    from pytest_intercode.sandboxes.images import DescribedImages, ImageFact

__all__ = ["MISSING", "PRESENT", "UNKNOWN", "count_facts", "count_sources", "describe_name"]

PRESENT, MISSING, UNKNOWN = "present", "missing", "unknown"
"""The states of what is needed, in the tables of commands."""


def count_sources(tasks: Iterable[Task]) -> Counter[ImageSource]:
    """Return how many tasks need each image, by the source of the image."""
    from pytest_intercode.environments.images import image_sources

    return Counter(source for task in tasks for source in image_sources(task))


def count_facts(
    sources: Counter[ImageSource], images: DescribedImages, *, built: bool = True
) -> Sequence[tuple[ImageFact, int]]:
    """Return facts about each image, with how many tasks need it; the most needed ones first.

    A Dockerfile that cannot be read gives a fact, too: that its image is missing.

    Args:
        sources: the sources of images, with how many tasks need each.
        images: knows which images are here.
        built: include images that are built, which requires reading everything they are built from.
    """
    from pytest_intercode.errors import ImageError, SuiteError
    from pytest_intercode.sandboxes.images import ImageFact

    counts: Counter[ImageFact] = Counter()
    for source, number in sources.items():
        try:
            for fact in images.describe(source, built=built):
                counts[fact] += number
        except (ImageError, SuiteError) as error:
            problem, cause = str(error), getattr(error, "cause", "")
            fact = ImageFact(source.name, "build", present=False, problem=problem, cause=cause)
            counts[fact] += number
    return counts.most_common()


def describe_name(fact: ImageFact) -> str:
    """Return the name of an image, with its replacement if there is one."""
    return f"{fact.name} ({fact.replacement})" if fact.replacement else fact.name
