"""The git repository of a task, with its history up to the base commit and nothing later.

The host's git makes it, in a temporary folder and without the user's settings, from a copy of the
source's objects and references, so that nothing in a source leads git elsewhere. The result is a
tar archive in the user's cache, which sandboxes share as a layer of their image.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tarfile
from pathlib import Path

from pytest_intercode.core.task import Repository
from pytest_intercode.errors import SuiteError
from pytest_intercode.system.archives import Budget, unpack_archive
from pytest_intercode.system.beneath import Root, kind_of
from pytest_intercode.system.digest import file_digest
from pytest_intercode.system.files import cache_folder
from pytest_intercode.system.git import CHECKOUT_SETTINGS, Git, GitError, pack_checkout, workplace

__all__ = ["repository_layer"]

_RECIPE = "1"  # has to change when the same source gives another archive
_BUNDLE = b"# v"
_STREAM = (b"blob\n", b"commit ", b"reset ", b"feature ", b"option ", b"tag ", b"#", b"progress ")

# The parts of a repository that are copied. Settings, hooks and lists of other places may lead
# anywhere.
_FILES = ("HEAD", "config", "packed-refs", "shallow")
_FOLDERS = ("objects", "refs", "reftable")
_NOT_COPIED = ("info/alternates", "info/http-alternates")
_FORMATS = (("objectFormat", "sha256"), ("refStorage", "reftable"))
_CONFIG_OF_COPY = "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n"
_MAX_SETTINGS_BYTES = 64 * 1024**2  # of one of _FILES


def repository_layer(repository: Repository) -> Path:
    """Return a tar archive of a repository at its base commit, which is made at the first use.

    It holds the objects that the base commit reaches, the branch ``main`` at that commit, the tags
    of its history, and the work tree. It does not hold later commits, reflogs or remotes. Files
    belong to root, and have the time of the base commit.

    Args:
        repository: the repository; its ``source`` is a git bundle, a stream of ``git fast-export``,
            a tar archive or a folder. An archive or folder of plain files becomes one commit.

    Returns:
        The archive, whose members are below ``repository.at``.

    Raises:
        SuiteError: there is no git, or the source holds no such commit.
    """
    assert repository.source is not None, "the image has this repository"
    name = hashlib.sha256("\0".join([_RECIPE, repository.at, repository.commit]).encode())
    name.update(_content(repository.source))
    path = cache_folder() / "repositories" / f"{name.hexdigest()[:24]}.tar"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with workplace() as folder:
            layer = _LayerBuilder(repository, folder).archive()
            part = path.with_name(f"{path.name}.{os.getpid()}")
            shutil.move(layer, part)
            part.replace(path)
    return path


def _content(source: Path) -> bytes:
    digest = hashlib.sha256()
    try:
        if not source.is_dir():
            return bytes.fromhex(file_digest(source))
        with Root(source, links=False) as root:
            for path, state in root.walk():
                digest.update(f"{path}\0{state.st_mode}\0".encode(errors="replace"))
                if stat.S_ISLNK(state.st_mode):
                    digest.update(os.fsencode(root.target(path)))
                elif stat.S_ISREG(state.st_mode):
                    digest.update(hashlib.sha256(root.read(path, state.st_size)).digest())
    except OSError as error:
        raise SuiteError(f"repository: {source}: cannot be read: {error.strerror}") from None
    return digest.digest()


class _LayerBuilder:
    """Makes the archive of one repository in an empty folder."""

    def __init__(self, repository: Repository, folder: Path) -> None:
        assert repository.source is not None
        self._source = repository.source
        self._commit_name = repository.commit
        self._at = repository.at.strip("/")
        self._folder = folder
        self._budget = Budget(repository.source)
        self._git = Git(folder)

    def archive(self) -> Path:
        """Make the archive and return its path."""
        everything = self._everything()
        commit = self._commit(everything)
        tags = self._run_git(everything, "tag", "--merged", commit).split()
        checkout = self._folder / "made"
        self._run_git(self._folder, "init", "-q", "--template=", "-b", "main", str(checkout))
        refspecs = [
            f"{commit}:refs/heads/base",
            *(f"refs/tags/{tag}:refs/tags/{tag}" for tag in tags),
        ]
        self._run_git(
            checkout,
            "fetch",
            "-q",
            "--no-tags",
            "--no-write-fetch-head",
            str(everything),
            *refspecs,
        )
        self._check_size(checkout)
        for setting in CHECKOUT_SETTINGS:
            self._run_git(checkout, "config", *setting.split("=", 1))
        self._run_git(
            checkout, "-c", "core.logAllRefUpdates=false", "checkout", "-q", "-B", "main", "base"
        )
        self._run_git(checkout, "branch", "-q", "-D", "base")
        self._run_git(checkout, "repack", "-q", "-a", "-d")
        self._run_git(checkout, "pack-refs", "--all")
        commit_time = int(self._run_git(checkout, "show", "-s", "--format=%ct", "HEAD"))
        shutil.rmtree(checkout / ".git/logs", ignore_errors=True)
        with Root(checkout, links=False) as root:
            for item in root.walk():
                os.utime(checkout / item.path, (commit_time, commit_time), follow_symlinks=False)
        self._run_git(checkout, "update-index", "-q", "--refresh")
        return pack_checkout(checkout, self._at, commit_time, self._folder / "layer.tar")

    def _commit(self, everything: Path) -> str:
        try:
            return self._run_git(
                everything, "rev-parse", "--verify", f"{self._commit_name}^{{commit}}"
            )
        except SuiteError:
            message = f"repository: {self._source}: it has no commit {self._commit_name!r}"
            raise SuiteError(message) from None

    def _check_size(self, checkout: Path) -> None:
        """Check how large the work tree will be before it is written: objects are compressed."""
        budget = Budget(self._source)
        for line in self._run_git(checkout, "ls-tree", "-r", "-t", "-l", "-z", "base").split("\0"):
            size = line.partition("\t")[0].rpartition(" ")[2]
            budget.entry(int(size) if size.isdecimal() else 0)

    def _everything(self) -> Path:
        """Return a bare repository with all that the source holds."""
        source = self._source
        if source.is_dir():
            return self._of_folder(source)
        with source.open("rb") as file:
            begin = file.read(100)
        if begin.startswith(_BUNDLE) and b"git bundle" in begin:
            bare = self._bare("fetch", "-q", str(source.resolve()), "+refs/*:refs/*")
            heads = self._run_git(
                bare, "bundle", "list-heads", str(source.resolve()), "HEAD"
            ).split()
            if heads:
                self._run_git(bare, "update-ref", "--no-deref", "HEAD", heads[0])
            return bare
        if tarfile.is_tarfile(source):
            return self._of_folder(self._unpack(source))
        if begin.startswith(_STREAM):
            with source.open("rb") as file:
                return self._bare("fast-import", "--quiet", "--force", stdin=file.fileno())
        raise SuiteError(
            f"repository: {source}: neither a git bundle, a stream of `git fast-export`, a tar "
            "archive nor a folder"
        )

    def _bare(self, *words: str, stdin: int | None = None) -> Path:
        bare = self._folder / "everything"
        self._run_git(self._folder, "init", "-q", "--bare", "--template=", "-b", "main", str(bare))
        self._run_git(bare, *words, stdin=stdin)
        return bare

    def _unpack(self, source: Path) -> Path:
        folder = self._folder / "unpacked"
        folder.mkdir()
        unpack_archive(source, folder)
        with Root(folder, links=False) as root:
            top = root.items()
        is_one = len(top) == 1 and stat.S_ISDIR(top[0].status.st_mode)
        return folder / top[0].path if is_one else folder

    def _of_folder(self, folder: Path) -> Path:
        copy = self._folder / "copy"
        copy.mkdir()
        try:
            with Root(folder, links=False) as root:
                kinds = {item.path: kind_of(item.status) for item in root.items()}
                if kinds.get(".git", "folder") != "folder":
                    raise SuiteError(
                        f"repository: {self._source}: its .git is a {kinds['.git']}, which leads "
                        "elsewhere; give a bundle instead: git bundle create FILE --all"
                    )
                if ".git" in kinds:
                    return self._of_repository(root, ".git", copy)
                if kinds.get("HEAD") == "file":
                    return self._of_repository(root, "", copy)
                self._copy(root, "", copy, links=True)
        except OSError as error:
            place = folder / os.fsdecode(error.filename or "")
            raise SuiteError(f"repository: {place}: {error.strerror}") from None
        bare = self._bare("symbolic-ref", "HEAD", "refs/heads/main")
        words = (f"--work-tree={copy}", "-c", "core.bare=false")
        self._run_git(bare, *words, "add", "-A", "-f", ".")
        self._run_git(bare, *words, "commit", "-q", "--allow-empty", "-m", "Initial commit")
        return bare

    def _of_repository(self, root: Root, path: str, copy: Path) -> Path:
        """Return a copy of the repository at a path, without settings that lead git elsewhere."""
        prefix = f"{path}/" if path else ""
        kinds = {item.path: kind_of(item.status) for item in root.items(path)}
        for name in _FILES:
            if prefix + name in kinds:
                (copy / name).write_bytes(root.read(prefix + name, _MAX_SETTINGS_BYTES))
        for name in _FOLDERS:
            (copy / name).mkdir()
            if prefix + name in kinds:
                self._copy(root, prefix + name, copy / name, links=False)
        formats = [self._format(copy, name, value) for name, value in _FORMATS]
        (copy / "config").write_text(f"{_CONFIG_OF_COPY}{''.join(formats)}")
        bare = self._bare("fetch", "-q", str(copy), "+refs/*:refs/*")
        head = self._run_git(copy, "rev-parse", "HEAD")
        self._run_git(bare, "update-ref", "--no-deref", "HEAD", head)
        return bare

    def _format(self, copy: Path, name: str, value: str) -> str:
        """Return a setting for a repository's storage format, if its own settings have it."""
        words = ("config", "--no-includes", "-f", str(copy / "config"), "--get")
        try:
            setting = self._run_git(copy, *words, f"extensions.{name}")
        except SuiteError:  # it does not have this setting
            return ""
        return f"\t{name} = {value}\n" if setting == value else ""

    def _copy(self, root: Root, path: str, target: Path, *, links: bool) -> None:
        """Copy what is below a folder of a source, except for nested repositories.

        Args:
            root: the source.
            path: the folder in it.
            target: an empty folder.
            links: keep symbolic links as they are, and leave out special files, as git does.
                Otherwise neither may exist.
        """
        for item in root.walk(path):
            name = item.path[len(path) :].lstrip("/")
            mode = item.status.st_mode
            if name in _NOT_COPIED or ".git" in name.split("/"):
                continue
            self._budget.entry(item.status.st_size if stat.S_ISREG(mode) else 0)
            place = target / name
            if stat.S_ISDIR(mode):
                place.mkdir()
            elif links and stat.S_ISLNK(mode):
                place.symlink_to(root.target(item.path))
            elif stat.S_ISREG(mode) or not links:
                with root.open(item.path) as content, place.open("xb") as file:
                    shutil.copyfileobj(content, file)
                place.chmod(0o755 if mode & 0o100 else 0o644)

    def _run_git(self, folder: Path, *words: str, stdin: int | None = None) -> str:
        try:
            return self._git.run(folder, *words, stdin=stdin)
        except GitError as error:
            location = f"repository: {self._source}, commit {self._commit_name}"
            raise SuiteError(f"{location}: {error}") from None
