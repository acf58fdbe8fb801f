"""What conda-forge's own feedstock of a package builds with: the keys of its rendered configs."""

from __future__ import annotations

import re

from pin_audit.facts import FeedstockPin, Scope, SourceOutcome, Where
from pin_audit.feedstock import variants
from pin_audit.request import AuditRequest
from pin_audit.targets import packages

SOURCE = "feedstock"
_CONFIG = re.compile(r"\.ci_support/(?:linux|osx)_[a-z0-9]+_[\w.-]*\.yaml")


def read(request: AuditRequest) -> SourceOutcome:
    """Return the values of the request's names, and of every key of its configs, with where they hold."""
    package = next((package for package in packages() if package.name == request.target.package), None)
    if package is None or not package.feedstock:
        return SourceOutcome(source=SOURCE, applies=False)
    tree = request.repositories.open(package.feedstock, "HEAD")
    paths = [name for name in tree.names() if _CONFIG.fullmatch(name)]
    wanted = request.wanted_keys()
    # by key and value: by platform and CUDA a path
    places: dict[tuple[str, str], dict[tuple[str, str], str]] = {}
    rendered = set()
    for path, content in sorted(tree.read(paths).items()):
        values, _ = variants(content.decode("utf-8", errors="replace"), path)
        place = values.get("target_platform", ("",))[0], values.get("cuda_compiler_version", ("None",))[0]
        rendered.add(place)
        for key in wanted & values.keys():
            places.setdefault((key, ", ".join(values[key])), {}).setdefault(place, path)
    facts = []
    for (key, value), having in sorted(places.items()):
        platforms, cuda = ({place[number] for place in having} for number in (0, 1))
        path = next(iter(having.values()))
        everywhere = platforms == {platform for platform, _ in rendered}
        any_cuda = having.keys() == {place for place in rendered if place[0] in platforms}
        holds = Scope(
            platforms=() if everywhere else tuple(sorted(platforms)),
            cuda=() if any_cuda else tuple(sorted(cuda)),
        )
        where = Where(file=path, url=tree.url(path), commit=tree.commit, fetched=tree.fetched)
        facts.append(FeedstockPin(name=key, value=value, holds=holds, where=where))
    return SourceOutcome(source=SOURCE, facts=tuple(facts))
