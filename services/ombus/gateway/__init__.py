"""HTTP over an engine: append, read, follow; who may do what."""
