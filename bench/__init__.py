"""Measurements of the pipe, each against a baseline taken in the same run."""
