"""How the figures of benchmarks look, and where they go."""

from pathlib import Path

FOLDER = Path(__file__).parent.parent / "docs" / "figures"
OURS, LIGHT, OTHER, GREY = "#c0392b", "#e59866", "#1f4e79", "#7f8c8d"
"""lwa, something lighter of it, what reads all rows, and what is there for comparison; as in the paper's figures."""


def tidy(*all_axes):
    """No frame at the top and right."""
    for axes in all_axes:
        axes.spines[["top", "right"]].set_visible(False)


def write(figure, name, folder=None):
    """PNG and SVG, the latter without dates and random names: a rerun on the same numbers changes nothing."""
    import matplotlib

    folder = folder or FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"{name}.png", dpi=130)
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    print(f"Drawn: {folder / name}.png and .svg")
