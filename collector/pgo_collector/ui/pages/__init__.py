"""One module for each page: it reads the request's parameters, runs the queries and renders the template.

Of a service: `flame`, `top`, `function`, `diff`, `series`, `latency`, `live`, `unnamed`, `build`, and
`merge`, its download; `choose` answers the form of the label chooser, and `service` has what they share. Of
the fleet: `services`, with the forms of `example`, and `traces`. `file` opens files, which have some of the
pages of a service. `visitors` signs people in and out.
"""
