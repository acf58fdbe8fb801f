"""A treemap of what was measured: one page with nothing to load, each rectangle as large as what it stands for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

from gpu_tools.sizes.tree import ContentPart, Kind, Package, Sizes, in_order
from groundwork.text import plain, size

_WIDTH, _HEIGHT = 1200.0, 680.0
_HEAD, _EDGE = 15.0, 1.5  # room for a box's own name, and around its content
_LEAST = 6.0  # square pixels: what is smaller is not drawn
_LETTER, _LETTERS_HIGH = 6.2, 12.0  # size of a letter at 11 pixels
_COLOURS = dict(
    zip(
        Kind,
        ("#4c9f50", "#8bc34a", "#c0ca33", "#5b8def", "#e57373", "#c62828", "#eeeeee", "#a1887f", "#7e57c2",
         "#9fa8da", "#ffb74d", "#f06292", "#ffd54f", "#ffecb3", "#b0bec5", "#cfd8dc", "#90a4ae", "#bdbdbd"),
        strict=True,
    )
)  # fmt: skip
_STYLE = """
body { font: 14px sans-serif; margin: 1.5em; color: #222; background: #fff; }
svg { max-width: 100%; height: auto; display: block; margin-bottom: 1em; }
rect { stroke: #fff; stroke-width: .6; } .box { fill: #eceff1; stroke: #78909c; }
text { font-size: 11px; pointer-events: none; } .key { display: inline-block; margin-right: 1em; }
.key i { display: inline-block; width: .9em; height: .9em; margin-right: .3em; vertical-align: -1px; }
"""


@dataclass(frozen=True, kw_only=True)
class Box:
    """A rectangle to be: its name, its bytes, and what it consists of or the part that colours it."""

    name: str
    octets: int
    part: ContentPart | None = None
    inside: tuple[Box, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Area:
    """A rectangle, in pixels."""

    x: float
    y: float
    width: float
    height: float


def page(subjects: Sequence[Sizes]) -> str:
    """Return a page of HTML with a treemap per subject, all to one scale."""
    largest = max((subject.installed for subject in subjects), default=0)
    body = []
    for subject in subjects:
        scale = math.sqrt(subject.installed / largest) if largest else 1.0
        area = Area(x=0, y=0, width=_WIDTH * scale, height=_HEIGHT * scale)
        boxes = [_of_package(package) for package in subject.packages if package.installed]
        areas = squarified([box.octets for box in boxes], area)
        drawn = "\n".join(
            line for box, where in zip(boxes, areas, strict=True) for line in _drawn(box, where, "")
        )
        body.append(f"<h2>{_shown(subject.subject)}: {size(subject.installed)}</h2>")
        body += [f"<p>{_shown(remark)}</p>" for remark in subject.remarks]
        body.append(
            f'<svg width="{area.width:.0f}" height="{area.height:.0f}" '
            f'viewBox="0 0 {max(area.width, 1):.0f} {max(area.height, 1):.0f}">\n{drawn}\n</svg>'
        )
    present = {part.kind for subject in subjects for part in subject.parts}
    keys = (
        f'<span class="key"><i style="background:{_COLOURS[kind]}"></i>{escape(kind)}</span>'
        for kind in Kind
        if kind in present
    )
    title = _shown(", ".join(subject.subject for subject in subjects))
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + f"\n<p>{''.join(keys)}</p>\n</body></html>\n"
    )


def squarified(octets: Sequence[int], area: Area) -> list[Area]:
    """Divide an area among bytes, the largest first, into rectangles that are as square as possible.

    The algorithm of Bruls, Huizing and van Wijk, "Squarified Treemaps" (2000): a row along the shorter side takes
    further rectangles as long as its worst one does not become longer.
    """
    found: list[Area] = []
    left, per_byte = area, area.width * area.height / (sum(octets) or 1)
    if not per_byte:
        return [area] * len(octets)
    sizes = [one * per_byte for one in octets]
    while sizes:
        side, count = max(min(left.width, left.height), 1e-9), 1
        while count < len(sizes) and _worst(sizes[: count + 1], side) <= _worst(sizes[:count], side):
            count += 1
        row, sizes = sizes[:count], sizes[count:]
        thick, offset, wide = sum(row) / side, 0.0, left.width >= left.height
        for one in row:
            long = one / thick
            if wide:
                found.append(Area(x=left.x, y=left.y + offset, width=thick, height=long))
            else:
                found.append(Area(x=left.x + offset, y=left.y, width=long, height=thick))
            offset += long
        if wide:
            left = replace(left, x=left.x + thick, width=max(0.0, left.width - thick))
        else:
            left = replace(left, y=left.y + thick, height=max(0.0, left.height - thick))
    return found


def _worst(row: Sequence[float], side: float) -> float:
    """Return how much longer than wide the worst rectangle of a row is; the row's are sorted, the largest first."""
    thick = sum(row) / side
    return max(row[0] / thick**2, thick**2 / row[-1])


def _of_package(package: Package) -> Box:
    """Libraries one by one, everything else by its kind."""
    boxes: list[Box] = []
    rest: Counter[ContentPart] = Counter()
    for file in package.files:
        if len(file.parts) > 1:
            boxes.append(Box(name=file.path, octets=file.size, inside=_of_parts(file.parts)))
        else:
            rest.update(file.parts)
    return Box(
        name=f"{package.name} {package.version}".strip(),
        octets=package.installed,
        inside=tuple(sorted((*boxes, *_of_parts(rest)), key=lambda box: -box.octets)),
    )


def _of_parts(parts: Mapping[ContentPart, int]) -> tuple[Box, ...]:
    return tuple(Box(name=str(part), octets=octets, part=part) for part, octets in in_order(parts))


def _drawn(box: Box, area: Area, path: str) -> Iterator[str]:
    """Draw a box and what is in it; the names of what surrounds it stand in its title."""
    if area.width * area.height < _LEAST:
        return
    whole = f"{path}{box.name}: {size(box.octets)}"
    fill = f'fill="{_COLOURS[box.part.kind]}"' if box.part else 'class="box"'
    yield (
        f'<rect x="{area.x:.1f}" y="{area.y:.1f}" width="{area.width:.1f}" height="{area.height:.1f}" {fill}>'
        f"<title>{_shown(whole)}</title></rect>"
    )
    letters = int((area.width - 4) / _LETTER)
    # the colour says that it is GPU code
    short = (box.part.arch if box.part else "") or box.name.rpartition("/")[2]
    named = letters >= 4 and area.height >= _LETTERS_HIGH
    if named:
        text = short if len(short) <= letters else f"{short[: letters - 1]}…"
        yield f'<text x="{area.x + 3:.1f}" y="{area.y + 11:.1f}">{_shown(text)}</text>'
    if not box.inside:
        return
    head = _HEAD if named else _EDGE
    content = Area(
        x=area.x + _EDGE,
        y=area.y + head,
        width=max(0.0, area.width - 2 * _EDGE),
        height=max(0.0, area.height - head - _EDGE),
    )
    areas = squarified([one.octets for one in box.inside], content)
    for one, where in zip(box.inside, areas, strict=True):
        yield from _drawn(one, where, f"{path}{box.name} / ")


def _shown(text: str) -> str:
    return escape(plain(text))
