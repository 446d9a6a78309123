"""New tasks of an agent go to replicas that accept them, are not overloaded, and rarely change."""

from hypothesis import given
from hypothesis import strategies as st

from trunkline.mesh.client.placement import Replica, SubmissionCounts, choose_replica

CONTEXTS = [f"context-{number}" for number in range(200)]
REPLICAS = st.lists(
    st.builds(Replica, st.uuids().map(str), st.integers(0, 200), st.booleans(), st.booleans()),
    min_size=1,
    max_size=8,
    unique_by=lambda replica: replica.host_id,
)


@given(REPLICAS, st.sampled_from(["", *CONTEXTS]), st.sampled_from(["", "k-1", "k-2"]))
def test_the_chosen_replica_accepts_tasks_and_answers_unless_none_does(
    replicas: list[Replica], context_id: str, key: str
) -> None:
    chosen = choose_replica(replicas, context_id=context_id, key=key)
    assert chosen in replicas
    assert chosen in find_candidates(replicas, is_keyed=bool(key))


def find_candidates(replicas: list[Replica], *, is_keyed: bool = False) -> list[Replica]:
    accepting = [each for each in replicas if each.accepts_tasks] or replicas
    healthy = [each for each in accepting if not each.is_failing]
    return accepting if is_keyed else healthy or accepting


@given(REPLICAS, st.sampled_from(["", *CONTEXTS]))
def test_no_task_without_a_key_goes_to_the_most_loaded_replica(
    replicas: list[Replica], context_id: str
) -> None:
    loads = [each.open_turns for each in find_candidates(replicas)]
    chosen = choose_replica(replicas, context_id=context_id)
    if context_id:
        assert chosen.open_turns <= max(2 * min(loads), 8)
    else:
        assert chosen.open_turns < max(loads) or len(loads) == 1 or loads.count(max(loads)) > 1


@given(st.lists(st.uuids().map(str), min_size=2, max_size=8, unique=True), st.data())
def test_only_the_contexts_of_a_replica_that_goes_move(ids: list[str], data: st.DataObject) -> None:
    replicas = [Replica(each) for each in ids]
    before = {each: choose_replica(replicas, context_id=each) for each in CONTEXTS}
    gone = data.draw(st.sampled_from(replicas))
    remaining = data.draw(st.permutations([each for each in replicas if each != gone]))
    for context_id, replica in before.items():
        after = choose_replica(remaining, context_id=context_id)
        assert after == replica or replica == gone
    # Each replica has its share of the contexts.
    assert len(set(before.values())) == len(replicas)


@given(REPLICAS, st.text(min_size=1, max_size=20), st.lists(st.integers(0, 200), min_size=8))
def test_a_repeated_submission_meets_the_first_one_whatever_the_load_is(
    replicas: list[Replica], key: str, loads: list[int]
) -> None:
    later = [
        Replica(each.host_id, load, each.accepts_tasks, is_failing=load > 100)
        for each, load in zip(replicas, loads, strict=False)
    ]
    first = choose_replica(replicas, key=key)
    assert choose_replica(later[::-1], key=key).host_id == first.host_id


def test_the_tasks_since_the_last_report_count_as_load_until_the_next_report() -> None:
    now_s = 100.0
    counts = SubmissionCounts(clock=lambda: now_s)
    placed = {"a": 0, "b": 0}
    for _ in range(100):
        replicas = [Replica(name, counts.get(name)) for name in placed]
        chosen = choose_replica(replicas).host_id
        counts.add(chosen)
        placed[chosen] += 1
    # A random choice alone would be this even in one of five cases.
    assert abs(placed["a"] - placed["b"]) <= 2
    # A report that changes nothing is not passed on.
    now_s += 60
    assert counts.get("a") == 0
