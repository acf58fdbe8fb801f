"""Text files of a repository that somebody else may have made: links are refused, and so is what has no end."""

from __future__ import annotations

from pathlib import Path

from groundwork import files
from groundwork.errors import AuditError, IntegrityError

_LARGEST = 4 << 20  # bytes of a recipe or config


def read_text(path: Path, root: Path | None = None, remedy: str = "correct the file") -> str:
    """Return a file's text; below `root` no folder may be a link. Raises AuditError if it cannot be read."""
    try:
        below = root if root is not None and path.is_relative_to(root) else None
        with files.open_regular(path, below=below) as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise AuditError(f"{path} has more than {_LARGEST >> 20} MB: refused", remedy)
        return content.decode("utf-8")
    except IntegrityError as error:
        raise AuditError(f"{error.message}: refused", remedy) from error
    except (OSError, UnicodeError) as error:
        raise AuditError(f"cannot read {path}: {error}", remedy) from error
