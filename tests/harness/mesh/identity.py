"""The identity of a test run: all its meshes have the same root, and its clients are members."""

from functools import cache

from trunkline.core.identity import MeshCredentials, load_credentials
from trunkline.core.settings import load_settings


@cache
def mesh_credentials() -> MeshCredentials:
    """Return the credentials of a process on every mesh of this test run."""
    return load_credentials(load_settings(), may_create=True)
