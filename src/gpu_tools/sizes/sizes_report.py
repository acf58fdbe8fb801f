"""The output of `megabuild sizes`: tables of 80 columns, and a JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpu_tools.sizes.tree import ContentPart, Package, Sizes
from groundwork.result import Result
from groundwork.text import Sign, counted, plain, size, table

Row = tuple[str, ...]
_NAME_WIDTH = 31
_BY_WIDTH = 18
#: Rows below this share of the whole are added up in one row.
_SMALL = 0.01


def report_sizes(sizes: Sizes, *, everything: bool) -> Result:
    """Return the command's result; the rows add up at every level."""
    whole = sizes.installed
    least = _least(sizes, everything)
    rows: list[Row] = []
    large = _find_large(sizes, least)
    for package in large:
        rows.append(_package_row(package, whole))
        rows += _part_rows(package.parts, least, whole)
    rows += _rest_rows(sizes.packages[len(large) :], whole)
    lines = [_title(sizes, sizes.subject), "", *_package_table(rows)]
    if len(sizes.packages) > 1:
        totals = [row[:3] for row in _part_rows(sizes.parts, least, whole)]
        lines.append("")
        lines += table(("all packages", "installed", "share"), totals, right=frozenset({1, 2}))
    lines += ["", f"not attributed: {size(sizes.unattributed)}"]
    lines += _remark_lines(sizes)
    return Result(format="sizes", format_version=2, document=sizes.to_json(), lines=lines)


def report_requirements(measured: Sequence[Sizes], python: str, *, everything: bool) -> Result:
    """Return the command's result for requirements: kinds of content are left out, as only names are known."""
    lines: list[str] = []
    for sizes in measured:
        whole = sizes.installed
        large = _find_large(sizes, _least(sizes, everything))
        rows = [_package_row(package, whole) for package in large]
        rows += _rest_rows(sizes.packages[len(large) :], whole)
        if lines:
            lines.append("")
        lines += [_title(sizes, f"{sizes.subject}, Python {python}"), "", *_package_table(rows)]
        lines += _remark_lines(sizes)
    document = {"python": python, "subjects": [sizes.to_json() for sizes in measured]}
    return Result(format="sizes", format_version=2, document=document, lines=lines)


def _least(sizes: Sizes, everything: bool) -> float:
    """Return the bytes of the smallest row."""
    if everything:
        return 0.0
    return _SMALL * sizes.installed


def _title(sizes: Sizes, name: str) -> str:
    title = f"{name}: {size(sizes.installed)} installed"
    if sizes.download is not None:
        title += f", {size(sizes.download)} to download"
    return title


def _find_large(sizes: Sizes, least: float) -> list[Package]:
    return [package for package in sizes.packages if package.installed >= least]


def _package_table(rows: Sequence[Row]) -> list[str]:
    heads = ("", "installed", "share", "download", "required by")
    return table(heads, rows, right=frozenset({1, 2, 3}))


def _remark_lines(sizes: Sizes) -> list[str]:
    return [f"{Sign.warning} {remark}" for remark in sizes.remarks]


def _package_row(package: Package, whole: int) -> Row:
    name = f"{package.name} {package.version}"
    return _sum_row(name, package.required_by, [package], whole)


def _rest_rows(small: Sequence[Package], whole: int) -> list[Row]:
    """Return a row that adds up small packages; no row if there are none."""
    name = counted(len(small), "smaller package")
    match small:
        case []:
            return []
        case [package]:
            return [_sum_row(name, package.required_by, small, whole)]
        case _:
            return [_sum_row(name, (), small, whole)]


def _sum_row(name: str, required_by: Sequence[str], packages: Sequence[Package], whole: int) -> Row:
    octets = sum(package.installed for package in packages)
    downloads = [package.download for package in packages if package.download is not None]
    download = size(sum(downloads)) if downloads else Sign.dash
    by = _short(", ".join(required_by), _BY_WIDTH)
    return (_short(name.strip(), _NAME_WIDTH), size(octets), _share(octets, whole), download, by)


def _part_rows(parts: Mapping[ContentPart, int], least: float, whole: int) -> list[Row]:
    """Return a row per kind, each followed by rows for its architectures; small ones are added up in one row."""
    kinds: dict[str, dict[str, int]] = {}
    for part, octets in parts.items():
        kinds.setdefault(part.kind.value, {})[part.arch] = octets
    sums = {kind: sum(archs.values()) for kind, archs in kinds.items()}
    rows: list[Row] = []
    for kind, octets in _large(sums, least):
        rows.append((f"  {kind}", size(octets), _share(octets, whole), "", ""))
        archs = kinds.get(kind, {})
        if any(archs) and max(archs.values()) >= least:
            for arch, of_arch in _large(archs, least):
                rows.append((f"    {arch}", size(of_arch), _share(of_arch, whole), "", ""))
    return rows


def _large(sums: Mapping[str, int], least: float) -> list[tuple[str, int]]:
    """Return names with their bytes, the largest first; the last row adds up the small ones."""
    large = [(name, octets) for name, octets in sums.items() if octets >= least]
    large.sort(key=lambda item: -item[1])
    small = sum(sums.values()) - sum(octets for _, octets in large)
    if small:
        large.append((f"{len(sums) - len(large)} smaller", small))
    return large


def _share(octets: int, whole: int) -> str:
    if not whole:
        return ""
    return f"{100 * octets / whole:.1f} %"


def _short(text: str, width: int) -> str:
    text = plain(text)
    if len(text) <= width:
        return text
    return f"{text[: width - 2]}.."
