"""Transcripts of other tools become entries; one module per format."""
