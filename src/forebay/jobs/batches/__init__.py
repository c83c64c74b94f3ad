"""Files and batches, as in the OpenAI API."""
