"""What several registries say about the hosts is put together."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from trunkline.mesh.client.registry_views import merge_hosts, merge_lost_hosts
from trunkline.v1 import registry_service_pb2


def host(
    host_id: str, described_s: int = 0, *journals: str, address: str = "", lost_s: int = 0
) -> registry_service_pb2.Host:
    made = registry_service_pb2.Host(
        host_id=host_id, address=address or f"{host_id}:1", journal_ids=journals or [host_id]
    )
    made.describe_time.FromSeconds(described_s)
    if lost_s:
        made.lease_expire_time.FromSeconds(lost_s)
    return made


def presumed(made: registry_service_pb2.Host) -> registry_service_pb2.Host:
    made.is_presumed_lost = True
    return made


def journals(hosts: Sequence[registry_service_pb2.Host]) -> dict[str, list[str]]:
    return {each.host_id: list(each.journal_ids) for each in hosts}


def test_a_host_that_one_registry_has_is_alive() -> None:
    merged = merge_hosts([[host("a", 1)], [host("b", 2)], []])
    assert journals(merged) == {"a": ["a"], "b": ["b"]}


def test_the_latest_description_counts_in_any_order_of_the_registries() -> None:
    before, after = host("a", 1), host("a", 2, "a", "j")
    assert journals(merge_hosts([[before], [after]])) == {"a": ["a", "j"]}
    assert journals(merge_hosts([[after], [before]])) == {"a": ["a", "j"]}


def test_a_journal_has_one_host_and_a_host_that_was_taken_over_is_gone() -> None:
    first = [host("a", 1), host("b", 2, "b", "j"), host("c", 3)]
    second = [host("a", 1), host("b", 2, "b", "j"), host("c", 4, "c", "j", "a")]
    for lists in ([first, second], [second, first]):
        assert journals(merge_hosts(lists)) == {"b": ["b"], "c": ["c", "j", "a"]}
    assert journals(first) == {"a": ["a"], "b": ["b", "j"], "c": ["c"]}


def test_the_latest_host_at_an_address_is_the_only_one() -> None:
    former, current = host("a", 1, address="x:1"), host("b", 2, address="x:1")
    assert journals(merge_hosts([[former], [current]])) == {"b": ["b"]}
    assert journals(merge_hosts([[current], [former]])) == {"b": ["b"]}


def test_the_list_of_one_registry_is_not_changed() -> None:
    hosts = [host("b", 2), host("a", 1)]
    assert list(merge_hosts([hosts])) == hosts


def test_a_host_is_lost_if_no_registry_has_it() -> None:
    live = merge_hosts([[host("a", 1)], [host("b", 2, "b", "j")]])
    lost = merge_lost_hosts(
        [[host("a", lost_s=9), host("c", 0, "c", "j", lost_s=8)], [host("d", lost_s=7)]], live
    )
    assert journals(lost) == {"d": ["d"], "c": ["c"]}


def test_a_host_that_is_presumed_to_be_lost_is_lost_if_all_registries_say_so() -> None:
    left, gone = presumed(host("a", lost_s=9)), presumed(host("b", lost_s=9))
    first, second = [left, gone], [host("b", 0, "j", lost_s=8)]
    for lists in ([first, second], [second, first]):
        assert journals(merge_lost_hosts(lists, [])) == {"b": ["j"]}
    assert journals(merge_lost_hosts([first], [])) == {"a": ["a"], "b": ["b"]}
    assert journals(merge_lost_hosts([first, first], [])) == {"a": ["a"], "b": ["b"]}
    assert journals(merge_lost_hosts([first, []], [])) == {}


@given(st.data())
def test_hosts_are_the_same_in_any_order_of_the_registries(data: st.DataObject) -> None:
    """Descriptions of one time too, of which one host, one address or one journal has several."""
    few = st.sampled_from(("a", "b", "c"))
    described = st.builds(
        lambda host_id, at_s, ids, address: host(host_id, at_s, *ids, address=address),
        few, st.integers(0, 2), st.lists(few, unique=True, max_size=2), few,
    )  # fmt: skip
    of_one = st.lists(described, unique_by=lambda each: each.host_id, max_size=3)
    lists = data.draw(st.lists(of_one, min_size=2, max_size=3))
    for number, each in enumerate(each for hosts in lists for each in hosts):
        each.lease_expire_time.FromSeconds(number // 2)
    merged = merge_hosts(lists)
    again = merge_hosts(data.draw(st.permutations(lists)))
    assert journals(again) == journals(merged)
    owners = [journal_id for each in merged for journal_id in each.journal_ids]
    assert len(set(owners)) == len(owners)
    assert len({each.address for each in merged}) == len(merged)
