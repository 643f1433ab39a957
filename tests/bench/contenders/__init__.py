"""One contender a process: each reads the same topic and says how long its records took it."""
