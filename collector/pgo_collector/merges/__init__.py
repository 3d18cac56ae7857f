"""Merges of what is stored: made, kept, and served in any form."""
