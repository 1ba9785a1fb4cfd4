"""Make HTML inert: a list of harmless tags and attributes is kept, everything else goes."""

from __future__ import annotations

import re
from collections.abc import Callable

from kernelevolve.views.requirement import require

TAGS = frozenset((
    "a", "abbr", "b", "blockquote", "br", "caption", "code", "col", "colgroup", "dd", "del", "details", "div", "dl",
    "dt", "em", "figcaption", "figure", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "img", "ins", "kbd", "li", "ol",
    "p", "pre", "s", "section", "small", "span", "strong", "sub", "summary", "sup", "table", "tbody", "td", "tfoot",
    "th", "thead", "tr", "u", "ul", "wbr",
))
_GLOBAL = {"class", "id", "title", "role", "aria-label", "lang", "dir"}
_OWN = {"a": {"href"}, "img": {"src", "alt", "width", "height"}, "td": {"colspan", "rowspan"},
        "th": {"colspan", "rowspan", "scope"}, "details": {"open"}, "ol": {"start"}}
_SILENT = re.compile(r"<(script|style|template|noscript|iframe|svg|math|title)\b.*?</\1\s*>", re.I | re.S)


def sanitize(html: str) -> str:
    """`html` without scripts, styles, event handlers, frames, forms, and without anything fetched from elsewhere.

    Links to http, https and mailto stay (nothing is fetched before a person follows one); images must be data.
    """
    return str(_cleaner()(_SILENT.sub("", html)))


def _cleaner() -> Callable[[str], str]:
    bleach = require("bleach")
    cleaner = bleach.Cleaner(tags=TAGS, attributes=_allowed, protocols={"http", "https", "mailto", "data"}, strip=True,
                             strip_comments=True)
    clean: Callable[[str], str] = cleaner.clean
    return clean


def _allowed(tag: str, name: str, value: str) -> bool:
    if tag == "img" and name == "src":
        return re.match(r"data:image/(png|jpeg|gif|webp);base64,", value.strip(), re.I) is not None
    if tag == "a" and name == "href":
        return re.match(r"(https?://|mailto:|#)", value.strip(), re.I) is not None
    return name in _GLOBAL or name in _OWN.get(tag, ())
