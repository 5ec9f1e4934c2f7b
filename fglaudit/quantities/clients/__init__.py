"""What is asked of clients: their labels, their messages, what stands for all their nodes."""
