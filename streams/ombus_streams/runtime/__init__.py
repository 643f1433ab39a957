"""Where effects live: ports, the processor loop, the interpreter, verification."""
