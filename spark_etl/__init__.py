"""Spark jobs from the brokers' own logs to usage, money and lag, and the data source that reads topics. See README.md."""
