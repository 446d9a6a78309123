"""`trunkline new`: projects to begin with."""
