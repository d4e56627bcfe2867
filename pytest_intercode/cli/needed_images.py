"""The images that tasks need, with how many tasks need each; for commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_intercode.core.task import ImageSource, Task
    from pytest_intercode.sandboxes.images import DescribedImages, ImageFact

__all__ = ["count_facts", "count_sources", "describe_name"]


def count_sources(tasks: Iterable[Task]) -> Counter[ImageSource]:
    """Return how many tasks need an image, by where it comes from."""
    from pytest_intercode.environments.images import image_sources

    return Counter(source for task in tasks for source in image_sources(task))


def count_facts(
    sources: Counter[ImageSource], images: DescribedImages, *, built: bool = True
) -> Sequence[tuple[ImageFact, int]]:
    """Return what is known of each image, with how many tasks need it; the most needed ones first.

    A Dockerfile that cannot be read is a fact, too: that it is missing.

    Args:
        sources: where images come from, with how many tasks need each.
        images: knows what is here.
        built: also of what is built, which takes reading all that it is built of.
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
    """Return the name of an image, and what is taken in its place."""
    return f"{fact.name} ({fact.replacement})" if fact.replacement else fact.name
