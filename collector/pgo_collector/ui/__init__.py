"""The web pages below /ui: `mounting` adds them, `site` is made of them at the first request, and `pages/`
has a module for each page.

The pages show the results of the rooms queries, releases and merges, which `sources` hands to them.
`rendering` makes pages from the folder templates, with the CSS and JavaScript in static, under the `headers`
that browsers obey.

Who may see a page: `sessions`, `throttle` (wrong keys) and `forms`. What stands on a page: `links` that keep
the selection, `selection_bar`, `filters` and `comparisons`; values for people, by `amounts`; drawings, by
`flame_drawing` (and `svg_file`, as a file), `sandwich_drawing`, `heat_drawing`, `timeline_drawing`,
`fleet_drawing` and `plots`. `live_streams` tell a page of newer profiles.
"""
