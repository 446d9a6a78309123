"""Callers: authentication of requests, permissions, and limits of use."""
