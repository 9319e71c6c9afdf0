"""The style of the benchmarks' figures, and where figures and tables go: docs/figures and docs/performance.md."""

from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
OURS, LIGHT, OTHER, GREY = "#c0392b", "#e59866", "#1f4e79", "#7f8c8d"
"""lwa, something lighter of it, what reads all rows, and what is there for comparison; as in the paper's figures."""


def tidy(*all_axes):
    """No frame at the top and right."""
    for axes in all_axes:
        axes.spines[["top", "right"]].set_visible(False)


def write(figure, name, docs=None):
    """PNG and SVG, the latter without dates and random names: a rerun on the same numbers changes nothing."""
    import matplotlib

    folder = (docs or DOCS) / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.png", dpi=130)
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    print(f"Drawn: {folder / name}.png and .svg")


def put(name, text, docs=None):
    """Put text between its marks on the page, where there is one."""
    page = (docs or DOCS) / "performance.md"
    if not page.exists():
        return
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    if not found or end not in rest:
        raise SystemExit(f"{page} has no marks {begin} and {end}. Put them where the text belongs.")
    page.write_text(f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}", encoding="utf-8")
