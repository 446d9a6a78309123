"""Other views of the mesh over HTTP: the page, messages, workflows, GraphQL, metrics."""
