"""The documentation as a site: Sphinx's configuration and extension, and pages made from the code."""
