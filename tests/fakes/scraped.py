"""Metrics as whoever scrapes them reads them."""

from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families


class Scraped:
    """One answer to a scrape, in Prometheus' text form."""

    def __init__(self, body: bytes) -> None:
        families = list(text_string_to_metric_families(body.decode()))
        self.names = {family.name for family in families}
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        """The one sample of this name that has these labels and no others."""
        return self.samples.get((name, frozenset(labels.items())))

    def total(self, name: str, **labels: str) -> float:
        """The sum of all samples of this name that have these labels, among others."""
        return sum(self._found(name, labels.items()))

    def labels(self, name: str, label: str) -> set[str]:
        """The values that a label of this name has."""
        found = (dict(labels) for known, labels in self.samples if known == name)
        return {labels[label] for labels in found if label in labels}

    def _found(self, name: str, labels: Iterable[tuple[str, str]]) -> Iterable[float]:
        wanted = set(labels)
        return (
            value for (known, has), value in self.samples.items() if known == name and wanted <= has
        )
