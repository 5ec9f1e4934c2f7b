"""What is guessed without any message: the controls, and what attacks start from."""
