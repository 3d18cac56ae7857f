"""One module for each page: it reads the request's parameters, runs the queries and renders the template.

`service` has what the pages of a service share, `visitors` signs people in and out.
"""
