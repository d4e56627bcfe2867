"""The files of this folder from which pages are made: templates, styles and scripts."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pytest_intercode.core.text import escape_for_terminal

if TYPE_CHECKING:
    import jinja2

__all__ = ["join_scripts", "join_styles", "policy_hash", "read_source", "template_environment"]


def read_source(name: str) -> str:
    """Return the text of a file of this folder."""
    return (files(__package__) / name).read_text(encoding="utf-8")


def join_styles(*names: str) -> str:
    """Return style sheets as one."""
    return "\n".join(map(read_source, names))


def join_scripts(*names: str) -> str:
    """Return scripts as one script, whose names are visible only to each other."""
    script = "\n".join(map(read_source, names))
    return f'"use strict";\n(() => {{\n{script}\n}})();\n'


def policy_hash(text: str) -> str:
    """Return a text's hash in the form of content security policies."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()


def template_environment() -> jinja2.Environment:
    """Return the environment that renders templates and escapes every text in them."""
    import jinja2

    def escape(value: Any) -> Any:
        # Only our own style and script are markup; any other text, even a key, may be an agent's.
        return value if hasattr(value, "__html__") else escape_for_terminal(str(value))

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(read_source),
        autoescape=True,
        finalize=escape,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["fragment"] = lambda text: quote(text, safe="", errors="replace")
    return environment
