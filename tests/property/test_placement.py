"""New tasks of an agent go to replicas that accept them, are not overloaded, and rarely change."""

from hypothesis import given
from hypothesis import strategies as st

from harness.journal.manual_clock import ManualClock
from trunkline.mesh.client.placement import Placement, Replica, choose_replica
from trunkline.v1 import registry_service_pb2

CONTEXTS = [f"context-{number}" for number in range(200)]


def host(name: str, open_turns: int = 0, *, refuses: bool = False) -> registry_service_pb2.Host:
    load = registry_service_pb2.HostLoad(open_turns=open_turns, refuses_tasks=refuses)
    described = registry_service_pb2.Host(host_id=name, address=f"{name}:1", load=load)
    described.agents.add().card.name = "tested"
    return described


REPLICAS = st.lists(
    st.builds(
        lambda name, turns, refuses: Replica(host(str(name), turns, refuses=refuses)),
        st.uuids(),
        st.integers(0, 200),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda replica: replica.host.host_id,
)
SEEDS = st.sets(st.integers(0, 7))


@given(REPLICAS, SEEDS, st.sampled_from(["", *CONTEXTS]), st.sampled_from(["", "k-1", "k-2"]))
def test_the_chosen_replica_accepts_tasks_answers_and_has_room(
    replicas: list[Replica], failing: set[int], context_id: str, key: str
) -> None:
    fails = [replica for number, replica in enumerate(replicas) if number in failing]
    chosen = choose_replica(replicas, context_id=context_id, key=key, is_failing=fails.__contains__)
    accepting = [each for each in replicas if not each.host.load.refuses_tasks] or replicas
    assert chosen in accepting
    if key:
        return
    healthy = [each for each in accepting if each not in fails] or accepting
    assert chosen in healthy
    loads = sorted(each.open_turns for each in healthy)
    if context_id:
        assert chosen.open_turns <= max(2 * loads[0], 8)
    else:
        # The replica with the most open turns is never the less loaded of two.
        assert chosen.open_turns <= loads[max(0, len(loads) - 2)]


@given(st.lists(st.uuids().map(str), min_size=2, max_size=8, unique=True), st.data())
def test_only_the_contexts_of_a_replica_that_goes_move(ids: list[str], data: st.DataObject) -> None:
    replicas = [Replica(host(each)) for each in ids]
    before = {each: choose_replica(replicas, context_id=each) for each in CONTEXTS}
    gone = data.draw(st.sampled_from(replicas))
    remaining = data.draw(st.permutations([each for each in replicas if each != gone]))
    for context_id, replica in before.items():
        after = choose_replica(remaining, context_id=context_id)
        assert after == replica or replica == gone
    # Each replica has its share of the contexts.
    assert len(set(before.values())) == len(replicas)


@given(REPLICAS, SEEDS, st.text(min_size=1, max_size=20))
def test_a_repeated_submission_meets_the_first_one_whatever_happened(
    replicas: list[Replica], failing: set[int], key: str
) -> None:
    first = choose_replica(replicas, key=key)
    for number, replica in enumerate(replicas):
        replica.host.load.open_turns = 31 * number % 200
    fails = [replica for number, replica in enumerate(replicas) if number in failing]
    again = choose_replica(replicas[::-1], key=key, is_failing=fails.__contains__)
    assert again is first


def test_the_tasks_since_the_last_report_count_as_load_until_the_next_report() -> None:
    clock = ManualClock()
    placement = Placement(lambda _: False, clock=clock)
    placement.update([host("a"), host("b")])

    def choose(count: int) -> list[int]:
        chosen = [
            placement.choose_host("tested", context_id="", key="").host_id for _ in range(count)
        ]
        return [chosen.count("a"), chosen.count("b")]

    # Random choices alone would be this even in one of five cases.
    first, second = choose(100)
    assert abs(first - second) <= 2
    placement.update_loads({"a": registry_service_pb2.HostLoad(open_turns=30)})
    # A registration says nothing about tasks that were submitted a moment ago.
    placement.update([host("a", 30), host("b")])
    assert choose(20) == [0, 20]
    placement.update([host("a", 30), host("b")])
    assert choose(10) == [0, 10]
    # A report that changes nothing is not passed on.
    clock.now += 60
    assert choose(30) == [0, 30]
