"""Roots that replace others."""

from datetime import timedelta

import pytest

from trunkline.core.identity import Identity, Role
from trunkline.core.identity.certificates import CertificateAuthority, check_roots, create_root


def test_a_new_root_is_trusted_only_if_the_current_one_vouches_for_it() -> None:
    authority = CertificateAuthority(*create_root())
    current = authority.certificate_pem
    following, key, cross = authority.create_next_root()
    assert check_roots(current + following + cross, current_pem=current) == current + following
    assert check_roots(following, current_pem=current + following) == following
    assert CertificateAuthority(current + following, key).mesh == authority.mesh
    other, other_key = create_root()
    # A process of the mesh can't make the key of its certificate that of a root.
    public_key = CertificateAuthority(other, other_key).key.public_key()
    leaf = authority.issue(Identity(authority.mesh, Role.MEMBER), public_key, timedelta(hours=1))
    for offer in (following, current + following, other + cross, other + leaf, leaf, b""):
        with pytest.raises(ValueError, match=r"not signed|PEM"):
            check_roots(offer, current_pem=current)


def test_only_the_root_that_has_the_key_issues() -> None:
    former = CertificateAuthority(*create_root())
    following, key, _ = former.create_next_root()
    authority = CertificateAuthority(former.certificate_pem + following, key)
    assert authority.certificate_pem == following
    assert len(authority.roots) == 2
    with pytest.raises(ValueError, match="another certificate"):
        CertificateAuthority(former.certificate_pem, key)
