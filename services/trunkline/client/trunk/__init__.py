"""The trunk to a peer: all calls of this process to it, on one stream."""

from trunkline.client.trunk.trunk import REQUEST_BYTES, Trunk

__all__ = ["REQUEST_BYTES", "Trunk"]
