"""The images that tasks need: those that they name, and those of their environments."""

from __future__ import annotations

from pytest_intercode.core.task import ImageSource, Task
from pytest_intercode.environments.registry import kind_of
from pytest_intercode.environments.shell import ShellEnvironment, own_image

__all__ = ["image_sources"]


def image_sources(task: Task) -> tuple[ImageSource, ...]:
    """Return the sources of the images that an episode needs, without duplicates.

    The layers that put a repository on top of an image are not among them.
    """
    kind = kind_of(task.env)
    sources = kind.images(task)
    cls = kind.environment_class("strict")
    if task.image is None and cls is not None and issubclass(cls, ShellEnvironment):
        sources.insert(0, task.for_platform(own_image(cls.dockerfile, cls.name)))
    return tuple(dict.fromkeys(sources))
