"""Programs that run clients and servers of other SDKs; harness/partners.py starts them."""
