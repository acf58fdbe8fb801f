"""All remote repositories of a run, each opened once."""

from __future__ import annotations

import threading

from megabuild.audit.git.addresses import Address, also
from megabuild.audit.git.connection import Hosts
from megabuild.audit.git.repository import Repository
from megabuild.errors import AuditError
from megabuild.network.services import Services


class Repositories:
    """Remote repositories by address. Safe for threads."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._hosts = Hosts()
        self._lock = threading.Lock()
        self._known: dict[str, Repository] = {}

    @property
    def received(self) -> int:
        """Bytes that came so far: git's own protocol and packs, without what http and TLS put around."""
        with self._lock:
            return sum(repository.connection.received for repository in self._known.values())

    def at(self, address: Address) -> Repository:
        """Return the repository at an address, without asking anything yet."""
        with self._lock:
            if address.text not in self._known:
                self._known[address.text] = Repository(address, self._services, self._hosts)
            return self._known[address.text]

    def reach(self, address: Address) -> Repository:
        """Return the repository at the first address that answers: ssh addresses are tried over https before.

        Raises
        ------
        AuditError
            None answers; the complaint is that of the first.
        """
        problems: list[AuditError] = []
        for candidate in also(address):
            repository = self.at(candidate)
            try:
                repository.refs()
            except AuditError as error:
                problems.append(error)
            else:
                return repository
        raise problems[0]
