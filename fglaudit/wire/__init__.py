"""The wire: the recording channel, transcripts, and what observers know besides."""
