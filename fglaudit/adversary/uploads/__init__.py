"""What an observer holds of clients' models and global nodes, round by round, and what means of them hide."""
