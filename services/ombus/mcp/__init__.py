"""The memory of one session as tools for a model, over the Model Context Protocol."""
