"""Research: answers with sources from documents, the web and arXiv."""
