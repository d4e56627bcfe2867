"""The texts for models: template files that a user can copy and override.

A template is a ``string.Template`` text: ``$name`` or ``${name}`` is replaced by a value, ``$$`` by
a dollar sign. Each template has its own list of placeholders, which is checked on loading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template

from pytest_intercode.environments.kind import EnvironmentKind
from pytest_intercode.environments.registry import builtin_kinds, is_environment
from pytest_intercode.errors import AgentLoadError, TaskError, suggestion

__all__ = ["PLACEHOLDERS", "Templates", "builtin_text", "load_templates"]

_FOLDER = Path(__file__).with_name("prompts")
_SUFFIX = ".txt"
_SETTING = ("workdir", "engine", "database", "language", "fence", "example", "submit", "turns")
_RESULT = ("observation", "turns_left")

PLACEHOLDERS: Mapping[str, tuple[str, ...]] = {
    **{kind.name: _SETTING for kind in builtin_kinds()},
    "other": ("environment", "description", *_SETTING),
    **dict.fromkeys(
        ("single-turn", "try-again", "react", "plan-solve", "tools", "functions"),
        ("setting", *_SETTING),
    ),
    "task": ("query", *_SETTING),
    "plan": ("query", *_SETTING),
    "step": ("step", "number", "total", "turns_left", "submit"),
    "refine": ("turns_left", "submit"),
    "observation": _RESULT,
    "reward": (*_RESULT, "reward"),
    "no-action": ("problem", "form"),
    "tool-execute": ("language",),
    "tool-submit": ("answer",),
    "user": (),
}
"""The placeholders of each template; one for a user's own environment has those of ``other``."""

# Without these, a model would not know its task or the results of its actions.
_REQUIRED = {"task": "query", "plan": "query", "step": "step"}
_REQUIRED |= dict.fromkeys(("observation", "reward"), "observation")


@dataclass(frozen=True)
class Templates:
    """All templates of a run.

    Attributes:
        texts: the templates by name.
        overrides: the names of the templates that the user has replaced or added.
    """

    texts: Mapping[str, Template]
    overrides: tuple[str, ...] = ()

    def introduce(self, kind: EnvironmentKind, **values: object) -> str:
        """Return the sentences that introduce an environment to a model.

        Raises:
            TaskError: the prompt of a user's own kind has a wrong placeholder.
        """
        if kind.name in self.texts:
            return self.fill(kind.name, **values)
        if not kind.prompt:
            return self.fill("other", **values)
        try:
            template = _parse(kind.prompt, kind.name, f"the prompt of {type(kind).__qualname__}")
        except AgentLoadError as error:
            raise TaskError(str(error)) from None
        return template.substitute(values)

    def fill(self, name: str, **values: object) -> str:
        """Return a template's text with its placeholders filled in."""
        substitutions = {key: values[key] for key in _placeholders(name) if key in values}
        return self.texts[name].substitute(substitutions)


def load_templates(folder: Path | None = None) -> Templates:
    """Return our templates, overridden by those of the same name in the user's folder.

    Raises:
        AgentLoadError: there is no such folder, or one of its templates is wrong.
    """
    if folder is None:
        return Templates(_read_builtin())
    option = f"--intercode-agent-arg prompts={folder}"
    if not folder.is_dir():
        raise AgentLoadError(f"{option}: there is no such folder")
    paths = sorted(path for path in folder.iterdir() if path.suffix == _SUFFIX)
    if not paths:
        raise AgentLoadError(
            f"{option}: the folder contains no templates; copy those that you want to change with "
            "pytest-intercode prompts"
        )
    for path in paths:
        if path.stem not in PLACEHOLDERS and not is_environment(path.stem):
            raise AgentLoadError(
                f"{path}: there is no template with this name. Allowed: "
                f"{', '.join(PLACEHOLDERS)}.{suggestion(path.stem, PLACEHOLDERS)}"
            )
    overrides = {path.stem: _read(path) for path in paths}
    return Templates({**_read_builtin(), **overrides}, tuple(overrides))


def _placeholders(name: str) -> tuple[str, ...]:
    return PLACEHOLDERS.get(name, PLACEHOLDERS["other"])


def builtin_text(name: str) -> str:
    """Return the text of one of our templates; for an environment, its kind's prompt."""
    for kind in builtin_kinds():
        if kind.name == name:
            return kind.prompt
    return (_FOLDER / f"{name}{_SUFFIX}").read_text(encoding="utf-8")


@cache
def _read_builtin() -> Mapping[str, Template]:
    return {name: _parse(builtin_text(name), name, name) for name in PLACEHOLDERS}


def _read(path: Path) -> Template:
    """Read one of the user's templates.

    Raises:
        AgentLoadError: it cannot be read, or its placeholders are wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AgentLoadError(f"{path}: cannot be read: {error}") from None
    return _parse(text, path.stem, str(path))


def _parse(text: str, template: str, source: str) -> Template:
    """Check the placeholders of a template and return it.

    Args:
        text: its text.
        template: its name, which determines the allowed placeholders.
        source: where it comes from, for messages.

    Raises:
        AgentLoadError: it has a placeholder that is not allowed, or lacks a required one.
    """
    text = text.strip("\n")
    placeholders = _placeholders(template)
    used_placeholders = set()
    for match in Template.pattern.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match["invalid"] is not None:
            raise AgentLoadError(
                f"{source}:{line}: a $ without a placeholder; write $$ for a dollar sign"
            )
        name = match["named"] or match["braced"]
        if name is not None and name not in placeholders:
            raise AgentLoadError(
                f"{source}:{line}: there is no placeholder ${name} here; allowed are "
                f"{', '.join(f'${n}' for n in placeholders)}.{suggestion(name, placeholders)}"
            )
        used_placeholders.add(name)
    required = _REQUIRED.get(template)
    if required is not None and required not in used_placeholders:
        raise AgentLoadError(f"{source}: it has no ${required}, which a model needs")
    return Template(text)
