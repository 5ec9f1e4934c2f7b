"""How a graph is split over clients."""

from fglaudit.partition.facts import partition_facts
from fglaudit.partition.spec import PartitionSpec, partition_schemes

__all__ = ["PartitionSpec", "partition_facts", "partition_schemes"]
