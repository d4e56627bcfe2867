"""Paths that others chose are opened by the resolver alone; read from the sources.

A module that reads suites has :class:`SuitePath` for what they name, which nothing else opens, as
mypy sees. So what could go past it is a path of another kind: a ``Path``, or a name given to ``os``
or ``shutil``. Where such a path is opened is listed here, with whose path it is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.support.architecture import MODULES

_OPENING = {
    *("open", "read_text", "read_bytes", "iterdir", "glob", "rglob", "listdir", "scandir", "walk"),
    *("exists", "is_file", "is_dir", "stat", "lstat", "readlink", "copy", "copyfile", "copytree"),
}
_SYSTEM = {"os", "shutil", "glob", "io"}
_RESOLVER = {"system.suite_folder"}
_READERS = sorted(
    {name for name in MODULES if name.startswith(("suites.", "environments.swe."))}
    | {"sandboxes.overlay", "sandboxes.walker", "rescoring.tasks"}
)

_NAMED = "the user names it"
_OURS = "it is of this package, or made by it"
_PLACED = "a task keeps it, and SuitePath.place has made it"
_DESCRIPTOR = "a descriptor"
_ALLOWED = {
    "rescoring.tasks": {"_suite_of": "a root"},
    "suites.catalogue": {
        **dict.fromkeys(("data_folder", "named_tasks", "dataset_tasks"), _NAMED),
        **dict.fromkeys(("bundled_tasks", "dataset_names", "describe_data"), _OURS),
        "_count_files": _NAMED,
    },
    "system.digest": dict.fromkeys(
        ("_canonical", "_digest_context", "_file_states", "file_digest"), _PLACED
    ),
    "suites.download": dict.fromkeys(("is_whole", "_get"), _OURS),
    "system.archives": {
        **dict.fromkeys(("build_archive", "context_files", "__init__"), _PLACED),
        **dict.fromkeys(("_linked_files", "_copy_folder"), "a root"),
        **dict.fromkeys(("pack_files", "unpack_files", "unpack_own"), "an archive in memory"),
        "_copy_archive": "an archive that is being read",
        "unpack_archive": "a name that relative_path let pass, in a folder without links",
    },
    "environments.swe.requirements": {"_read": "a program in a sandbox"},
    "suites.harbor.writing": {
        **dict.fromkeys(("_write_image", "_copy_context", "_copy"), _PLACED),
        "write_terminal_bench": "a SuitePath",
        "_write_tests": "an archive in memory",
    },
    "suites.loader": {
        "load_rows": _NAMED,
        "_tasks": "a SuitePath",
        **dict.fromkeys(("_check_files", "_suggest_file"), _PLACED),
    },
    "environments.swe.repositories": {
        "repository_layer": _OURS,
        **dict.fromkeys(("_content", "_everything"), _PLACED),
        **dict.fromkeys(("archive", "_copy"), "a root"),
    },
    "suites.forms": dict.fromkeys(("find_dockerfile",), "a SuitePath"),
    "suites.formats": {"recognises": _NAMED},
    "suites.making": dict.fromkeys(("_tasks", "tasks_called"), _NAMED),
    "suites.swebench.tasks": {"_image": "a SuitePath"},
    "suites.swebench.verification": {
        "read_table": "SuitePath.place has made it, or it is ours",
        "_test_by_programs": "a SuitePath",
    },
    "suites.upstream": {"_table": _OURS},
    "environments.swe.kit": dict.fromkeys(("holds", "make_kit", "add_set", "_python_of"), _OURS),
    "sandboxes.overlay": {
        "_unknown_feature": "the kernel's",
        **dict.fromkeys(("_current_entry", "_walk"), "the engine's own file"),
        "_find_hidden": _DESCRIPTOR,
        "archive": "an archive in memory",
    },
    "sandboxes.walker": {"_names": _DESCRIPTOR},
}


def _openings(source: str) -> Iterator[tuple[str, str]]:
    """Yield what may open a path of the host's: the function that it is in, and the call."""
    tree = ast.parse(source)
    tree.body = [part for part in tree.body if not _is_for_types(part)]
    has_paths = any(
        isinstance(part, ast.ImportFrom)
        and part.module == "pathlib"
        and any(name.name == "Path" for name in part.names)
        for part in ast.walk(tree)
    ) or any(
        isinstance(part, ast.Import) and any(name.name == "pathlib" for name in part.names)
        for part in ast.walk(tree)
    )
    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for call in (part for part in ast.walk(function) if isinstance(part, ast.Call)):
            if _opens(call, has_paths):
                yield function.name, ast.unparse(call)


def _is_for_types(part: ast.stmt) -> bool:
    return isinstance(part, ast.If) and ast.unparse(part.test) == "TYPE_CHECKING"


def _opens(call: ast.Call, has_paths: bool) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id == "open"
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _OPENING:
        return False
    receiver = ast.unparse(call.func.value)
    if any(word.arg == "dir_fd" for word in call.keywords):
        return False  # one name, in a folder that is open
    return has_paths or receiver.partition(".")[0] in _SYSTEM


@pytest.mark.parametrize("module", [name for name in _READERS if name not in _RESOLVER])
def test_no_path_goes_past_the_resolver(module: str) -> None:
    allowed = _ALLOWED.get(module, {})
    found = [*_openings(MODULES[module].read_text(encoding="utf-8"))]
    wrong = [f"{function}: {call}" for function, call in found if function not in allowed]
    assert not wrong, f"{module}: by SuitePath or Root, or say here whose path it is: {wrong}"
    unused = allowed.keys() - {function for function, _ in found}
    assert not unused, f"{module}: opens nothing any more in {', '.join(sorted(unused))}"


def test_the_rule_sees_what_it_should() -> None:
    def calls(source: str) -> list[str]:
        return [call for _, call in _openings(source)]

    body = "def f(path, fd):\n    {}\n"
    path = "from pathlib import Path\n" + body
    for call in ("(path / 'x').read_text()", "Path(path).open()", "path.is_file()"):
        assert calls(path.format(call))
        assert not calls(body.format(call))  # where there is no Path, it is none
    for call in (
        "open(path)",
        "os.listdir(path)",
        "shutil.copytree(path, 'x')",
        "os.path.exists(path)",
    ):
        assert calls(body.format(call))
    assert not calls(body.format("os.open(path, 0, dir_fd=fd)"))
    types = "if TYPE_CHECKING:\n    from pathlib import Path\n" + body
    assert not calls(types.format("path.is_file()"))
