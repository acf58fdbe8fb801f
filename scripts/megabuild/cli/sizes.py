"""`megabuild sizes`: where the bytes go, as a table, as JSON and as a picture."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from megabuild import files
from megabuild.cli.text import Signs, plain, size, table, wrapped
from megabuild.errors import UsageError
from megabuild.sizes.tree import Kind
from megabuild.wording import counted

if TYPE_CHECKING:  # reading libraries takes a moment to import, and most commands need none of it
    from megabuild.sizes.tree import ContentPart, Difference, Package, Sizes

_NAME_WIDTH, _BY_WIDTH = 31, 18
#: Rows below this share of the whole are summed up in one.
_SMALL = 0.01


@click.command()
@click.argument("subjects", nargs=-1, required=True, metavar="SUBJECT")
@click.option("--compare", is_flag=True, help="Two subjects, side by side.")
@click.option(
    "--python", metavar="X.Y", help="The Python that a requirement is for; this program's by default."
)
@click.option("--all", "everything", is_flag=True, help="Every row, however small.")
@click.option("--html", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
              help="Also a picture: one page that needs nothing else.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@click.pass_context
def sizes(
    context: click.Context,
    subjects: tuple[str, ...],
    compare: bool,
    python: str | None,
    everything: bool,
    html: Path | None,
    as_json: bool,
) -> None:
    """Say where the bytes of an installation go.

    A SUBJECT is the folder of an environment (venv or conda), a .conda, .tar.bz2 or .whl file, a channel's folder, or
    a requirement such as torch==2.15.0, which is looked up on pip's indexes without fetching a wheel. Nothing is
    installed, imported or run.
    """
    from megabuild.cli.treemap import page
    from megabuild.sizes.measure import measure
    from megabuild.sizes.tree import differences

    context.obj.json = as_json
    if len(subjects) != (2 if compare else 1):
        raise UsageError(
            "--compare takes two subjects" if compare else "one subject is measured at a time",
            "compare two of them: megabuild sizes --compare A B",
        )
    if html is not None:
        files.writable(html.absolute().parent, "choose another place: --html FILE")
    measured = [measure(subject, python=python) for subject in subjects]
    if html is not None:
        files.write(html, page(measured))
    signs, smallest = Signs.of(sys.stdout), 0.0 if everything else _SMALL
    if not compare:
        lines = list(sizes_lines(measured[0], signs, smallest))
        document: object = measured[0].to_json()
    else:
        found = differences(*measured)
        lines = list(compare_lines(measured, found, smallest))
        document = {
            "subjects": [one.to_json() for one in measured],
            "differences": [one.to_json() for one in found],
        }
    if as_json:
        context.obj.show(document)
    else:
        click.echo("\n".join(lines))


def sizes_lines(measured: Sizes, signs: Signs, smallest: float) -> Iterator[str]:
    """Return a measurement for people, 80 columns wide; it adds up at every level.

    Parameters
    ----------
    smallest:
        The share of the whole below which rows are summed up.
    """
    whole = measured.installed
    least = smallest * whole
    yield from wrapped(f"{plain(measured.subject)}: {_totals(measured)}")
    rows: list[tuple[str, ...]] = []
    large = [package for package in measured.packages if package.installed >= least]
    for package in large:
        rows.append(_package_row(f"{package.name} {package.version}", [package], whole, signs))
        rows += _part_rows(package.parts, least, whole)
    if rest := measured.packages[len(large) :]:
        rows.append(_package_row(counted(len(rest), "smaller package"), rest, whole, signs))
    yield ""
    yield from table(("", "installed", "share", "download", "required by"), rows, right=frozenset({1, 2, 3}))
    if len(measured.packages) > 1:
        yield ""
        yield from table(
            ("all together", "installed", "share"),
            [row[:3] for row in _part_rows(measured.parts, least, whole)],
            right=frozenset({1, 2}),
        )
    yield ""
    yield from wrapped(_left_open(measured))
    for remark in measured.remarks:
        yield from wrapped(f"{signs.warning} {plain(remark)}")


def compare_lines(measured: Sequence[Sizes], found: Sequence[Difference], smallest: float) -> Iterator[str]:
    """Return two measurements side by side, for people."""
    first, second = measured
    for name, one in (("first", first), ("second", second)):
        yield from wrapped(f"{name}: {plain(one.subject)}, {_totals(one)}")
    least = smallest * max(first.installed, second.installed)
    for what in ("package", "part"):
        every = [row for row in found if row.what == what]
        shown = [row for row in every if max(row.first, row.second) >= least]
        hidden = [row for row in every if max(row.first, row.second) < least]
        rows = [(row.name, row.first, row.second) for row in shown]
        if hidden:
            sums = (sum(row.first for row in hidden), sum(row.second for row in hidden))
            rows.append((f"{len(hidden)} smaller", *sums))
        rows.append(("together", first.installed, second.installed))
        cells = [(_short(name, _NAME_WIDTH), size(a), size(b), _signed(b - a)) for name, a, b in rows]
        yield ""
        yield from table((what, "first", "second", "difference"), cells, right=frozenset({1, 2, 3}))
    for one in measured:
        yield ""
        yield from wrapped(f"{plain(one.subject)}: {_left_open(one)}")
        for remark in one.remarks:
            yield from wrapped(f"! {plain(remark)}")


def _package_row(name: str, packages: Sequence[Package], whole: int, signs: Signs) -> tuple[str, ...]:
    octets = sum(package.installed for package in packages)
    known = [package.download for package in packages if package.download is not None]
    download = size(sum(known)) if known else signs.dash
    by = packages[0].required_by if len(packages) == 1 else ()
    return (
        _short(name.strip(), _NAME_WIDTH),
        size(octets),
        _share(octets, whole),
        download,
        _short(", ".join(by), _BY_WIDTH),
    )


def _part_rows(parts: Mapping[ContentPart, int], least: float, whole: int) -> list[tuple[str, ...]]:
    """Return rows for kinds, and below them for architectures where a kind has several; the rest in one row."""
    kinds: dict[str, dict[str, int]] = {}
    for part, octets in parts.items():
        kinds.setdefault(part.kind.value, {})[part.arch] = octets
    rows: list[tuple[str, ...]] = []
    for kind, octets in _large({kind: sum(archs.values()) for kind, archs in kinds.items()}, least):
        rows.append((f"  {kind}", size(octets), _share(octets, whole), "", ""))
        archs = kinds.get(kind, {})
        if any(archs) and max(archs.values()) >= least:
            rows += [
                (f"    {arch}", size(one), _share(one, whole), "", "") for arch, one in _large(archs, least)
            ]
    return rows


def _large(sums: Mapping[str, int], least: float) -> list[tuple[str, int]]:
    """Return names with their bytes, the largest first; the small ones are summed up in one."""
    large = sorted((item for item in sums.items() if item[1] >= least), key=lambda item: -item[1])
    rest = sum(sums.values()) - sum(octets for _, octets in large)
    return [*large, (f"{len(sums) - len(large)} smaller", rest)] if rest else large


def _totals(measured: Sizes) -> str:
    download = "" if measured.download is None else f", {size(measured.download)} to download"
    fetched = f" ({size(measured.fetched)} were fetched to find out)" if measured.fetched else ""
    return f"{size(measured.installed)} installed{download}{fetched}"


def _left_open(measured: Sizes) -> str:
    """Say how many bytes nothing tells anything about."""
    share = _share(measured.unattributed, measured.installed)
    text = f"not attributed: {size(measured.unattributed)} ({share})"
    if unread := sum(octets for part, octets in measured.parts.items() if part.kind == Kind.UNREAD_LIBRARIES):
        text += f"; libraries that were not looked into: {size(unread)}"
    return text


def _signed(octets: int) -> str:
    return f"{'-' if octets < 0 else '+'}{size(abs(octets))}" if octets else "same"


def _share(octets: int, whole: int) -> str:
    return f"{100 * octets / whole:.1f} %" if whole else ""


def _short(text: str, width: int) -> str:
    text = plain(text)
    return text if len(text) <= width else f"{text[: width - 2]}.."
