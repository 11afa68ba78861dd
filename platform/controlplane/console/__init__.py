"""The web console: server-rendered pages over the same selectors and services as the REST API."""
