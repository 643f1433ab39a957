"""What programs talk to; it knows the wire alone."""
