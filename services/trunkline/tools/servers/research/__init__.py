"""The research server: documents, the web and arXiv, each answer with its sources."""
