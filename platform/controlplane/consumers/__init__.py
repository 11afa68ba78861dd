"""Consumer groups: who is connected, and offset resets with preview, result by queue, and undo."""
