"""Commands on topics and their entries: produce, consume, topics, topic, cleanup, log."""
