"""Guarantees put to the test: what a defense states of itself, against replays of what it does.

:mod:`.judge` asks the audits that a guarantee calls for, :mod:`.verdict_word` says what follows from them.
"""
