"""The frame of the exhibits, and docs/paper.md, which is nothing but their pages and tables."""

import json
import re

import numpy as np
import pytest

from experiments import exhibit, paper


def test_a_table_is_written_as_it_is_and_as_it_is_read(tmp_path):
    exhibit.Out(tmp_path).table("t", ["n", "share", "who"], [[10_000, 0.123456, "all"], [5, float("inf"), "none"]])
    assert (tmp_path / "t.csv").read_text() == "n,share,who\n10000,0.123456,all\n5,inf,none\n"
    assert (tmp_path / "t.md").read_text() == (
        "| n | share | who |\n|---|---|---|\n| 10,000 | 0.123 | all |\n| 5 | ∞ | none |\n"
    )


def test_a_figure_is_the_same_bytes_each_time(tmp_path):
    from matplotlib.figure import Figure

    def drawn(folder):
        figure = Figure(figsize=(3, 2))
        figure.subplots().plot([0, 1], [0, 1], label="a")
        exhibit.Out(folder).figure("f", figure)
        return (folder / "f.svg").read_bytes()

    assert drawn(tmp_path / "one") == drawn(tmp_path / "two")
    assert (tmp_path / "one" / "f.png").exists()


def test_simulated_data_are_made_once_and_by_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(exhibit, "CACHE", tmp_path)
    monkeypatch.setattr(exhibit, "CHUNK", 4)
    seen = []

    def fill(first, rows):
        seen.append((first, len(rows)))
        rows[:] = first

    path = exhibit.cached("x", (10,), np.float32, fill)
    assert exhibit.cached("x", (10,), np.float32, fill) == path
    assert seen == [(0, 4), (4, 4), (8, 2)]
    np.testing.assert_array_equal(np.load(path), [0, 0, 0, 0, 4, 4, 4, 4, 8, 8])


def test_data_that_were_cut_off_are_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(exhibit, "CACHE", tmp_path)

    def broken(first, rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        exhibit.cached("x", (3,), np.float32, broken)
    path = exhibit.cached("x", (3,), np.float32, lambda first, rows: rows.fill(7))
    np.testing.assert_array_equal(np.load(path), 7)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_stages_say_what_is_to_come(tmp_path, capsys):
    out = exhibit.Out(tmp_path, {"one": 30.0, "two": 300.0})
    with out.stage("one"):
        pass
    with out.stage("two"):
        pass
    said = capsys.readouterr().err
    assert "one, about 30 s; 6 min to go" in said
    assert "two, about 5 min; 5 min to go" in said
    assert list(out.seconds) == ["one", "two"]


def test_the_page_is_the_exhibits_pages_and_the_committed_tables():
    assert paper.PAGE.read_text() == paper.assembled(paper.PAGE.with_suffix(""))


def test_all_that_the_page_shows_is_there():
    text, folder = paper.PAGE.read_text(), paper.PAGE.parent
    images = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    for image in images:
        assert (folder / image).exists(), image
        assert (folder / image).with_suffix(".svg").exists(), image
    shown = {image.removeprefix("paper/") for image in images}
    made = {str(one.relative_to(folder / "paper")) for one in (folder / "paper").glob("*/*.png")}
    assert shown == made
    assert "TODO" not in text


@pytest.mark.parametrize("name", paper.EXHIBITS)
def test_what_is_committed_was_made_at_the_papers_sizes(name):
    record = json.loads((paper.PAGE.with_suffix("") / name / "seconds.json").read_text())
    assert record["scale"] == "paper"
    assert record["seed"] == 1
    assert all(seconds >= 0 for seconds in record["stages"].values())
