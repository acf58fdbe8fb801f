"""What a remote git repository says, without its working tree."""
