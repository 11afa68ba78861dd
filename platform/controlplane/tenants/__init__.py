"""Tenants, their members and roles. Every query of every other app starts from a tenant."""
