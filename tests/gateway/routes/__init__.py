"""The routes that are not inference."""
