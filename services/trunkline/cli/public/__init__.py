"""Commands about the public side: who may call, and what cards say."""
