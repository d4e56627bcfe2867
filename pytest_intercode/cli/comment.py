"""``pytest-intercode comment``: writes a run as a comment on a pull request, and posts it.

On GitHub's runners, the variables of every job name the repository, the commit and the pull
request; elsewhere the arguments do.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.cli.arguments import add_results_argument
from pytest_intercode.cli.printing import note, say, warn, write_output
from pytest_intercode.core.text import markdown_text
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.system.files import same_file

if TYPE_CHECKING:
    from pytest_intercode.cli.github import Job
    from pytest_intercode.results.comment import Links

__all__ = ["HELP", "add_arguments", "run"]

HELP = "write a comment for a pull request: the verdict, what broke and what is fixed"

_FILE_OF_NODE_ID = re.compile(r"(.+?)(?:::.*)?", re.DOTALL)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_results_argument(parser)
    parser.add_argument(
        "--baseline",
        metavar="BASELINE.jsonl",
        type=Path,
        help="the results to compare with; without them the comment is a summary",
    )
    parser.add_argument(
        "--name",
        default="agent-tests",
        help="distinguishes it from other comments of a pull request (default: agent-tests)",
    )
    parser.add_argument("--link", metavar="URL", help="where the page of the run is published")
    parser.add_argument(
        "--run-url", metavar="URL", help="where the run's log is (default: the job's, on GitHub)"
    )
    parser.add_argument(
        "--source-url",
        metavar="URL",
        help="the folder of the project at the commit that was tested, for links to tests, as "
        "https://github.com/OWNER/NAME/blob/COMMIT (default: the job's, on GitHub)",
    )
    parser.add_argument(
        "--exit-status",
        metavar="N",
        type=int,
        help="pytest's exit status; with it, the results may be missing",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.md",
        type=Path,
        help="write it to a file, and do not print it",
    )
    parser.add_argument(
        "--post",
        action="store_true",
        help="create the comment, or edit the one of this name; takes the variables of a GitHub "
        "job and GITHUB_TOKEN. Where the token may not write, as in a pull request from a fork, "
        "the comment goes to the job's summary",
    )
    parser.add_argument(
        "--pull-request",
        metavar="N",
        type=int,
        help="the pull request (default: that of the job's event)",
    )


def run(options: argparse.Namespace) -> int:
    """Write, print or post the comment.

    Raises:
        ConfigurationError: a file is not a results file, an argument is wrong, the output cannot be
            written, or there is nowhere to post to.
    """
    from pytest_intercode.cli.github import Job
    from pytest_intercode.results.cell_comparison import ComparedCells
    from pytest_intercode.results.comment import format_comment, marker
    from pytest_intercode.results.comparison import read_run

    job = Job.of(os.environ)
    results: Path = options.results.expanduser()
    baseline: Path | None = options.baseline and options.baseline.expanduser()
    output: Path | None = options.output and options.output.expanduser()
    for path in filter(None, (baseline, output)):
        if same_file(path, results):
            raise ConfigurationError(f"{path}: this is the run itself; name another file")
    first_line = marker(options.name)
    links = _links(options, job)
    missing = options.exit_status is not None and not (results.is_file() and results.stat().st_size)
    this_run = None if missing else read_run(results, warn)
    compared = None
    if baseline is not None and this_run is not None:
        compared = ComparedCells(read_run(baseline, warn), this_run, level=0.05, smallest=0.1)
    text = format_comment(this_run, compared, links, name=options.name, status=options.exit_status)
    if output is not None:
        write_output(output, text)
        say(f"written: {output}")
    if options.post:
        _post(job, text, first_line, options.pull_request)
    elif output is None:
        say(text.removesuffix("\n"))
    return 0


def _links(options: argparse.Namespace, job: Job) -> Links:
    from pytest_intercode.results.comment import Links, checked_url

    page, run_url, source_url = (
        value and checked_url(value, option)
        for value, option in (
            (options.link, "--link"),
            (options.run_url or job.run_url, "--run-url"),
            (options.source_url or job.source_url, "--source-url"),
        )
    )
    # An address that was given is that of the working directory.
    root = Path.cwd() if options.source_url else job.workspace
    return Links(page or "", run_url or "", _find_sources(source_url or "", root), job.commit[:10])


def _find_sources(source_url: str, root: Path) -> Callable[[str], str]:
    """Return a function that finds the address of a test's file, if it exists in the repository."""
    from pytest_intercode.results.comment import quoted_path

    def find_source(node_id: str) -> str:
        match = _FILE_OF_NODE_ID.fullmatch(node_id)
        if not source_url or match is None:
            return ""
        try:
            path = (Path.cwd() / match[1]).resolve()
            if path.is_file() and path.is_relative_to(root.resolve()):
                place = path.relative_to(root.resolve()).as_posix()
                return f"{source_url.rstrip('/')}/{quoted_path(place)}"
        except (OSError, ValueError):  # a name that no file can have
            pass
        return ""

    return find_source


def _post(job: Job, text: str, first_line: str, number: int | None) -> None:
    """Post the comment; if that is not possible, add it to the job's summary and print that.

    Raises:
        ConfigurationError: the summary cannot be written either.
    """
    from pytest_intercode.cli.github import GitHubError, PullRequest

    number = number or job.pull_request
    try:
        if number is None:
            raise GitHubError(
                "the job does not belong to a pull request; name one with --pull-request"
            )
        if not (job.token and job.repository):
            raise GitHubError("GITHUB_TOKEN or GITHUB_REPOSITORY is not set")
        pull_request = PullRequest(job.api_url, job.repository, number, job.token)
        say(f"comment: {pull_request.keep_comment(text, first_line)}")
    except GitHubError as error:
        if job.summary is None:
            raise ConfigurationError(f"the comment could not be posted: {error}") from None
        reason = f"The comment could not be posted, so it is shown here: {error}."
        try:
            with job.summary.open("a", encoding="utf-8") as file:
                file.write(f"{text}\n{markdown_text(reason)}\n")
        except OSError as summary_error:
            raise ConfigurationError(
                f"the comment could not be posted: {error}; the job's summary cannot be written "
                f"either: {job.summary}: {summary_error.strerror}"
            ) from None
        note(reason)
