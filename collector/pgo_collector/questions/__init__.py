"""Questions about the fleet: what is asked of the workers, and how it adds up to an answer."""
