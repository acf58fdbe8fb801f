"""Reader for what upstream takes from a submodule: the value itself comes from the audit's submodule source."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from megabuild.audit.readers.value import NotFound, Source, Value


@dataclass(frozen=True, kw_only=True)
class Submodule:
    """A submodule that must be named in ``.gitmodules``.

    Parameters
    ----------
    path:
        In upstream's tree. That of the outer one, where the submodule is one of a submodule.
    """

    path: str

    def read(self, source: Source) -> Sequence[Value]:
        """Return no value: the submodule's own row has it."""
        if not re.search(rf"^\s*path\s*=\s*{re.escape(self.path)}\s*$", source.text, re.MULTILINE):
            raise NotFound(f"has no submodule {self.path}")
        return ()
