"""Failover drills: a leader's process is stopped on purpose, and the outage and the losses are measured."""
