"""What is done on a schedule: old profiles are rolled up, and those that have had their time are deleted."""
