"""HTML as text. Anything that is not `Markup` is escaped, so a parameter may have any name."""

from html import escape


class Markup(str):
    """Text that is HTML already. If it is added to other text, the sum is plain text, and is escaped as a whole."""


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """Return `<name attribute="value">children</name>`; children that are not `Markup` are escaped.

    `class_` becomes `class` and `data_x` becomes `data-x`. Attributes that are None or False are left out; for True,
    only the name is written.
    """
    written = "".join(
        f" {_attribute(key)}" if value is True else f' {_attribute(key)}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Markup(f"<{name}{written}>{join_markup(*children)}</{name}>")


def join_markup(*children: object) -> Markup:
    """Return the children one after the other, without None."""
    return Markup("".join(one if isinstance(one, Markup) else escape(str(one)) for one in children if one is not None))


def _attribute(key: str) -> str:
    return key.removesuffix("_").replace("_", "-")


def fold(label: str, *children: object) -> Markup:
    """Return a label that opens its content when clicked."""
    return tag("details", tag("summary", label), *children)


def list_facts(pairs: list[tuple[str, object]]) -> Markup:
    """Return names with their values, one pair per line."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs))
