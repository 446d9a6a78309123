"""Turns that run on a host: let in, started, ended, and taken up again after a crash."""
