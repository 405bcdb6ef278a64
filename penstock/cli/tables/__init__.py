"""Commands on the pipeline and its tables: pipeline, tables, trace."""
