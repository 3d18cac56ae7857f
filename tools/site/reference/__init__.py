"""The pages of docs/reference/, made from the code. `python -m tools.site.reference` writes them."""
