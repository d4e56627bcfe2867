"""Forms of a suite's fields: content of files next to it, limits, variables, and ``judge``."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    StrictStr,
    field_validator,
    model_validator,
)

from pytest_intercode.core.hosts import check_hosts
from pytest_intercode.core.judge import find_model_problem, find_votes_problem
from pytest_intercode.core.machine import FileSpec
from pytest_intercode.core.values import size
from pytest_intercode.environments.fields import FileForm, SuiteForm
from pytest_intercode.errors import MissingFile
from pytest_intercode.system.files import bundled_folder
from pytest_intercode.system.suite_folder import SuitePath

__all__ = [
    *("FileModel", "Files", "JudgeModel", "LimitsModel", "Network", "PathModel", "Variable"),
    *("build_forms", "find_dockerfile"),
]


def _read_file(path: SuitePath) -> bytes:
    """Return the content of a file of the suite.

    Raises:
        MissingFile: it cannot be read.
    """
    try:
        return path.read_shared()
    except OSError as error:
        raise MissingFile(f"{path}: cannot be read: {error.strerror}") from None


def _size(value: object) -> object:
    """Convert a size such as ``512m`` to bytes."""
    return size(value) if isinstance(value, str) else value


Size = Annotated[int, BeforeValidator(_size), Field(gt=0)]
Memory = Annotated[Size, Field(ge=6 * 1024**2, le=2**50)]  # bytes that engines accept
Mode = Annotated[int, Field(ge=0, le=0o7777)]
Network = StrictBool | Annotated[tuple[StrictStr, ...], AfterValidator(check_hosts)]
Variable = Annotated[StrictStr, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class LimitsModel(SuiteForm):
    """``limits``: the limits of the sandbox."""

    memory: Memory | None = None
    cpus: float | None = Field(None, ge=0.01, le=64)  # 0.01 is the minimum of engines
    pids: int | None = Field(None, ge=8, le=65536)
    file_size: Size | None = None
    network: Network | None = None
    output: Size | None = None


class FileModel(FileForm):
    """One entry of ``files`` in its long form.

    Attributes:
        text: its content.
        base64: its content, if that is not text.
        link: the target, if it is a symbolic link.
        path: the file next to the suite with its content.
        mode: its permissions, as octal digits in quotes.
    """

    text: StrictStr | None = None
    base64: StrictStr | None = None
    link: StrictStr | None = None
    path: StrictStr | None = None
    mode: Mode | None = None

    @field_validator("mode", mode="before")
    @classmethod
    def _octal(cls, value: object) -> object:
        if isinstance(value, str):
            if not re.fullmatch(r"0?[0-7]{3,4}", value):
                raise ValueError("a mode must be octal digits in quotes, like '0755'")
            return int(value, 8)
        if value is not None:
            raise ValueError(
                "write a mode in quotes, like '0755'; otherwise YAML reads it as decimal"
            )
        return value

    @field_validator("base64")
    @classmethod
    def _decodes(cls, value: str | None) -> str | None:
        try:
            base64.b64decode(value or "", validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"not base64: {error}") from None
        return value

    @model_validator(mode="after")
    def _one_kind(self) -> FileModel:
        kinds = ("text", "base64", "link", "path")
        used_kinds = [name for name in kinds if getattr(self, name) is not None]
        if len(used_kinds) > 1:
            raise ValueError(f"give only one of {', '.join(kinds)}, not {' and '.join(used_kinds)}")
        return self

    def build(self, folder: SuitePath) -> FileSpec:
        """Read the file that ``path`` names."""
        return FileSpec("file", _read_file(folder / (self.path or "")), mode=self.mode)


def _files(files: dict[str, str | FileModel]) -> dict[str, FileSpec | FileModel]:
    return {path: _file(path, model) for path, model in files.items()}


def _file(path: str, content: str | FileModel) -> FileSpec | FileModel:
    model = FileModel(text=content) if isinstance(content, str) else content
    if path.endswith("/"):
        if isinstance(content, str) or model.text or model.base64 or model.link or model.path:
            raise ValueError(f"{path!r} ends with /, so it is a directory and cannot hold text")
        if model.text is None and model.base64 is None and model.link is None:
            return FileSpec("directory", mode=model.mode)
    if model.path is not None:
        return model  # it is read later, when the suite's folder is known
    if model.link is not None:
        return FileSpec("link", target=model.link)
    if model.base64 is not None:
        return FileSpec("file", base64.b64decode(model.base64), mode=model.mode)
    return FileSpec("file", (model.text or "").encode(), mode=model.mode)


Files = Annotated[dict[StrictStr, StrictStr | FileModel], AfterValidator(_files)]


def find_dockerfile(folder: SuitePath, name: str) -> Path:
    """Return the Dockerfile for a name: the suite's own, or a bundled one."""
    own_path = folder / name
    bundled_path = bundled_folder("dockerfiles") / f"{name}.Dockerfile"
    is_ours = "/" not in name and not own_path.is_file() and bundled_path.is_file()
    return bundled_path if is_ours else own_path.place()


class PathModel(FileForm):
    """A text in a file next to the suite.

    Attributes:
        path: the file.
    """

    path: StrictStr

    def build(self, folder: SuitePath) -> str:
        """Read the file."""
        return _read_file(folder / self.path).decode("utf-8", "surrogateescape")


def build_forms(value: Any, folder: SuitePath) -> Any:
    """Build the forms in a value, and resolve its paths in the suite's folder.

    A path may be anywhere in plain data, also in the result of a third-party validator, and must
    not lead out of the folder. A form resolves its own paths when it is built.

    Raises:
        OutsideSuite: a path leads to a place that the suite may not read.
    """
    if isinstance(value, FileForm):
        return value.build(folder)
    if isinstance(value, Path):
        return (folder / str(value)).place()
    if isinstance(value, Mapping):
        parts = [build_forms(part, folder) for part in value.values()]
        return dict(zip([build_forms(name, folder) for name in value], parts, strict=True))
    if isinstance(value, (tuple, list)):
        return type(value)(build_forms(part, folder) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        new_parts = {}
        for item in fields(value):
            part = getattr(value, item.name)
            new_part = build_forms(part, folder)
            if new_part is not part:
                new_parts[item.name] = new_part
        return replace(value, **new_parts) if new_parts else value
    return value


class JudgeModel(SuiteForm):
    """``judge``: how a model grades a part of the reward."""

    rubric: StrictStr | PathModel | None = None
    model: StrictStr | None = None
    votes: int | None = None
    weight: float | None = Field(None, gt=0, le=1)
    alone: StrictBool | None = None
    product: StrictBool | None = None

    @field_validator("model")
    @classmethod
    def _is_pinned(cls, value: str | None) -> str | None:
        if value is not None and (problem := find_model_problem(value)):
            raise ValueError(problem)
        return value

    @field_validator("votes")
    @classmethod
    def _is_odd(cls, value: int | None) -> int | None:
        if value is not None and (problem := find_votes_problem(value)):
            raise ValueError(problem)
        return value
