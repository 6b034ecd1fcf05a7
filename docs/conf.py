"""How Sphinx builds the documentation: `make docs` writes it to build/docs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pygments.lexers.special import TextLexer

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from leco import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "leco"
author = "the authors of leco"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "generated_pages",
    "mathml",
]
exclude_patterns = ["_ext", "_static"]

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 4  # as GitHub names them, so that links with a # work there and here

smartquotes = False  # two straight quotes are an empty label
default_role = "code"  # what docstrings have in `backticks`
_ROUTING = ", ".join(f"set_{method}_request" for method in ("fit", "predict", "predict_proba", "score"))
autodoc_default_options = {"members": True, "exclude-members": _ROUTING}  # scikit-learn adds these
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 120
add_module_names = False
nitpicky = True  # types in signatures that lead nowhere are warnings, too, but for those of others and internal ones
_OTHERS = r"(torch|numpy|scipy|sklearn|pandas|PIL|collections|pathlib|typing)\..*|Tensor|NDArray.*"
_INTERNAL = (
    r"leco\.(settings|parts|records|data(set)?|modalities|models?|methods\.terms|evaluation)\..*|ArrayDataset|dict\[str"
)
nitpick_ignore_regex = [("py:.*", _OTHERS), ("py:.*", _INTERNAL)]
toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_title = f"leco {release}"
html_static_path = ["_static"]
html_css_files = ["leco.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
html_sidebars = {"index": []}
html_theme_options = {
    "logo": {"text": "leco"},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "footer_start": ["sphinx-version"],
    "footer_end": ["theme-version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "show_toc_level": 2,
}
html_math_renderer = "mathml"

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_selector = "div:not(.no-copybutton) > div.highlight > pre"


def setup(app: "Sphinx") -> None:
    """Pygments has no lexer for tables."""
    app.add_lexer("csv", TextLexer)
