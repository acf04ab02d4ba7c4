"""NVIDIA's management library as the agent calls it, for machines without a GPU: it fills in what it is handed."""

from __future__ import annotations

from typing import Any


class FakeNvml:
    """Cards by PCI address; what a card does not have, the library refuses to say (3: not supported)."""

    def __init__(self, *cards: dict[str, Any]) -> None:
        self.cards = cards

    def __getattr__(self, call: str) -> Any:
        def answer(card: Any, *more: Any) -> int:
            has = self.cards[card.value - 1]
            if call not in has:
                return 3
            told = has[call]
            if isinstance(told, str):
                more[0].value = told.encode()
                return 0
            for where, value in zip((one for one in more if not isinstance(one, int)), told, strict=True):
                where._obj.value = value
            return 0

        return answer

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        count._obj.value = len(self.cards)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, card: Any) -> int:  # noqa: N802
        if self.cards[index].get("lost"):
            return 15  # the GPU is lost
        card._obj.value = index + 1
        return 0

    def nvmlDeviceGetPciInfo_v3(self, card: Any, pci: Any) -> int:  # noqa: N802
        domain, bus, rest = self.cards[card.value - 1]["address"].split(":")
        pci._obj.domain, pci._obj.bus, pci._obj.device = int(domain, 16), int(bus, 16), int(rest[:2], 16)
        return 0

    def nvmlDeviceGetMemoryInfo(self, card: Any, memory: Any) -> int:  # noqa: N802
        memory._obj.total = self.cards[card.value - 1]["memory"]
        return 0
