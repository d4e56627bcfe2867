"""The copy of a project that agents get: its files, as the only commit of a new repository.

A copy is made once for each content, as a layer that sandboxes share. Its repository has no history
and no remote, so neither reaches an agent. Modules that use ``intercode_project`` show what is
expected of agents, so they are left out, with the recordings next to them. Results of earlier runs,
such as a baseline, are also left out, because they show what passed.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import hashlib
import itertools
import os
import posixpath
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pytest_intercode.core.text import one_line
from pytest_intercode.errors import ConfigurationError, SuiteError
from pytest_intercode.projects.layer import ProjectFile, make_layer
from pytest_intercode.system.archives import Budget
from pytest_intercode.system.beneath import Root
from pytest_intercode.system.files import cache_folder, is_results, statistics_path
from pytest_intercode.system.git import Git, GitError, workplace

__all__ = [
    "TEST_MARK",
    "WORKDIR",
    "ProjectCopy",
    "copy_folder",
    "copy_project",
    "digest_project",
    "digest_repository",
    "measure_project",
]

WORKDIR = "/project"
"""The path of the copy in sandboxes."""

TEST_MARK = b"intercode_project"
"""The text that identifies a module of project tests: the fixture that they use."""

_RECORDINGS = "recordings"
_CACHES = {"__pycache__", ".pytest_cache"}
_RECIPE = "2"  # to be changed when the same files have to make a different layer
_LIST_TIMEOUT = 120.0  # seconds for git to list the files of a project
# For reading a commit: git runs nothing but filters, and writes nothing in the repository.
_TREE_SETTINGS = (
    *("core.fsmonitor=false", f"core.hooksPath={os.devnull}", "core.splitIndex=false"),
    *("core.sparseCheckout=false", "submodule.recurse=false"),
)
# Set if a git hook runs the tests: they would make git use the hook's repository in every folder.
_REPOSITORY_VARIABLES = {
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"),
}


@dataclass(frozen=True)
class ProjectCopy:
    """A copy of a project.

    Attributes:
        layer: a tar archive to be laid over an image; its members are below :data:`WORKDIR`.
        commit: the id of its one commit.
        digest: changes with the names, modes and contents of its files.
    """

    layer: Path
    commit: str
    digest: str


def copy_project(
    project: str | os.PathLike[str] | None,
    folder: Path,
    root: Path,
    overlays: Sequence[Path] = (),
    hidden: Sequence[Path] = (),
) -> ProjectCopy:
    """Return a copy of what a test names as its project.

    Args:
        project: a folder, relative to ``folder`` or absolute; or a revision of the project's
            repository, as git names it; None for the project's own folder.
        folder: where relative paths start: the folder of the test.
        root: the project's own folder, pytest's ``rootdir``.
        overlays: folders whose files are laid over the project's, one after another.
        hidden: files and folders that are hidden from agents: what the run writes, and treatments.

    Raises:
        ConfigurationError: there is no such folder or revision, or it cannot be copied; a link in
            the project leads out of it.
    """
    return _make_copy(_read_project(project, folder, root, overlays, hidden), overlays)


def digest_project(
    project: str | os.PathLike[str] | None,
    folder: Path,
    root: Path,
    overlays: Sequence[Path] = (),
    hidden: Sequence[Path] = (),
) -> str:
    """Return the digest that :func:`copy_project` would give its copy; nothing is made."""
    files = _read_project(project, folder, root, overlays, hidden)
    for overlay in overlays:
        _lay_over(files, overlay)
    return _digest(files)


def digest_repository(root: Path, hidden: Sequence[Path], test_files: Sequence[str]) -> str:
    """Return a digest of a project, including the helpers and fakes that its tests may read.

    Args:
        root: the project's own folder.
        hidden: files and folders that do not count.
        test_files: patterns of the names of modules that do not count either if they are tests of
            agents.

    Raises:
        ConfigurationError: the project is not in a repository, or cannot be read.
    """
    return _digest(_read_folder(root, hidden, True, test_files))


def _read_project(
    project: str | os.PathLike[str] | None,
    folder: Path,
    root: Path,
    overlays: Sequence[Path],
    hidden: Sequence[Path],
) -> dict[str, ProjectFile]:
    """Return the files of what a test names as its project; see :func:`copy_project`."""
    for overlay in overlays:
        _check_links(overlay, root, "treatment")
    if project is None:
        return _read_folder(root, hidden, is_repository=True)
    path = folder / Path(project).expanduser()
    if path.is_dir():
        _check_links(path, root, "project")
        return _read_folder(path, hidden)
    if path.exists() or not isinstance(project, str):
        raise ConfigurationError(f"project={str(project)!r}: {path} is not a folder")
    return _read_revision(project, root, hidden)


def _check_links(path: Path, root: Path, name: str) -> None:
    """Check that no link leads out of the project, as a link may come from anybody's commit.

    Raises:
        ConfigurationError: the folder is outside of the project.
    """
    written_path = Path(os.path.normpath(path))
    if written_path.is_relative_to(root) and not path.resolve().is_relative_to(root.resolve()):
        raise ConfigurationError(
            f"{name} {path}: a link leads out of {root}, and agents see nothing from there; copy "
            "the folder into the project, or give its real path"
        )


def copy_folder(
    folder: Path, overlays: Sequence[Path] = (), hidden: Sequence[Path] = ()
) -> ProjectCopy:
    """Return a copy of a folder as it is now.

    In a git repository, the copy has the files that git tracks or does not ignore, with their
    current content. Elsewhere it has everything in the folder.

    Args:
        folder: the folder.
        overlays: see :func:`copy_project`.
        hidden: see :func:`copy_project`.

    Raises:
        ConfigurationError: it cannot be read, or is too large.
    """
    return _make_copy(_read_folder(folder, hidden), overlays)


def measure_project(root: Path, hidden: Sequence[Path] = ()) -> tuple[int, int]:
    """Return how many files a copy of a project would have, and their bytes; nothing is made.

    Args:
        root: the project's folder.
        hidden: see :func:`copy_project`.

    Raises:
        ConfigurationError: it cannot be copied, as it is not in a repository, or is too large.
    """
    files = _read_folder(root, hidden, is_repository=True)
    return len(files), sum(len(file.content) for file in files.values())


def _read_folder(
    folder: Path,
    hidden: Sequence[Path],
    is_repository: bool = False,
    test_files: Sequence[str] = ("*",),
) -> dict[str, ProjectFile]:
    """Return the files of a folder that agents may see; see :func:`copy_folder`.

    A repository is required for the project's own folder, which may be anything. ``test_files`` are
    patterns of the names of tests, which are left out.
    """
    names = _list_files(folder)
    if names is None and is_repository:
        raise ConfigurationError(
            f"{folder} is not in a git repository, so it is not known which files belong to the "
            "project: run `git init` there, or name a folder: "
            "@pytest.mark.intercode(project=FOLDER)"
        )
    budget = Budget(folder)
    try:
        with Root(folder, links=False) as root:
            if names is None:
                names = [name for name in _walk(root) if not _is_of_repository(name)]
            files = dict(_read_files(root, _without_environments(names), budget))
    except OSError as error:
        raise ConfigurationError(f"project: {folder}: cannot be read: {error.strerror}") from None
    except SuiteError as error:
        raise ConfigurationError(f"project: {error}") from None
    return _without_tests(files, _relative(hidden, folder), test_files)


def _read_revision(revision: str, root: Path, hidden: Sequence[Path]) -> dict[str, ProjectFile]:
    """Return the files of a project as it was in a commit; see :func:`copy_project`.

    They are the files of a work tree of the commit, with its line ends and after the filters of the
    repository's own settings. They include what is left out of archives (``export-ignore``).

    Args:
        revision: the commit, as git names it.
        root: the project's folder; if the repository is larger, only this folder is read.
        hidden: see :func:`copy_project`.

    Raises:
        ConfigurationError: there is no such commit, or its files cannot be read.
    """
    with workplace() as folder:
        git, tree = Git(folder, index=folder / "index"), folder / "tree"
        tree.mkdir()
        try:
            commit = git.run(
                root, "rev-parse", "--verify", "--end-of-options", revision + "^{commit}"
            )
        except GitError:
            raise ConfigurationError(
                f"project={revision!r}: neither a folder next to the test nor a revision of the "
                f"repository of {root}"
            ) from None
        settings = [word for setting in _TREE_SETTINGS for word in ("-c", setting)]
        try:
            prefix = git.run(root, "rev-parse", "--show-prefix")
            git.run(root, *settings, "read-tree", commit)
            words = (f"--work-tree={tree}", "--literal-pathspecs", "checkout", "-q", "--")
            git.run(root, *settings, *words, prefix or ".")
            with Root(tree, links=False) as tree_root:
                files = dict(_read_files(tree_root, _walk(tree_root), Budget(root)))
        except (GitError, SuiteError) as error:
            raise ConfigurationError(
                f"project={revision!r}: {root} as it was then cannot be read: {error}"
            ) from None
    files = {name.removeprefix(prefix): file for name, file in files.items()}
    return _without_tests(files, _relative(hidden, root))


def _list_files(folder: Path) -> list[str] | None:
    """Return the files of a folder that git tracks or does not ignore; None without a repository.

    The user's own git settings apply, as they say what is ignored. A repository in the folder is
    part of the project, as git has its commit; a submodule that is not checked out has no files.

    Raises:
        ConfigurationError: git cannot list them.
    """
    variables = {k: v for k, v in os.environ.items() if k not in _REPOSITORY_VARIABLES}
    # A repository's settings may name a program to run, and the repository may not be the user's.
    settings = ("safe.directory=*", "safe.bareRepository=explicit", "core.fsmonitor=false")
    command = ["git", *(word for setting in settings for word in ("-c", setting))]
    command += ["-C", str(folder), "ls-files", "-z"]
    command += ["--cached", "--others", "--exclude-standard", "--deduplicate"]
    try:
        listing = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIST_TIMEOUT,
            check=False,
            env={**variables, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise ConfigurationError(
            "git is not installed, and it decides which files belong to a project: install git"
        ) from None
    except subprocess.TimeoutExpired:
        raise ConfigurationError(
            f"git took more than {_LIST_TIMEOUT:.0f} s to list the files of {folder}"
        ) from None
    if listing.returncode:
        message = listing.stderr.decode("utf-8", "replace")
        if "not a git repository" in message:
            return None
        raise ConfigurationError(f"git cannot list the files of {folder}: {one_line(message)}")
    names = []
    for name in filter(None, os.fsdecode(listing.stdout).split("\0")):
        inner = folder / name
        if inner.is_dir() and not inner.is_symlink():  # a submodule, or another repository
            # In a submodule that is not checked out, git finds the repository around it, and lists
            # "./", which is the folder itself.
            if inner != folder:
                names += [f"{name.rstrip('/')}/{path}" for path in _list_files(inner) or ()]
        else:
            names.append(name)
    return names


def _without_environments(names: Sequence[str]) -> list[str]:
    """Leave out Python's virtual environments, which nobody commits but many do not ignore."""
    folders = tuple(name[: -len("pyvenv.cfg")] for name in names if name.endswith("/pyvenv.cfg"))
    return [name for name in names if not name.startswith(folders)]


def _walk(root: Root) -> list[str]:
    """Return the names of everything in a folder, except for folders."""
    return [item.path for item in root.walk() if not stat.S_ISDIR(item.status.st_mode)]


def _read_files(root: Root, names: list[str], budget: Budget) -> Iterator[tuple[str, ProjectFile]]:
    """Yield files by their names; leave out those that git tracks but that do not exist."""
    for name in names:
        try:
            status = root.stat(name)
            if stat.S_ISREG(status.st_mode):
                budget.entry(status.st_size)
                content = root.read(name, status.st_size)
                yield name, ProjectFile(content, 0o755 if status.st_mode & 0o100 else 0o644)
        except OSError as error:
            if error.errno == errno.ELOOP:
                with contextlib.suppress(OSError):  # a link has replaced a folder above it
                    target = os.fsencode(root.target(name))
                    budget.entry(0)
                    yield name, ProjectFile(target, stat.S_IFLNK | 0o777)
            elif error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise


# -- what is laid over it


def _lay_over(files: dict[str, ProjectFile], overlay: Path) -> None:
    """Lay the files of a folder over a project's.

    Raises:
        ConfigurationError: one of them would be written through a symbolic link of the project,
            replace such a link or a folder, be below a file, or be a part of the repository.
    """
    budget = Budget(overlay)
    folders = {str(parent) for name in files for parent in PurePosixPath(name).parents}
    try:
        with Root(overlay, links=False) as root:
            added_files = dict(_read_files(root, _walk(root), budget))
    except (OSError, SuiteError) as error:
        raise ConfigurationError(f"treatment {overlay}: cannot be read: {error}") from None
    for name, file in added_files.items():
        if _is_of_repository(name):
            raise ConfigurationError(
                f"treatment {overlay}: {name}: a treatment cannot contain a repository; its files "
                "become the project's"
            )
        for path in (name, *map(str, PurePosixPath(name).parents)):
            present = files.get(path)
            if present is not None and stat.S_ISLNK(present.mode):
                raise ConfigurationError(
                    f"treatment {overlay}: {name}: the project has a symbolic link at {path}, "
                    "which a treatment does not replace; put the file where the link leads"
                )
            if (present is not None and path != name) or (path == name and path in folders):
                raise ConfigurationError(
                    f"treatment {overlay}: {name}: {path} is a "
                    f"{'folder' if path == name else 'file'} of the project"
                )
        files[name] = file


# -- the copy


def _make_copy(files: dict[str, ProjectFile], overlays: Sequence[Path]) -> ProjectCopy:
    for overlay in overlays:
        _lay_over(files, overlay)
    digest = _digest(files)
    place = cache_folder() / "projects" / digest
    layer, commit = place.with_suffix(".tar"), place.with_suffix(".commit")
    try:
        if not (layer.exists() and commit.exists()):
            layer.parent.mkdir(parents=True, exist_ok=True)
            with workplace() as folder:
                made_layer, made_commit = make_layer(files, WORKDIR.strip("/"), folder)
                for source, target in ((made_commit, commit), (made_layer, layer)):
                    part = target.with_name(f"{target.name}.{os.getpid()}")
                    shutil.move(source, part)
                    # In one step, as other processes may be making the same copy.
                    part.replace(target)
        return ProjectCopy(layer, commit.read_text("ascii"), digest)
    except OSError as error:
        raise ConfigurationError(
            f"the copy of the project cannot be kept in {layer.parent}: {error.strerror}"
        ) from None


def _relative(hidden: Sequence[Path], folder: Path) -> set[str]:
    """Return the paths in the project of those files and folders that are in it."""
    root = folder.resolve()
    paths = (path.resolve() for path in (*hidden, cache_folder()))
    return {path.relative_to(root).as_posix() for path in paths if path.is_relative_to(root)}


def _without_tests(
    files: Mapping[str, ProjectFile], hidden: set[str], test_files: Sequence[str] = ("*",)
) -> dict[str, ProjectFile]:
    """Return the files that agents may see; what a run writes would change the copy each time."""
    tests = {name for name, file in files.items() if _is_test(name, file)}
    test_modules = {name for name in tests if _has_name(name, test_files)}
    recordings = (posixpath.join(posixpath.dirname(name), _RECORDINGS) for name in tests)
    results = {name for name, file in files.items() if is_results(name, file.content)}
    statistics = (statistics_path(Path(name)).as_posix() for name in results)
    unseen = {*hidden, *test_modules, *recordings, *results, *statistics}
    return {
        name: file
        for name, file in files.items()
        if unseen.isdisjoint(_with_folders(name))
        and _CACHES.isdisjoint(name.split("/"))
        and not _is_of_repository(name)
    }


def _with_folders(name: str) -> Iterator[str]:
    """Yield the folders that contain a file, beginning with the project itself, then the file."""
    yield "."
    yield from itertools.accumulate(name.split("/"), "{}/{}".format)


def _is_of_repository(name: str) -> bool:
    """Whether a file is a part of git's own data, whose settings and hooks git would use."""
    return ".git" in name.casefold().split("/")


def _has_name(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(posixpath.basename(path), pattern) for pattern in patterns)


def _is_test(name: str, file: ProjectFile) -> bool:
    return name.endswith(".py") and TEST_MARK in file.content


def _digest(files: Mapping[str, ProjectFile]) -> str:
    digest = hashlib.sha256(_RECIPE.encode())
    for name, file in sorted(files.items()):
        content = hashlib.sha256(file.content).hexdigest()
        digest.update(f"{name}\0{file.mode:o}\0{content}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:24]
