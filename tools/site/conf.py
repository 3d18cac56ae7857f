"""Sphinx's configuration. `build` uses it; the pages are in docs/, the navigation in docs/index.md."""

project = "pgo-collector"
copyright = "the pgo-collector maintainers"  # noqa: A001 - Sphinx's name for it
extensions = ["myst_parser", "tools.site.files"]

# Headings get the same anchors as on GitHub, so a link works on the site and in the repository.
myst_heading_anchors = 4
highlight_language = "none"  # a block without a language is the output of a program
# Lexers refuse JSON with an ellipsis, for example.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = "pgo-collector"
html_show_sourcelink = False
html_copy_source = False
# No "edit this page" button: the site doesn't know where the repository is hosted.
html_theme_options: dict[str, list[str]] = {"top_of_page_buttons": []}
