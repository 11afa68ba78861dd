"""Assigned leadership: what a promotion or switchover would lose, and its steps."""
