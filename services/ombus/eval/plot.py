"""Bars as SVG, without a library: a few numbers side by side, readable in a browser and a diff."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

WIDTH: Final = 720
LABEL: Final = 220
BAR: Final = 14
SPACE: Final = 14
COLOURS: Final = ("#2b6777", "#c8963e", "#8d99ae", "#6b4f6b")
_FONT: Final = 'font-family="sans-serif" font-size="12"'


def bars(title: str, groups: Mapping[str, Sequence[float]], names: Sequence[str]) -> str:
    """Return a chart of ``groups``, one bar for each of ``names``, from zero to the largest."""
    most = max((value for values in groups.values() for value in values), default=0.0) or 1.0
    lines = [f'<text x="10" y="20" {_FONT} font-weight="bold">{escape(title)}</text>']
    y = 34
    for number, name in enumerate(names):
        x = 10 + number * 150
        colour = COLOURS[number % len(COLOURS)]
        lines.append(f'<rect x="{x}" y="{y}" width="10" height="10" fill="{colour}"/>')
        lines.append(f'<text x="{x + 15}" y="{y + 9}" {_FONT}>{escape(name)}</text>')
    y += 28
    for label, values in groups.items():
        lines.append(f'<text x="10" y="{y + 11}" {_FONT}>{escape(label)}</text>')
        for number, value in enumerate(values):
            width = round((WIDTH - LABEL - 90) * value / most, 1)
            colour = COLOURS[number % len(COLOURS)]
            lines.append(
                f'<rect x="{LABEL}" y="{y}" width="{width}" height="{BAR - 2}" fill="{colour}"/>'
            )
            lines.append(
                f'<text x="{LABEL + width + 6}" y="{y + 10}" {_FONT}>{_shown(value)}</text>'
            )
            y += BAR
        y += SPACE
    body = "\n".join(lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 6}" '
        f'viewBox="0 0 {WIDTH} {y + 6}">\n<rect width="100%" height="100%" fill="white"/>\n'
        f"{body}\n</svg>\n"
    )


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.3f}"
