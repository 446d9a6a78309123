"""Self-signed certificates for the servers of tests."""

import ssl
import subprocess
from pathlib import Path


def self_signed(folder: Path, host: str) -> tuple[ssl.SSLContext, Path]:
    """Return the TLS context of a server with this name, and the file by which clients trust it."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    options = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    command = ["openssl", *options.split(), *names, *files]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate
