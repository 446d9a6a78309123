"""The file of the known hosts, without which a registry does no work for it."""

from trunkline.mesh.registry.known_hosts import KnownHostsFile
from trunkline.v1 import registry_service_pb2


async def test_without_a_file_no_host_is_read() -> None:
    hosts = iter([registry_service_pb2.Host(host_id="h-1", journal_ids=["j-1"])])
    file = KnownHostsFile(None)
    await file.save(hosts, hosts)
    assert [host.host_id for host in hosts] == ["h-1"]
    assert file.load() == ()
