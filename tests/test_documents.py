"""Documents name files and pages that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/design/*.md")]
HISTORY = {"CHANGELOG.md"}


def find_missing(text, folder):
    """Return the links and the paths of Python files that lead nowhere."""
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    files = set(re.findall(r"(?<![\w./-])(?:\w+/)+\w+\.py\b", text))
    missing = [link for link in links if not (folder / link).exists()]
    return missing + [file for file in files if not any((at / file).exists() for at in (ROOT, ROOT / "src" / "lwa"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_exists(page):
    text = "" if page.name in HISTORY else page.read_text(encoding="utf-8")
    assert find_missing(text, page.parent) == []


def test_a_path_that_leads_nowhere_is_found():
    text = "[a](no.md), `no/such.py`, [b](https://example.org/x) and `rows/protocol.py`"
    assert find_missing(text, ROOT) == ["no.md", "no/such.py"]


def test_every_decision_is_in_the_index():
    folder = ROOT / "docs" / "design"
    index = (folder / "README.md").read_text(encoding="utf-8")
    assert [
        page.name for page in folder.glob("*.md") if f"({page.name})" not in index and page.name != "README.md"
    ] == []


def test_the_architecture_fits_in_one_sitting():
    assert len((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split()) <= 2000
