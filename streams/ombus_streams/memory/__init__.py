"""The pure memory: folds, views, projection, render, recall, and what to do next."""
