"""Our tests of the checks that conformance formats of A2A define, by the ids of the checks."""
