"""Restarts of a cluster's daemons one after another, with the leadership moved away first."""
