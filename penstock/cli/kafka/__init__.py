"""Commands that have to do with Kafka: kafka, promote."""
