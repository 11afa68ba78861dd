"""The workflow that turns rows into running daemons, and the drivers that start them."""
