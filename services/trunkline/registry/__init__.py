"""Who is on the mesh: the service, and how a host takes part."""

from trunkline.registry.membership import Membership
from trunkline.registry.registry_servicer import RegistryServicer

__all__ = ["Membership", "RegistryServicer"]
