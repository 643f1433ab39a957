"""What a person does to a data folder: import, append, ask, read, verify, rebuild."""
