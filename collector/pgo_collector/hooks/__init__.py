"""Hooks: what others are told when a profile is stored."""
