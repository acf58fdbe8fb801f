"""What conda-forge's own feedstock of a package builds with: the keys of its rendered configs."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from pin_audit.addresses import parse_address
from pin_audit.facts import FeedstockPin, Scope, SourceOutcome, Where
from pin_audit.meta_yaml import variants
from pin_audit.repositories import Repositories
from pin_audit.request import AuditRequest
from pin_audit.targets import packages

SOURCE = "feedstock"
_CONFIG = re.compile(r"\.ci_support/(?P<name>(?P<platform>(?:linux|osx)_[a-z0-9]+)_[\w.-]*\.yaml)")


def read(request: AuditRequest) -> SourceOutcome:
    """Return the values of the request's names, and of every key of its configs, with where they hold."""
    known = next(
        (package for package in packages() if package.name == request.target.package and package.feedstock),
        None,
    )
    if known is None:
        return SourceOutcome(source=SOURCE, applies=False)
    tree = Repositories(request.services).open(parse_address(known.feedstock), "HEAD")
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    places: dict[tuple[str, str], str] = {}
    wanted = {re.sub("[-.]", "_", name).lower() for name in request.names}
    wanted |= {key for config in request.configs for key in config.variant}
    made = set()
    with tempfile.TemporaryDirectory(prefix="megabuild-audit-") as folder:
        for path, content in sorted(
            tree.read([name for name in tree.names() if _CONFIG.fullmatch(name)]).items()
        ):
            file = Path(folder, "config.yaml")
            file.write_bytes(content)
            values, _ = variants(file)
            here = (
                values.get("target_platform", ("",))[0],
                values.get("cuda_compiler_version", ("None",))[0],
            )
            made.add(here)
            for key in wanted & values.keys():
                found.setdefault((key, ", ".join(values[key])), []).append(here)
                places.setdefault((key, ", ".join(values[key])), path)
    facts = []
    for (key, value), having in sorted(found.items()):
        platforms, cuda = ({one[number] for one in having} for number in (0, 1))
        path = places[key, value]
        facts.append(
            FeedstockPin(
                name=key,
                value=value,
                holds=Scope(
                    platforms=tuple(sorted(platforms)) if platforms != {one for one, _ in made} else (),
                    cuda=tuple(sorted(cuda))
                    if set(having) != {one for one in made if one[0] in platforms}
                    else (),
                ),
                where=Where(file=path, url=tree.url(path), commit=tree.commit, fetched=tree.fetched),
            )
        )
    return SourceOutcome(source=SOURCE, facts=tuple(facts))
