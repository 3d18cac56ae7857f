"""What every request goes through, on its way to a route and back."""
