"""The documentation site: Sphinx's configuration, an extension, and reference pages made from the code."""
