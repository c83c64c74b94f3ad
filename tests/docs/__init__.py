"""The documentation as people meet it: the site in a browser, the commands in a shell."""
