"""All exhibits of the paper, one after the other, and docs/paper.md from their pages and tables.

python -m experiments.paper --scale paper --out docs/paper     (make paper)
python -m experiments.paper                                    (make paper-small)
"""

import argparse
import re
import time
from importlib import import_module
from pathlib import Path

from rich.console import Console

from experiments.exhibit import ROOT, carry_out, expected_seconds, in_words

EXHIBITS = ("probit", "proposition", "arma", "classification", "digits")
"""In the order of docs/paper.md. Each has run.py with `run(size, seed, out)` and `SIZES` by scale."""
HERE = Path(__file__).parent
PAGE = ROOT / "docs" / "paper.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=["paper", "small"], default="small")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="default: build/paper/<scale>")
    parser.add_argument("--only", nargs="+", choices=EXHIBITS, default=EXHIBITS, metavar="EXHIBIT")
    given = parser.parse_args()
    folder = given.out or ROOT / "build" / "paper" / given.scale
    console = Console(stderr=True, highlight=False)
    expected = {name: sum(expected_seconds(name).values()) for name in given.only}
    if given.scale == "paper":
        console.print(f"{len(given.only)} exhibits at the paper's sizes: about {in_words(sum(expected.values()))}.")
    began = time.monotonic()
    for name in given.only:
        about = f", about {in_words(expected[name])}" if given.scale == "paper" and expected[name] else ""
        console.print(f"{name}{about} ({in_words(time.monotonic() - began)} so far)")
        exhibit = import_module(f"experiments.{name}.run")
        carry_out(name, exhibit.run, exhibit.SIZES, given.scale, given.seed, folder / name)
    if folder.resolve() == PAGE.with_suffix("").resolve():
        PAGE.write_text(assembled(folder))
        console.print(f"The page: {PAGE.relative_to(ROOT)}")
    console.print(f"Figures and tables: {folder}, after {in_words(time.monotonic() - began)}.")


def assembled(folder: Path) -> str:
    """The page: its introduction and each exhibit's page.md, with tables in the places of <!-- probit/kl -->."""
    parts = [HERE / "page.md", *(HERE / name / "page.md" for name in EXHIBITS)]
    text = "\n".join(part.read_text() for part in parts)
    return re.sub(
        r"<!-- ([a-z]+/[a-z0-9_]+) -->\n<!-- end -->\n", lambda mark: (folder / f"{mark[1]}.md").read_text(), text
    )


if __name__ == "__main__":
    main()
