"""Entries of other times, in the words of today.

A new schema version adds fields with defaults and nothing else; what cannot be said that way gets
a step here. Names of older memory systems are an importer's business: were they read as ours on the
log, anybody could forge memory under an old name.
"""

from ombus_schemas.entries import Entry


def upcast(entry: Entry) -> Entry:
    """Return ``entry`` as today's schema version would have written it.

    There is one version so far; an entry of a later release is read by the fields we know.
    """
    return entry
