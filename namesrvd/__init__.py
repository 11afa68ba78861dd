"""The name server: which brokers there are, and which topics they have. README.md says where what is."""
