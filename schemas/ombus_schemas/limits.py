"""Every cap of the wire, by name. What a fold ignores and what admission refuses is decided here.

Caps of settings and workers live with the settings; those that a session's own facts carry are no
constants at all (design.md section 3).
"""

from typing import Final

MAX_DEPTH: Final = 64
"""Objects and arrays open at once in a record; the entry itself is the first."""
MAX_FOLDED_BYTES: Final = 524_288
"""JSON of a folded payload (S12)."""
MAX_SUMMARY_BYTES: Final = 262_144
"""A rendered memory, so the summary of a compaction (S9)."""
MAX_WINDOW_BYTES: Final = 524_288
"""The rendered recent messages (S10)."""
MAX_ENTRY_BYTES: Final = 3_145_728
"""One encoded entry: the folded payload, the summary at its worst (six bytes for a control
character), and room for ids."""
MAX_HEADER_BYTES: Final = 65_536
"""All headers of a record together."""
MAX_RECORD_BYTES: Final = MAX_ENTRY_BYTES + MAX_HEADER_BYTES
"""``max.message.bytes`` of every topic that carries entries."""
MAX_OFFERED_BYTES: Final = 67_108_864
"""What admission will read before media leave the entry; public transcripts have lines of 53 MB."""
MAX_INLINE_MEDIA_BYTES: Final = 32_768
"""Base64 text that stays in an entry; longer media travels by reference (cases.md B23)."""

MAX_ID_CHARS: Final = 200

MAX_SCOPES: Final = 256
"""Host scopes of a session; the implicit root does not count (S18)."""
MAX_BINDS: Final = 4_096
"""Refs bound to one scope; a record that would pass it is ignored whole."""
MAX_LABEL_UNITS: Final = 512
"""UTF-16 units of a scope's label, and of its kind."""
MAX_PRINCIPALS: Final = 1_024
"""Principals of one scope, and of one grant record."""
