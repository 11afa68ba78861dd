"""Runs of the Spark jobs, and consumer lag: live from the brokers, history from Spark."""
