"""Topics as rows, their live offsets, and the gateway that sends and browses messages."""
