"""Credentials from files that somebody else wrote, such as SPIRE or a certificate manager."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from trunkline.core.identity import Identity, MeshCredentials, Role, load_credentials
from trunkline.core.identity.certificates import create_root
from trunkline.core.private_files import write_private_file
from trunkline.core.settings import load_settings
from trunkline.errors import ConfigurationError

ID = "spiffe://example.org/ns/agents/sa/math"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Return a certificate with a foreign SPIFFE id, its key and its root."""
    roots_pem, root_key_pem = create_root()
    root = x509.load_pem_x509_certificate(roots_pem)
    root_key = serialization.load_pem_private_key(root_key_pem, None)
    assert isinstance(root_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(root.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(ID)]), critical=True
        )
        .sign(root_key, hashes.SHA256())
    )
    contents = {
        "tls.crt": certificate.public_bytes(serialization.Encoding.PEM),
        "tls.key": key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        "ca.crt": roots_pem,
    }
    for name, content in contents.items():
        write_private_file(tmp_path / name, content)
    return tmp_path / "tls.crt", tmp_path / "tls.key", tmp_path / "ca.crt"


def write_settings(folder: Path, subject: str) -> None:
    (folder / "trunkline.toml").write_text(f"""
[identity]
certificate = "tls.crt"
key = "tls.key"
roots = "ca.crt"

[identity.roles]
"{ID}" = "{subject}"
""")


def test_the_table_identity_names_the_files_and_the_roles(
    tmp_path: Path, files: tuple[Path, Path, Path]
) -> None:
    write_settings(tmp_path, "agents/math")
    settings = load_settings(environment={}, folder=tmp_path)
    assert (
        settings.identity_certificate,
        settings.identity_key,
        settings.identity_roots,
    ) == files
    assert settings.identity_roles == {ID: "agents/math"}
    identity = load_credentials(settings).identity
    assert identity == Identity("example.org", Role.AGENTS, frozenset({"math"}))


def test_an_unknown_role_is_an_error_of_the_table(
    tmp_path: Path,
    files: tuple[Path, Path, Path],
) -> None:
    write_settings(tmp_path, "root")
    with pytest.raises(ConfigurationError, match=r"\[identity.roles\] spiffe://example.org/"):
        load_credentials(load_settings(environment={}, folder=tmp_path))


def test_an_id_without_a_role_is_refused(files: tuple[Path, Path, Path]) -> None:
    certificate, key, roots = files
    with pytest.raises(ConfigurationError, match="set its role"):
        MeshCredentials(certificate=certificate, key=key, roots=roots)


def test_a_key_of_another_certificate_is_refused(files: tuple[Path, Path, Path]) -> None:
    certificate, key, roots = files
    _, other_key = create_root()
    write_private_file(key, other_key)
    with pytest.raises(ConfigurationError, match="can't be used"):
        MeshCredentials(certificate=certificate, key=key, roots=roots, roles={ID: "member"})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('identity = "x"', "identity: expected a table; its keys are: certificate, folder"),
        ("[identity]\ncolour = 1", "identity.colour: no such setting; there are: certificate"),
        ("[identity]\ncertificate = 1", "identity.certificate: "),
        ('identity_key = "x"', "identity_key: no such setting"),
    ],
)
def test_a_mistake_in_the_table_is_named(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "trunkline.toml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(environment={}, folder=tmp_path)
    assert problem in str(caught.value)


def test_an_untrusted_file_sets_no_identity(tmp_path: Path) -> None:
    (tmp_path / "trunkline.toml").write_text('[identity]\nfolder = "here"')
    ignored: list[str] = []
    settings = load_settings(
        environment={}, folder=tmp_path, report_ignored=lambda report: ignored.extend(report.names)
    )
    assert settings.identity_folder is None
    assert ignored == ["identity"]


def test_a_changed_file_is_used_and_one_that_can_not_be_used_is_not(
    files: tuple[Path, Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key, roots = files
    credentials = MeshCredentials(
        certificate=certificate, key=key, roots=roots, roles={ID: "agents/math"}
    )
    content, former = certificate.read_bytes(), credentials.read_pem()
    write_private_file(certificate, b"half a file")
    credentials.refresh()
    (logged,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert logged.message == "identity.files_not_usable"
    assert (credentials.generation, credentials.read_pem()) == (1, former)
    credentials.channel_credentials()
    write_private_file(certificate, content)
    credentials.refresh()
    assert credentials.generation == 2
    credentials.refresh()
    assert credentials.generation == 2
