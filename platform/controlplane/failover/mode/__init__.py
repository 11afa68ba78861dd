"""Changes of a cluster's mode: what one would do, and its steps."""
