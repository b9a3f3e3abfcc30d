"""The key-value store of jax.distributed's coordinator, in memory, for threads that stand for processes."""

import threading
from collections import Counter

import jax


class Coordinator:
    def __init__(self) -> None:
        self.values = dict[str, str]()
        self._counts = Counter[str]()
        self._lock = threading.Lock()

    def key_value_set(self, key: str, value: str, allow_overwrite: bool = False) -> None:
        self.values[key] = value

    def key_value_try_get(self, key: str) -> str:
        if key not in self.values:
            raise jax.errors.JaxRuntimeError("NOT_FOUND")
        return self.values[key]

    def key_value_dir_get(self, below: str) -> list[tuple[str, str]]:
        return [(key, value) for key, value in [*self.values.items()] if key.startswith(below)]

    def key_value_increment(self, key: str, by: int) -> int:
        with self._lock:
            self._counts[key] += by
            return self._counts[key]

    def key_value_delete(self, below: str) -> None:
        for key, _ in self.key_value_dir_get(f"{below}/"):
            del self.values[key]
