"""Facts about the images of a task on an engine, before a run; nothing is pulled or built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from pytest_intercode.core.dockerfile import reads_context
from pytest_intercode.core.task import ImageSource
from pytest_intercode.errors import ImageError
from pytest_intercode.sandboxes.docker.platforms import (
    ImageNames,
    image_info,
    image_platform,
    platform_of_name,
    without_platform,
)
from pytest_intercode.sandboxes.docker.recipes import make_recipe, own_name
from pytest_intercode.sandboxes.images import ImageFact

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["describe_images"]


def describe_images(
    api: APIClient,
    names: ImageNames,
    replacements: Mapping[str, str],
    source: ImageSource,
    *,
    built: bool = True,
) -> Iterator[ImageFact]:
    """Yield what is known of an image and of the images that it is made from.

    Args:
        api: the engine's client.
        names: the names of images on that engine.
        replacements: other base images, by the names of those that they replace.
        source: where the image comes from.
        built: also report what is built, which requires reading everything that it is built from.

    Raises:
        ImageError: a file cannot be read.
    """
    if source.image:
        original = replacements.get(source.image, source.image)
        name = names.name(original, names.platform_of(source))
        is_optional = source.dockerfile is not None
        fact = _describe(api, name, source.image, optional=is_optional)
        yield fact
        if fact.present or not is_optional:
            return
    recipe = make_recipe(api, names, replacements, source)
    for name, replaced in recipe.base_images:
        yield _describe(api, name, replaced)
    if not built:
        return
    alone = not reads_context(recipe.text) and not recipe.has_triggers(api)
    content = recipe.hash(recipe.context(source, alone=alone))
    name = own_name(recipe.label, content, recipe.platform)
    yield _describe(api, name, str(recipe.dockerfile), built=True)


def _describe(
    api: APIClient, name: str, original: str, *, built: bool = False, optional: bool = False
) -> ImageFact:
    step: Literal["build", "pull"] = "build" if built else "pull"
    try:
        info = image_info(api, name)
    except ImageError as error:
        return ImageFact(original, step, present=False, optional=optional, problem=str(error))
    replacement = "" if built else without_platform(name)
    is_own = replacement in ("", without_platform(original))
    return ImageFact(
        original,
        step,
        present=bool(info),
        size=int(info.get("Size") or 0),
        platform=str(image_platform(info) or platform_of_name(name) or ""),
        replacement="" if is_own else replacement,
        optional=optional,
    )
