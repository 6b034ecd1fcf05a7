"""Equations as MathML, which browsers show by themselves: no script, and nothing to fetch."""

import re
from typing import TYPE_CHECKING, Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def as_mathml(equation: str, as_block: bool = False) -> str:
    """An equation, with a thin space between a function and its argument unless that is in brackets: log p, log(p)."""
    text: str = tex2mathml(equation, as_block=as_block)
    return re.sub(r"<mo>&ApplyFunction;</mo>(?!\s*<mo)", '<mspace width="0.17em"></mspace>', text)


def _inline(self: Any, node: nodes.Element) -> None:
    self.body.append(as_mathml(node.astext()))
    raise nodes.SkipNode


def _block(self: Any, node: nodes.Element) -> None:
    self.body.append(self.starttag(node, "div", CLASS="math"))
    self.body.append(as_mathml(node.astext(), as_block=True))
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: "Sphinx") -> dict[str, bool]:
    """Register it as `html_math_renderer = "mathml"`."""
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
