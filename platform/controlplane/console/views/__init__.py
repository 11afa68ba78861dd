"""The console's pages, one module per noun. Each fetches with a selector, calls one service, and presents."""
