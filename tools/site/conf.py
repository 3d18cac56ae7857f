"""Sphinx's configuration, for `build`. The pages are in docs/, the navigation is docs/index.md."""

project = "pgo-collector"
copyright = "the pgo-collector maintainers"  # noqa: A001 - Sphinx's name for it
extensions = ["myst_parser", "tools.site.files"]

# Anchors are those that GitHub gives headings, so a link works on the site and in the repository.
myst_heading_anchors = 4
highlight_language = "none"  # where a page doesn't say one, it is a program's output
# JSON with an ellipsis and the like isn't what a lexer takes.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = "pgo-collector"
html_show_sourcelink = False
html_copy_source = False
# No "edit this page": the site knows no host.
html_theme_options: dict[str, list[str]] = {"top_of_page_buttons": []}
