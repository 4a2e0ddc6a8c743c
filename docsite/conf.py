"""Settings of Sphinx. Pages are Markdown, as on any code host; `docsite/__main__.py` says where they come from."""

from importlib.metadata import version as version_of

project = "Helix Agents"
release = version = version_of("helix-agents")
copyright = "The Helix Agents authors"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = True
smartquotes = False
show_warning_types = True

myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
pygments_style = "friendly"
pygments_dark_style = "github-dark"

html_theme = "furo"
html_title = f"{project} {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#14606b", "color-brand-content": "#14606b"},
    "dark_css_variables": {"color-brand-primary": "#6cc4cf", "color-brand-content": "#6cc4cf"},
    "source_directory": "docs/",
}
