"""All exhibits of the paper, one after the other, and docs/paper.md with their tables filled in.

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
        fill_in(PAGE, folder)
        console.print(f"Tables filled into {PAGE.relative_to(ROOT)}.")
    console.print(f"Figures and tables: {folder}, after {in_words(time.monotonic() - began)}.")


def fill_in(page: Path, folder: Path) -> None:
    """Put each table between its marks, <!-- probit/kl --> and <!-- end -->."""

    def filled(found: re.Match[str]) -> str:
        return f"{found[1]}\n{(folder / f'{found[2]}.md').read_text()}<!-- end -->"

    text = page.read_text()
    page.write_text(re.sub(r"(<!-- ([a-z_]+/[a-z0-9_]+) -->)\n.*?<!-- end -->", filled, text, flags=re.DOTALL))


if __name__ == "__main__":
    main()
