"""Documents that the research agent may quote: read, cut into passages, stored and searched."""
