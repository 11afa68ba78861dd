"""How the platform is, for everyone: its parts' state, incidents that operators write, maintenance. Nothing of single tenants."""
