"""HTML as text. Whatever is not markup already is escaped, so a parameter may have any name."""

from html import escape


class Markup(str):
    """Text that is HTML already. Joined to other text it is plain again, and would be escaped as a whole."""


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """`<name attribute="value">children</name>`; children that are no `Markup` are escaped.

    `class_` is written `class` and `data_x` is written `data-x`. Attributes that are None or False are left out, and
    True stands alone.
    """
    written = "".join(
        f" {_attribute(key)}" if value is True else f' {_attribute(key)}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Markup(f"<{name}{written}>{join_markup(*children)}</{name}>")


def join_markup(*children: object) -> Markup:
    """One after the other; None is left out."""
    return Markup("".join(one if isinstance(one, Markup) else escape(str(one)) for one in children if one is not None))


def _attribute(key: str) -> str:
    return key.removesuffix("_").replace("_", "-")


def fold(label: str, *children: object) -> Markup:
    """What opens when it is asked for."""
    return tag("details", tag("summary", label), *children)


def list_facts(pairs: list[tuple[str, object]]) -> Markup:
    """What is what, one a line."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs))
