from trunkline.journal.tail import Tail, Tails


def test_a_tail_drops_the_oldest_batches_beyond_its_limit() -> None:
    tail = Tail(10)
    for first in range(1, 200):
        tail.add(first, b"xxxx")
    assert tail.size_bytes == 8
    assert tail.read(196, limit_bytes=100) is None
    assert tail.read(197, limit_bytes=100) == [b"xxxx", b"xxxx"]


def test_a_tail_returns_the_batch_at_the_cursor_and_all_after_it() -> None:
    tail = Tail(100)
    tail.add(1, b"one")
    tail.add(4, b"two")
    tail.add(6, b"three")
    assert tail.read(0, limit_bytes=100) == [b"one", b"two", b"three"]
    assert tail.read(2, limit_bytes=100) == [b"one", b"two", b"three"]
    assert tail.read(3, limit_bytes=100) == [b"two", b"three"]
    assert tail.read(4, limit_bytes=4) == [b"two"]
    assert tail.read(5, limit_bytes=1) == [b"three"]


def test_a_tail_stores_no_batch_larger_than_its_limit() -> None:
    tail = Tail(4)
    tail.add(1, b"xxxxx")
    assert tail.size_bytes == 0
    assert tail.read(0, limit_bytes=100) is None


def test_tails_share_a_limit_and_evict_the_idlest_task() -> None:
    tails = Tails(task_limit_bytes=8, limit_bytes=12)
    for task_id in ("a", "b", "c"):
        tails.add(task_id, 1, b"xxxx")
    tails.add("a", 2, b"xxxx")
    assert tails.size_bytes == 12
    assert tails.find("b") is None
    for task_id, batches in (("a", [b"xxxx", b"xxxx"]), ("c", [b"xxxx"])):
        tail = tails.find(task_id)
        assert tail is not None
        assert tail.read(0, limit_bytes=100) == batches
