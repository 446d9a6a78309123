"""Who gets which part of a request: by the scores of the cards, or by a model that starts there."""
