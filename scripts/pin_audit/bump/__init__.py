"""What must change in a repository for another version of what it packages, and the writing of what is certain."""
