"""Redis as a cache of the grants log: written by the granter, read by gateways, trusted by nobody.

What it says counts as far as its watermark reaches, and a reader brings its own lower bound from
the log (design.md section 10). So it may be wiped, restarted, or replaced by a replica that is
behind: reads wait, are denied, and come back once the granter has repaired it.
"""
