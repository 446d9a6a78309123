"""The registry: its servicer, and a host's membership."""

from trunkline.mesh.registry.membership import Membership
from trunkline.mesh.registry.registry_servicer import RegistryServicer

__all__ = ["Membership", "RegistryServicer"]
