"""The public wire of A2A: names, errors, cards, and the codecs of all its versions."""
