"""Upstream's files at a tag, straight from its repository: the folders at once, files when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from megabuild.audit.git.addresses import also, page, parse
from megabuild.audit.git.listing import Listing
from megabuild.audit.git.partial import Absent
from megabuild.audit.git.repositories import Repositories
from megabuild.audit.git.repository import Repository
from megabuild.audit.model import Target
from megabuild.errors import AuditError
from megabuild.network.services import Services


class GitTree:
    """A commit's files; implements :class:`megabuild.audit.model.Tree`. Safe for threads.

    Parameters
    ----------
    repositories:
        Those of this run; the submodules' go through them as well.
    repository:
        The one with the commit.
    listing:
        What the commit holds.
    """

    def __init__(self, repositories: Repositories, repository: Repository, listing: Listing) -> None:
        self.repositories = repositories
        self.repository = repository
        self.listing = listing

    @property
    def commit(self) -> str:
        """The commit in full."""
        return self.listing.commit

    @property
    def received(self) -> int:
        """Bytes that came over the network so far."""
        return self.repositories.received

    def names(self) -> Sequence[str]:
        """Return the paths of all regular files, sorted."""
        return sorted(self.listing.files)

    def read(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Return the contents of those files that exist and have at most 16 MB; one request for all of them.

        Raises
        ------
        AuditError
            The server does not answer, or refuses.
        """
        return self.repository.read(self.listing, paths)

    def url(self, path: str, line: int | None = None) -> str:
        """Return a file's page on hosts that have one, or an empty string."""
        return page(self.repository.address, self.commit, path, line)


def open_tree(target: Target, services: Services) -> GitTree:
    """Open the target's repository at its tag.

    Parameters
    ----------
    target:
        Its ``repository`` is any address that git takes, a folder of this machine or a mirror included; its ``tag``
        may be a commit.
    services:
        Cache, time limit, places per host.

    Raises
    ------
    AuditError
        The address must not be used, there is no such tag, or the server does not answer.
    """
    repositories = Repositories(services)
    problem: AuditError | None = None
    for candidate in also(parse(target.repository)):
        repository = repositories.at(candidate)
        try:
            listing = repository.listing(repository.commit(target.tag), everything=True)
            return GitTree(repositories, repository, listing)
        except Absent:
            raise
        except AuditError as error:
            problem = problem or error
    assert problem is not None
    raise problem
