"""Every block of the documentation is run."""
