"""The pages that people look at, below /ui."""
