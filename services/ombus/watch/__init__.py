"""Files that agents still write, followed onto the log: nothing twice, nothing lost."""
