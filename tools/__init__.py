"""Programs for those who work on Forebay: builds, generated pages, the documentation site."""
