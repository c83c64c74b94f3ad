"""The live view in a terminal: what `/events` tells, drawn as lines, and the keys that act on it.

`values` is what the gateway sends, `feed` reads it over as many connections as it takes, `view`
holds what one person looks at, `picture` draws that as lines of text, and `app` puts the lines on a
screen with Textual. Only `app` knows Textual; only `feed` knows the network.
"""
