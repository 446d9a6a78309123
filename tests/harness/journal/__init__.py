"""Journals: builders of events, Hypothesis strategies, clocks and processes."""
