"""The pages, a file each: what is asked for, what of it is shown, and by which template."""
