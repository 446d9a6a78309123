"""Fetches from URLs that callers name, protected against server-side request forgery (SSRF)."""
