import gc

from strata.core.collecting import without_collecting


def test_what_was_made_without_collecting_is_not_looked_through_later() -> None:
    assert gc.isenabled()
    frozen = gc.get_freeze_count()
    try:
        with without_collecting():
            assert not gc.isenabled()
            made = [[] for _ in range(1000)]
        assert gc.isenabled()
        assert gc.get_freeze_count() - frozen >= len(made)
    finally:
        gc.unfreeze()


def test_one_within_another_leaves_the_end_to_the_outer() -> None:
    try:
        with without_collecting():
            with without_collecting():
                pass
            assert not gc.isenabled()
        assert gc.isenabled()
    finally:
        gc.unfreeze()
