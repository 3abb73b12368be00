"""The page: style, figures, tables and the few lines of script that read values off a plot. It needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from pathlib import Path

from ordercast import __version__
from ordercast.spark.report.plot import Plot, colour


@dataclass
class Section:
    """A part of the page: what it is about, and blocks of HTML."""

    title: str
    words: str = ""
    blocks: list[str] = field(default_factory=list)


def page(title: str, words: str, sections: Iterable[Section]) -> str:
    """The whole document."""
    parts = []
    for section in sections:
        intro = f"<p>{escape(section.words)}</p>" if section.words else ""
        parts.append(f"<section><h2>{escape(section.title)}</h2>{intro}{''.join(section.blocks)}</section>")
    folder = files("ordercast.spark.report")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escape(title)}</title>'
        f"<style>{(folder / 'page.css').read_text()}</style></head><body><main>"
        f"<header><h1>{escape(title)}</h1><p>{escape(words)}</p></header>{''.join(parts)}</main>"
        f'<div id="reading" hidden></div><script>{(folder / "page.js").read_text()}</script></body></html>\n'
    )


def write_page(path: Path, title: str, sections: Sequence[Section]) -> int:
    """Whole or not at all; how many bytes it has."""
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    data = page(title, f"Written by ordercast {__version__} on {made}.", sections).encode()
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(data)
    temporary.replace(path)
    return len(data)


def tiles(values: Sequence[tuple[str, str]]) -> str:
    """Figures that are read first: what they are, and how much."""
    cells = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in values)
    return f'<dl class="tiles">{cells}</dl>'


def figure(title: str, plot: Plot, words: str = "") -> str:
    """A plot with its title, its legend if there is something to tell apart, and what it shows."""
    keys = "".join(
        f'<li><i style="--c:var(--s{colour(series, number)})"></i>{escape(series.name)}</li>'
        for number, series in enumerate(plot.series)
    )
    legend = f'<ul class="legend">{keys}</ul>' if len(plot.series) > 1 else ""
    return drawing(title, plot.svg(), words, legend)


def drawing(title: str, svg: str, words: str = "", legend: str = "") -> str:
    caption = f"<figcaption>{escape(words)}</figcaption>" if words else ""
    return f"<figure><h3>{escape(title)}</h3>{legend}{svg}{caption}</figure>"


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]], words: str = "") -> str:
    """Columns whose cells begin with a figure stand to the right; those in which there is nothing are left out."""
    if not rows:
        return ""
    told = [at for at in range(len(head)) if any(str(row[at]) for row in rows)]
    head, rows = [head[at] for at in told], [[row[at] for at in told] for row in rows]
    right = [all(_is_figure(str(row[at])) for row in rows) for at in range(len(head))]

    def line(cells: Sequence[object], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=r' if right[at] else ''}>{escape(str(cell))}</{tag}>" for at, cell in enumerate(cells)
        )

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    caption = f"<figcaption>{escape(words)}</figcaption>" if words else ""
    return (
        f'<figure><h3>{escape(title)}</h3><div class="scroll"><table><thead><tr>{line(head, "th")}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{caption}</figure>"
    )


def _is_figure(cell: str) -> bool:
    return not cell or cell == "–" or (cell.lstrip("−-")[:1].isdigit() and ":" not in cell)
