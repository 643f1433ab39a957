"""Sessions with their memory, to be taken elsewhere: our JSONL, pi sessions, Markdown."""

from ombus.exporters.jsonl import OmbusExport, export_ombus
from ombus.exporters.markdown import export_markdown
from ombus.exporters.pi import PiExport, export_pi

__all__ = ["OmbusExport", "PiExport", "export_markdown", "export_ombus", "export_pi"]
