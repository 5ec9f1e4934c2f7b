"""What differs between replays with equal draws: fields of messages that carry a record."""
