"""The live view in a terminal: what `/events` tells, shown with Textual, and keys that act on it.

`values` is what the gateway sends, `feed` reads it over as many connections as it takes, `view`
holds what one person looks at, `panels` makes lines of text of that, and `app` puts them on a
screen. Only `app` knows Textual; only `feed` knows the network.
"""
