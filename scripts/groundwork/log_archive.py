"""A zip file of logs, with everything masked that is a secret now."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

from groundwork import files
from groundwork.redact import Mask


def pack(members: Mapping[str, Path | str], archive: Path, mask: Mask) -> None:
    """Write a zip file whole; its members, by their names in it, are files or texts.

    Raises IntegrityError: One is a link, or no file.
    """
    with files.replacing(archive) as new, zipfile.ZipFile(new, "x", zipfile.ZIP_DEFLATED) as packed:
        for name, member in members.items():
            if isinstance(member, str):
                packed.writestr(name, mask(member))
                continue
            info = zipfile.ZipInfo.from_file(member, name, strict_timestamps=False)
            info.compress_type = zipfile.ZIP_DEFLATED
            with (
                files.open_regular(member) as source,
                packed.open(info, "w", force_zip64=os.fstat(source.fileno()).st_size > 1 << 30) as target,
            ):
                for line in source:
                    target.write(mask(line.decode("utf-8", "replace")).encode())
