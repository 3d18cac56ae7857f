"""The pages of docs/reference/ and parts of other files, made from the code.

`python -m tools.site.reference` writes them.
"""
