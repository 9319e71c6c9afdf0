"""HTML as text. Anything that is not `Markup` is escaped, so a parameter may have any name."""

from collections.abc import Iterable
from html import escape


class Markup(str):
    """Text that is HTML already. If it is added to other text, the sum is plain text, and is escaped as a whole."""


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """Return `<name attribute="value">children</name>`; children that are not `Markup` are escaped.

    `class_` becomes `class` and `data_x` becomes `data-x`. Attributes that are None or False are left out; for True,
    only the name is written.
    """
    keys = {key.removesuffix("_").replace("_", "-"): value for key, value in attributes.items()}
    written = "".join(
        f" {key}" if value is True else f' {key}="{escape(str(value))}"'
        for key, value in keys.items()
        if value is not None and value is not False
    )
    return Markup(f"<{name}{written}>{join_markup(*children)}</{name}>")


def join_markup(*children: object) -> Markup:
    """Return the children one after the other, without None."""
    return Markup("".join(one if isinstance(one, Markup) else escape(str(one)) for one in children if one is not None))


def fold(label: str, *children: object) -> Markup:
    """Return a label that opens its content when clicked."""
    return tag("details", tag("summary", label), *children)


def list_facts(pairs: list[tuple[str, object]]) -> Markup:
    """Return names with their values, one pair per line."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs))


def build_section(name: str, heading: str, *children: object, **attributes: object) -> Markup:
    """Return a section of the page under its heading; links lead to `#name`."""
    return tag("section", tag("h2", heading), *children, id=name, **attributes)


def build_table(titles: Iterable[str], lines: Iterable[Markup], class_: str | None = None) -> Markup:
    """Return a table that scrolls if it is wider than the page; without titles it has no head."""
    head = [tag("th", title, scope="col") for title in titles]
    table = tag("table", tag("thead", tag("tr", *head)) if head else None, tag("tbody", *lines), class_=class_)
    return tag("div", table, class_="scroll")
