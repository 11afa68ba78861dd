"""Messages that a failover or a power cut took from a replica's log: look, compare, send again, put away."""
