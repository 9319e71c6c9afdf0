"""The page in Chromium, where there is one: nothing to complain of, nothing cut off, light and dark."""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from lwa.result.report.page import build_page
from tests.result.report.made import certificate, fit

CHROMIUM = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on the path")
SLOW = pytest.mark.slow

DARK = "--blink-settings=preferredColorScheme=0"
LIGHT = "--blink-settings=preferredColorScheme=1"
MEASURE = """
<iframe id="page" srcdoc="{page}" style="border: 0; width: {width}px; height: 800px"></iframe>
<script>
document.getElementById("page").onload = (event) => {{
  const page = event.target.contentDocument, root = page.documentElement;
  const wide = [...page.querySelectorAll("main *")].filter(
    (one) => one.getBoundingClientRect().right > root.clientWidth + 1 && !one.closest(".scroll, pre, svg"));
  const style = page.defaultView.getComputedStyle(page.body);
  const told = {{
    wide: wide.map((one) => one.tagName + "." + one.className), scroll: root.scrollWidth, client: root.clientWidth,
    paper: style.backgroundColor, ink: style.color,
    verdict: page.getElementById("verdict-words").textContent,
    small: [...page.querySelectorAll("p, td, th, dd, figcaption, .name")].filter(
      (one) => parseFloat(page.defaultView.getComputedStyle(one).fontSize) < 12).length,
  }};
  document.body.dataset.told = JSON.stringify(told);
}};
</script>
"""
"""A page around the page, since the page itself lets no script run: a frame of any width, and what it looks like."""


def browse(folder, file, *options):
    """Open a page and leave; refuses what the browser had to complain of."""
    done = subprocess.run(
        [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions",
            "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
            f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", "--virtual-time-budget=2000",
            "--hide-scrollbars", *options, file.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    return done.stdout


def measured(folder, text, width, *options):
    """What a page looks like in a frame so wide."""
    around = folder / "around.html"
    around.write_text(MEASURE.format(page=html.escape(text), width=width), encoding="utf-8")
    dom = browse(folder, around, "--dump-dom", "--allow-file-access-from-files", *options)
    return json.loads(html.unescape(re.search(r'data-told="([^"]*)"', dom)[1]))


def brightness(colour):
    """Of "rgb(1, 2, 3)", from 0 to 255."""
    return np.mean([int(part) for part in re.findall(r"\d+", colour)[:3]])


@pytest.fixture(scope="module")
def many():
    """A hundred coefficients, one of them with a name as long as a sentence."""
    rng = np.random.default_rng(0)
    labels = [
        f"coefficient of the {i}-th of all covariates there are, in logs" if i == 3 else f"x{i}" for i in range(100)
    ]
    return fit(
        {"beta": rng.normal(np.arange(100.0), 1.0, (4, 200, 100))},
        dims={"beta": ["x"]}, coords={"x": labels}, certified=certificate(), warnings=["Pass subset_size=" + 200 * "9"],
    )  # fmt: skip


def test_the_browser_shows_the_verdict_and_has_no_complaint(tmp_path):
    given = certificate()
    dom = browse(tmp_path, fit(certified=given).report(tmp_path / "page.html"), "--dump-dom")
    assert html.escape(given.verdict, quote=False) in dom
    assert 'data-outcome="pass"' in dom


@pytest.mark.parametrize("width", [pytest.param(1280, marks=SLOW), 390, pytest.param(320, marks=SLOW)])
def test_the_page_never_scrolls_sideways(tmp_path, many, width):
    told = measured(tmp_path, build_page(many), width, "--window-size=1400,1000")
    assert told["client"] == width
    assert told["scroll"] <= width
    assert told["wide"] == []
    assert told["small"] == 0
    assert told["verdict"] == many.certificate.verdict


@SLOW
def test_light_and_dark(tmp_path):
    text = build_page(fit())
    light, dark = (measured(tmp_path, text, 800, option) for option in (LIGHT, DARK))
    assert brightness(light["paper"]) > 200 > 100 > brightness(light["ink"])
    assert brightness(dark["ink"]) > 200 > 100 > brightness(dark["paper"])


def of_png(file):
    """Width, height and how bright the picture is on the whole."""
    from matplotlib.image import imread

    pixels = imread(file)[..., :3]
    return pixels.shape[1], pixels.shape[0], pixels.mean()


@SLOW
def test_pictures_and_print(tmp_path, many):
    """Desktop, phone, dark and paper; LWA_SCREENSHOTS names a folder to keep them in."""
    folder = Path(os.environ.get("LWA_SCREENSHOTS", tmp_path)).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    file = many.report(tmp_path / "page.html")
    pictures = {"desktop": (1280, 900, LIGHT), "phone": (500, 1000, LIGHT), "dark": (1280, 900, DARK)}
    bright = {}
    for name, (width, height, scheme) in pictures.items():
        shot = folder / f"{name}.png"
        browse(tmp_path, file, f"--window-size={width},{height}", scheme, f"--screenshot={shot}")
        *size, bright[name] = of_png(shot)
        assert size == [width, height]
    assert bright["dark"] < 0.3 < 0.8 < min(bright["desktop"], bright["phone"])
    browse(tmp_path, file, f"--print-to-pdf={folder / 'paper.pdf'}")
    assert (folder / "paper.pdf").read_bytes().startswith(b"%PDF")


@SLOW
def test_a_complaint_would_be_heard(tmp_path):
    text = build_page(fit()).replace("</main>", "<script>alert(1)</script></main>")
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    with pytest.raises(AssertionError, match="CONSOLE"):
        browse(tmp_path, tmp_path / "page.html", "--dump-dom")
