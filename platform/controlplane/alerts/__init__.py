"""Alerts: what is wrong with a tenant's clusters, since when, and who has seen it."""
