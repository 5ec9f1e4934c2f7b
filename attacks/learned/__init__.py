"""Attacks that learn what a defense did to messages, whatever it was, and undo it."""
