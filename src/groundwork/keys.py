"""Keys of stored results: each is a declared record of its inputs, and all are hashed here. Standard library only.

A key that forgets an input brings an old result back without a word. So tests/unit/test_keys.py has a case for each
class and changes each of its fields; a new class or field without a case fails there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True, kw_only=True)
class Key:
    """The inputs of a stored result. Subclasses are frozen dataclasses whose fields JSON can hold."""

    @property
    def digest(self) -> str:
        """SHA-256 over the names and values of all fields, in hex.

        Raises TypeError: JSON cannot hold a value: its text might leave out what differs.
        """
        inputs = {field.name: getattr(self, field.name) for field in fields(self)}
        return hashlib.sha256(json.dumps(inputs, sort_keys=True, default=_mapping).encode()).hexdigest()


def _mapping(value: object) -> dict[object, object]:
    if isinstance(value, Mapping):  # of another class than dict
        return dict(value)
    raise TypeError(f"{type(value).__name__} in a key")
