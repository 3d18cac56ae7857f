"""The web pages below /ui: `site.mount_site` adds them, and `pages/` has a module for each page.

The pages show the results of `queries`, `releases` and `merges`; `templates/` and `static/` have their HTML,
CSS and JavaScript.
"""
