"""What worker processes do with profiles."""
