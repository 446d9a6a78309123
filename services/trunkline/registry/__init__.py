"""The registry: its servicer, and a host's membership."""

from trunkline.registry.membership import Membership
from trunkline.registry.registry_servicer import RegistryServicer

__all__ = ["Membership", "RegistryServicer"]
