"""The output of `megabuild sizes`: tables of 80 columns, and a JSON document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpu_tools.sizes.tree import ContentPart, Package, Sizes
from groundwork.result import Result
from groundwork.text import Sign, counted, plain, size, table

_NAME_WIDTH, _BY_WIDTH = 31, 18
#: Rows below this share of the whole are added up in one row.
_SMALL = 0.01


def report_sizes(sizes: Sizes, *, everything: bool) -> Result:
    """Return the command's result; the rows add up at every level."""
    return Result(
        format="sizes", format_version=2, document=sizes.to_json(), lines=list(_lines(sizes, everything))
    )


def report_requirements(measured: Sequence[Sizes], python: str, *, everything: bool) -> Result:
    """Return the command's result for requirements: kinds of content are left out, as only names are known."""
    lines = [line for sizes in measured for line in ("", *_lines(sizes, everything, python))]
    document = {"python": python, "subjects": [sizes.to_json() for sizes in measured]}
    return Result(format="sizes", format_version=2, document=document, lines=lines[1:])


def _lines(sizes: Sizes, everything: bool, python: str = "") -> Iterator[str]:
    whole = sizes.installed
    least = 0.0 if everything else _SMALL * whole
    of = f", Python {python}" if python else ""
    download = "" if sizes.download is None else f", {size(sizes.download)} to download"
    yield f"{sizes.subject}{of}: {size(whole)} installed{download}"
    rows: list[tuple[str, ...]] = []
    large = [package for package in sizes.packages if package.installed >= least]
    for package in large:
        rows.append(_package_row(f"{package.name} {package.version}", [package], whole))
        rows += [] if python else _part_rows(package.parts, least, whole)
    if small := sizes.packages[len(large) :]:
        rows.append(_package_row(counted(len(small), "smaller package"), small, whole))
    yield ""
    yield from table(("", "installed", "share", "download", "required by"), rows, right=frozenset({1, 2, 3}))
    if len(sizes.packages) > 1 and not python:
        yield ""
        totals = [row[:3] for row in _part_rows(sizes.parts, least, whole)]
        yield from table(("all packages", "installed", "share"), totals, right=frozenset({1, 2}))
    if not python:
        yield from ("", f"not attributed: {size(sizes.unattributed)}")
    for remark in sizes.remarks:
        yield f"{Sign.warning} {remark}"


def _package_row(name: str, packages: Sequence[Package], whole: int) -> tuple[str, ...]:
    octets = sum(package.installed for package in packages)
    downloads = [package.download for package in packages if package.download is not None]
    by = packages[0].required_by if len(packages) == 1 else ()
    return (
        _short(name.strip(), _NAME_WIDTH),
        size(octets),
        _share(octets, whole),
        size(sum(downloads)) if downloads else Sign.dash,
        _short(", ".join(by), _BY_WIDTH),
    )


def _part_rows(parts: Mapping[ContentPart, int], least: float, whole: int) -> list[tuple[str, ...]]:
    """Return a row per kind, each followed by rows for its architectures; small ones are added up in one row."""
    kinds: dict[str, dict[str, int]] = {}
    for part, octets in parts.items():
        kinds.setdefault(part.kind.value, {})[part.arch] = octets
    rows: list[tuple[str, ...]] = []
    for kind, octets in _large({kind: sum(archs.values()) for kind, archs in kinds.items()}, least):
        rows.append((f"  {kind}", size(octets), _share(octets, whole), "", ""))
        archs = kinds.get(kind, {})
        if any(archs) and max(archs.values()) >= least:
            rows += [
                (f"    {arch}", size(part), _share(part, whole), "", "")
                for arch, part in _large(archs, least)
            ]
    return rows


def _large(sums: Mapping[str, int], least: float) -> list[tuple[str, int]]:
    """Return names with their bytes, the largest first; the last row adds up the small ones."""
    large = sorted((item for item in sums.items() if item[1] >= least), key=lambda item: -item[1])
    small = sum(sums.values()) - sum(octets for _, octets in large)
    return [*large, (f"{len(sums) - len(large)} smaller", small)] if small else large


def _share(octets: int, whole: int) -> str:
    return f"{100 * octets / whole:.1f} %" if whole else ""


def _short(text: str, width: int) -> str:
    text = plain(text)
    return text if len(text) <= width else f"{text[: width - 2]}.."
