"""Rows of SWE-bench and of its relatives, as fields of tasks for the environment ``swe``.

A manifest (``swebench:`` in a suite's ``rows``) defines the meaning of columns, and where the
commands of the tests come from: a table by repository and version, the row, or files next to the
rows. This module reads the rows and these files, and does not run anything.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_intercode.core.patches import PatchRefused, heredoc, reverse_patch
from pytest_intercode.errors import SuiteError
from pytest_intercode.rewards.test_logs.registry import UnknownParser
from pytest_intercode.suites.swebench.manifest import SwebenchModel, fields_of
from pytest_intercode.suites.swebench.row import SwebenchRow, column_names, parse_literal
from pytest_intercode.suites.swebench.verification import read_table, read_verification
from pytest_intercode.system.rows import Row, read_rows
from pytest_intercode.system.suite_folder import SuitePath

__all__ = ["dataset_of_rows", "read_swebench"]

_IMAGE = re.compile(r"(?![-./])[\w./-]+(?::[\w./-]+)*(?:@sha256:[0-9a-f]{64})?", re.ASCII)
_DEPRECATED = "deprecated"
_OWN_COLUMNS = frozenset(("gold", "query", "verification"))  # of rows in this package's form
_UNPLAYABLE = {  # columns of known forms that cannot be played
    "expected_output_json": "R2E-Gym",
    "fix_patch": "Multi-SWE-bench",
}


def dataset_of_rows(
    path: SuitePath, manifests: Mapping[str, SwebenchModel], tables: Path
) -> str | None:
    """Return the dataset whose manifest fits the first row of a file.

    A manifest fits if it reads all columns that define how the row is tested, and the row has all
    columns that it needs.

    Args:
        path: the rows.
        manifests: the manifests of all forms, by the datasets' names.
        tables: the folder of the bundled tables.

    Returns:
        The name of the dataset; None for rows of this package's own form.

    Raises:
        SuiteError: no manifest fits, or several.
    """
    place, row = next(iter(read_rows(path)), ("", {}))
    if not row or (_OWN_COLUMNS.intersection(row) and "instance_id" not in row):
        return None
    fitting = [name for name, manifest in manifests.items() if _fits(row, manifest, tables)]
    if len(fitting) == 1:
        return fitting[0]
    dataset = next((name for column, name in _UNPLAYABLE.items() if row.get(column)), None)
    if fitting:
        problem = f"these rows could be of {' or '.join(fitting)}"
    elif dataset:
        problem = f"these rows look like those of {dataset}, which cannot be run"
    else:
        problem = f"these rows have no known format ({', '.join(manifests)})"
    raise SuiteError(
        f"{place}: {problem}. Their columns are: {column_names(row)}. Name the dataset "
        "with --intercode-dataset=NAME and its folder with --intercode-data, or write a suite that "
        "says what the columns are: docs/swe-bench.md, 'A manifest of your own'"
    )


def _fits(row: Row, manifest: SwebenchModel, tables: Path) -> bool:
    """Whether a row has a manifest's form."""
    if manifest.unread_columns(row) or manifest.missing_columns(row) or manifest.unfit_column(row):
        return False
    if manifest.table is None or manifest.shown:
        return True
    return str(row.get(manifest.repo)).lower() in read_table(tables / f"{manifest.table}.yaml")


def read_swebench(
    path: SuitePath, manifest: SwebenchModel, folder: SuitePath, tables: Path
) -> Iterator[tuple[str, Row]]:
    """Yield the place and the fields of each row, including the task's fields.

    Args:
        path: the rows.
        manifest: the meaning of their columns.
        folder: the folder of the files that a manifest names.
        tables: the folder of the bundled tables.

    Raises:
        SuiteError: the rows, a table or a file next to them is wrong.
    """
    large_columns = manifest.large_columns()
    for place, row in read_rows(path):
        fields = _task_fields(SwebenchRow(place, row, manifest, folder), tables)
        yield place, {**{k: v for k, v in row.items() if k not in large_columns}, **fields}


def _task_fields(row: SwebenchRow, tables: Path) -> Row:
    """Return the fields of the row's task."""
    manifest = row.manifest
    _check_form(row)
    for column in manifest.columns():
        row.value(column)
    image = _image(row)
    fields: Row = {
        "query": str(row.fields.get(manifest.query) or "").replace("\r\n", "\n").strip(),
        "workdir": row.at,
        "repository": {"at": row.at, "commit": row.commit},
        **(image or {}),
    }
    skips = [_split_skip(row), _assets_skip(row), None if image else "it names no image"]
    if not fields["query"]:
        skips.append(f"it has no problem: {manifest.query} is empty")
        fields["query"] = "(none)"
    fail_to_pass = row.test_names(manifest.fail_to_pass)
    pass_to_pass = row.test_names(manifest.pass_to_pass)
    if not fail_to_pass:
        skips.append(f"{manifest.fail_to_pass} is empty, so that doing nothing would solve it")
    try:
        fields |= _gold(row)
        fields["verification"] = {
            "fail_to_pass": fail_to_pass,
            "pass_to_pass": pass_to_pass,
            "absent": manifest.absent,
            "timeout": manifest.timeout,
            "variables": manifest.variables,
            **read_verification(row, tables, fail_to_pass),
        }
    except (PatchRefused, UnknownParser) as refused:
        skips.append(str(refused))
        fields["gold"] = fields.get("gold", "(refused)")
        fields["verification"] = {"command": "false", "parser": "status"}
    fields["skip"] = next(filter(None, skips), None)
    return fields


def _check_form(row: SwebenchRow) -> None:
    """Check that the row has the manifest's form.

    Raises:
        SuiteError: it has columns that the manifest should read but does not, or is otherwise of
            another form.
    """
    if unread := row.manifest.unread_columns(row.fields):
        names = ", ".join(map(repr, unread))
        raise row.error(
            names,
            "such columns say how a row is tested, but the manifest does not read them: these rows "
            "have another format. Describe it in a suite of your own (docs/swe-bench.md, "
            "'A manifest of your own'); its field 'unread' names those that need not be read",
        )
    if name := row.manifest.unfit_column(row.fields):
        raise row.error(
            name,
            f"{row.fields.get(name)!r:.60} does not have the form {row.manifest.shown[name]!r} "
            "of this dataset's rows",
        )


def _split_skip(row: SwebenchRow) -> str | None:
    split, dataset_split = row.fields.get("split"), row.manifest.split
    if split == _DEPRECATED:
        return "its split is 'deprecated'"
    if split is not None and dataset_split is not None and split != dataset_split:
        raise row.error(
            "split", f"{split!r:.40} is not {dataset_split!r}, the split of this dataset"
        )
    return None


def _assets_skip(row: SwebenchRow) -> str | None:
    """Return why the tests lack files; rows of version 5 name them without their content."""
    assets = row.fields.get("image_assets")
    if isinstance(assets, str):
        assets = parse_literal(assets)
    if not isinstance(assets, dict) or not assets.get("test_patch"):
        return None
    return "its tests need files (image_assets) that rows do not hold"


def _image(row: SwebenchRow) -> Row | None:
    """Return the image; None if the row does not name one."""
    manifest = row.manifest
    if manifest.dockerfile is not None:
        path = row.fill("dockerfile", manifest.dockerfile)
        if (row.folder / path).is_file():
            return {"dockerfile": path}
    for pattern in manifest.images:
        columns = list(fields_of(pattern))
        if len(manifest.images) == 1:
            columns = [name for name in columns if name in row.fields]
        if all(row.fields.get(name) not in (None, "") for name in columns):
            break
    else:
        return None
    name, colon, tag = row.fill("image", pattern).partition(":")
    name = name.lower().replace("__", manifest.double)
    if manifest.namespace and "/" not in name:
        name = f"{manifest.namespace}/{name}"
    image = f"{name}{colon}{tag}"
    if not _IMAGE.fullmatch(image):
        raise row.error("image", f"{image!r:.80} is not the name of an image")
    return {"image": image}


def _gold(row: SwebenchRow) -> Row:
    column = row.manifest.bug or row.manifest.gold
    changes, text = row.changes(column), row.text(column)
    if not changes:
        raise row.error(column, "is empty")
    if row.manifest.bug is None:
        return {"gold": text if text.endswith("\n") else f"{text}\n"}
    return {"gold": reverse_patch(changes), "setup": [_planting(text, row.at)]}


def _planting(bug: str, folder: str) -> str:
    """Return a command that applies a bug, and replaces the history by one commit with it."""
    git = f"git -C {shlex.quote(folder)} -c safe.directory='*'"
    git += " -c user.name=base -c user.email=base@localhost"
    return "\n".join(
        [
            # Files of an image layer have other inodes and times than the index recorded.
            f"{git} update-index -q --refresh",
            heredoc(f"{git} apply --index --whitespace=nowarn", bug, " || exit"),
            f"tree=$({git} write-tree) && commit=$({git} commit-tree -m base $tree) || exit",
            f"{git} update-ref HEAD $commit || exit",
            f"for remote in $({git} remote); do {git} remote remove $remote; done",
            f"branch=$({git} symbolic-ref -q HEAD)",
            f"{git} for-each-ref --format='%(refname)' | grep -vxF \"${{branch:-none}}\" "
            f"| sed 's/^/delete /' | {git} update-ref --no-deref --stdin || exit",
            f"(cd {shlex.quote(folder)}/.git && rm -f FETCH_HEAD ORIG_HEAD)",
            f"{git} reflog expire --expire=now --all && {git} gc -q --prune=now",
        ]
    )
